package fakephone

import (
	"crypto/tls"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"time"
)

// idleTimeout is llama-server's keep-alive time; like all constants of the transport it is not divided by Speed.
const idleTimeout = 5 * time.Second

var (
	errRunning  = errors.New("fakephone: already serving")
	errNoSocket = errors.New("fakephone: not started with Start")
)

// Phone is one fake phone. Its methods are safe for concurrent use.
type Phone struct {
	cfg    Config
	id     identity
	faults *faults
	stats  *counters

	mu       sync.Mutex // guards all below
	rng      *rand.Rand
	gen      *generation
	addr     string   // what Start listens on, with the real port
	reserved *os.File // keeps the port while it is closed; closed when the phone is garbage
}

// generation is one process of the phone: it ends with Close and takes engine, queue and connections with it.
type generation struct {
	engine  *engine
	conns   *connSet
	started time.Time
	dead    chan struct{}
	work    sync.WaitGroup // requests, and the HTTP server's loop

	// guarded by Phone.mu
	closed bool
	listen *listener
	server *http.Server
}

// New returns a phone that is not listening yet; its Handler works at once.
func New(cfg Config) (*Phone, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	id, err := newIdentity(cfg)
	if err != nil {
		return nil, fmt.Errorf("fakephone %s: %w", cfg.ID, err)
	}
	h := fnv.New64a()
	_, _ = io.WriteString(h, cfg.ID) // a hash takes every write
	stats := &counters{}
	p := &Phone{
		cfg: cfg, id: id, stats: stats, faults: &faults{stats: stats},
		rng: rand.New(rand.NewPCG(cfg.Seed, h.Sum64())),
	}
	p.gen = p.newGeneration()
	return p, nil
}

func (p *Phone) newGeneration() *generation {
	dead := make(chan struct{})
	return &generation{engine: newEngine(p.cfg, dead, p.stats), conns: newConnSet(), started: time.Now(), dead: dead}
}

// Config returns the phone's configuration with its defaults filled in.
func (p *Phone) Config() Config { return p.cfg }

// Handler serves the phone's HTTP without its TLS. Faults of the connection do not apply there, RST is a plain close.
func (p *Phone) Handler() http.Handler { return http.HandlerFunc(p.serveHTTP) }

// Start listens with TLS on addr ("127.0.0.1:0" picks a port that is then kept, see [Phone.Restart]) and serves until Close.
func (p *Phone) Start(addr string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gen.listen != nil && !p.gen.closed {
		return errRunning
	}
	p.reserveLocked(addr)
	port, err := net.Listen("tcp", p.addr)
	if err != nil {
		return fmt.Errorf("fakephone %s: %w", p.cfg.ID, err)
	}
	p.addr = port.Addr().String()
	g := p.beginLocked(port, func() (net.Listener, error) { return net.Listen("tcp", port.Addr().String()) })
	over := tls.NewListener(g.listen, p.id.serverConfig())
	g.work.Go(func() { _ = g.server.Serve(over) }) // ends with Close only
	return nil
}

// reserveLocked sets the address to listen on, and reserves its port where that is possible.
func (p *Phone) reserveLocked(addr string) {
	if p.reserved != nil && addr == p.addr {
		return
	}
	p.addr = addr
	ap, err := netip.ParseAddrPort(addr)
	if err != nil || !ap.Addr().Is4() {
		return
	}
	file, port, err := reserve(ap)
	if err != nil {
		return // listening tells better what is wrong
	}
	if p.reserved != nil {
		_ = p.reserved.Close()
	}
	p.reserved, p.addr = file, netip.AddrPortFrom(ap.Addr(), port).String()
}

// Serve serves without TLS on l, until Close, which closes l; it returns nil then. A new listener may be given afterwards.
func (p *Phone) Serve(l net.Listener) error {
	p.mu.Lock()
	if p.gen.listen != nil && !p.gen.closed {
		p.mu.Unlock()
		return errRunning
	}
	g := p.beginLocked(l, nil)
	g.work.Add(1)
	p.mu.Unlock()
	defer g.work.Done()
	err := g.server.Serve(g.listen)
	if errors.Is(err, http.ErrServerClosed) || errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// beginLocked makes the process that serves port: the first one of the phone, or a new one.
func (p *Phone) beginLocked(port net.Listener, open func() (net.Listener, error)) *generation {
	if p.gen.closed {
		p.gen = p.newGeneration()
	}
	g := p.gen
	g.started = time.Now()
	g.listen = &listener{faults: p.faults, conns: g.conns, addr: port.Addr(), open: open, dead: g.dead, port: port}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	g.server = &http.Server{
		Handler:     p.Handler(),
		IdleTimeout: idleTimeout,
		Protocols:   protocols,
		ConnContext: withConn,
		ConnState:   stateChanged,
		ErrorLog:    log.New(io.Discard, "", 0), // failed handshakes are what tests ask for
	}
	return g
}

// Close kills the phone, as kill -9 does: the port is closed and every connection reset at once. It returns when all requests have
// ended. The port stays reserved for Restart. Closing twice is fine.
func (p *Phone) Close() error {
	p.mu.Lock()
	g := p.gen
	first := !g.closed
	g.closed = true
	p.mu.Unlock()
	var err error
	everyone := func(*conn, bool) bool { return true }
	if first {
		for _, c := range g.conns.choose(everyone) {
			c.doom() // before a request that learns of the death can close it politely
		}
		close(g.dead)
		if g.listen != nil {
			err = g.listen.Close()
		}
		g.conns.resetWhere(everyone)
		if g.server != nil {
			err = errors.Join(err, g.server.Close())
		}
	}
	g.work.Wait()
	return err
}

// Restart kills the phone and starts a new process on the same port with the same certificate, loading first if Config.Load says so.
// Faults are cleared. It works for phones begun with Start, also after Close.
func (p *Phone) Restart() error {
	p.mu.Lock()
	addr := p.addr
	p.mu.Unlock()
	if addr == "" {
		return errNoSocket
	}
	if err := p.Close(); err != nil {
		return err
	}
	p.faults.clear()
	return p.Start(addr)
}

// SetFault switches f on, in place of an earlier fault. It applies to running requests as well, where its kind can.
func (p *Phone) SetFault(f Fault) error {
	if err := f.validate(); err != nil {
		return err
	}
	if err := p.Clear(); err != nil {
		return err
	}
	p.faults.set(f)
	listen, conns := p.network()
	switch f.Kind {
	case Refuse:
		if listen != nil {
			listen.refuse()
		}
		fallthrough
	case Reset, HangHandshake:
		conns.resetWhere(func(c *conn, _ bool) bool { return c.idle.Load() })
	default:
	}
	return nil
}

// Clear switches the fault off. The error is that of opening the port again after Refuse.
func (p *Phone) Clear() error {
	p.faults.clear()
	listen, conns := p.network()
	conns.resetWhere(func(_ *conn, hung bool) bool { return hung })
	if listen == nil {
		return nil
	}
	if err := listen.allow(); err != nil {
		return fmt.Errorf("fakephone %s: open port again: %w", p.cfg.ID, err)
	}
	return nil
}

func (p *Phone) network() (*listener, *connSet) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gen.closed {
		return nil, p.gen.conns
	}
	return p.gen.listen, p.gen.conns
}

// Stats returns what the phone has seen.
func (p *Phone) Stats() Stats { return p.stats.snapshot() }

// URL returns the address of a phone begun with Start, without a slash at its end; "" before.
func (p *Phone) URL() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	ap, err := netip.ParseAddrPort(p.addr)
	if err != nil {
		return ""
	}
	host := ap.Addr().String()
	if ap.Addr().IsUnspecified() {
		host = "127.0.0.1"
	}
	return "https://" + net.JoinHostPort(host, strconv.Itoa(int(ap.Port())))
}

// CertPEM returns the phone's certificate, which is its own root; KeyPEM its private key.
func (p *Phone) CertPEM() []byte { return p.id.certPEM }

// KeyPEM returns the private key of the phone's certificate.
func (p *Phone) KeyPEM() []byte { return p.id.keyPEM }

// PinSHA256 returns "sha256/" and the base64 SHA-256 of the certificate's public key (SPKI).
func (p *Phone) PinSHA256() string { return p.id.pin }

// enter registers a request with the running process; nil when there is none.
func (p *Phone) enter() *generation {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gen.closed {
		return nil
	}
	p.gen.work.Add(1)
	return p.gen
}

// delay is one round trip of this phone's network, scaled.
func (p *Phone) delay() time.Duration {
	p.mu.Lock()
	u := 2*p.rng.Float64() - 1
	p.mu.Unlock()
	ms := max(0, p.cfg.Profile.RTTMS+u*p.cfg.Profile.JitterMS)
	return p.cfg.scaled(time.Duration(ms * float64(time.Millisecond)))
}

// newID returns an id in llama-server's form.
func (p *Phone) newID() string {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
	b := make([]byte, 32)
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range b {
		b[i] = letters[p.rng.IntN(len(letters))]
	}
	return "chatcmpl-" + string(b)
}
