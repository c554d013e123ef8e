package fakephone

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
)

// maxPerConn is the number of requests llama-server answers on one connection.
const maxPerConn = 100

// conn is a connection as accepted, below TLS. It lets a handler reset it and close it after an answer that announced keep-alive.
type conn struct {
	net.Conn
	set       *connSet
	idle      atomic.Bool
	mute      atomic.Bool // nothing is written any more, not even TLS's goodbye
	served    int         // used by the goroutine that serves the connection
	closeIdle bool        // likewise
}

// Close implements [net.Conn].
func (c *conn) Close() error {
	c.set.remove(c)
	return c.Conn.Close()
}

// Write implements [net.Conn].
func (c *conn) Write(b []byte) (int, error) {
	if c.mute.Load() {
		return 0, net.ErrClosed
	}
	return c.Conn.Write(b)
}

// doom lets whoever closes the connection next reset it: with RST where it is TCP, else plainly.
func (c *conn) doom() {
	c.mute.Store(true)
	if tcp, ok := c.Conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // a connection that is gone already needs no RST
	}
}

// reset closes the connection with RST where it is TCP, else plainly.
func (c *conn) reset() {
	c.doom()
	_ = c.Close()
}

// inner returns the accepted connection behind what the HTTP server holds, or nil.
func inner(c net.Conn) *conn {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	pc, _ := c.(*conn)
	return pc
}

type connKey struct{}

func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, inner(c))
}

// connOf returns the connection of a request; nil under a server that is not ours.
func connOf(r *http.Request) *conn {
	c, _ := r.Context().Value(connKey{}).(*conn)
	return c
}

// stateChanged closes a connection after a stream, as llama-server does in spite of its Keep-Alive header.
func stateChanged(nc net.Conn, state http.ConnState) {
	c := inner(nc)
	if c == nil {
		return
	}
	c.idle.Store(state == http.StateIdle)
	if state == http.StateIdle && c.closeIdle {
		_ = nc.Close()
	}
}

// connSet is the open connections of one process.
type connSet struct {
	mu   sync.Mutex // guards all
	all  map[*conn]struct{}
	hung map[*conn]struct{} // accepted and never served
}

func newConnSet() *connSet {
	return &connSet{all: make(map[*conn]struct{}), hung: make(map[*conn]struct{})}
}

func (s *connSet) add(nc net.Conn) *conn {
	c := &conn{Conn: nc, set: s}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all[c] = struct{}{}
	return c
}

func (s *connSet) hang(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hung[c] = struct{}{}
}

func (s *connSet) remove(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, c)
	delete(s.hung, c)
}

// choose returns the connections match agrees to; it may close none of them itself.
func (s *connSet) choose(match func(c *conn, hung bool) bool) []*conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	var chosen []*conn
	for c := range s.all {
		if _, hung := s.hung[c]; match(c, hung) {
			chosen = append(chosen, c)
		}
	}
	return chosen
}

// resetWhere resets the connections match agrees to.
func (s *connSet) resetWhere(match func(c *conn, hung bool) bool) {
	for _, c := range s.choose(match) {
		c.reset()
	}
}

// listener applies the faults of the connection. Its port can be closed and opened again while the HTTP server waits in Accept.
type listener struct {
	faults *faults
	conns  *connSet
	addr   net.Addr
	open   func() (net.Listener, error) // nil when the port cannot be opened again
	dead   <-chan struct{}

	mu     sync.Mutex // guards all below
	port   net.Listener
	reopen chan struct{} // closed when port is set again; nil while it is open
	closed bool
}

// Accept implements [net.Listener].
func (l *listener) Accept() (net.Conn, error) {
	for {
		if _, err := l.faults.waitThaw(l.dead); err != nil {
			return nil, net.ErrClosed
		}
		port, err := l.current()
		if err != nil {
			return nil, err
		}
		nc, err := port.Accept()
		if err != nil {
			if l.refusing() {
				continue
			}
			return nil, err
		}
		c := l.conns.add(nc)
		if l.killed() {
			c.reset() // added too late for Close to see it
			return nil, net.ErrClosed
		}
		fault, ok := l.faults.strike(func(f Fault) bool { return f.Kind == Reset || f.Kind == HangHandshake || f.Kind == Refuse })
		switch {
		case !ok:
		case fault.Kind == HangHandshake:
			l.conns.hang(c)
			continue
		default:
			c.reset()
			continue
		}
		if _, err := l.faults.waitThaw(l.dead); err != nil {
			c.reset()
			return nil, net.ErrClosed
		}
		return c, nil
	}
}

// current waits until the port is open.
func (l *listener) current() (net.Listener, error) {
	for {
		l.mu.Lock()
		port, reopen, closed := l.port, l.reopen, l.closed
		l.mu.Unlock()
		switch {
		case closed:
			return nil, net.ErrClosed
		case reopen == nil:
			return port, nil
		}
		select {
		case <-reopen:
		case <-l.dead:
			return nil, net.ErrClosed
		}
	}
}

func (l *listener) killed() bool {
	select {
	case <-l.dead:
		return true
	default:
		return false
	}
}

func (l *listener) refusing() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reopen != nil && !l.closed
}

// refuse closes the port, if it can be opened again.
func (l *listener) refuse() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open == nil || l.reopen != nil || l.closed {
		return
	}
	l.reopen = make(chan struct{})
	_ = l.port.Close()
}

// allow opens the port again.
func (l *listener) allow() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.reopen == nil || l.closed {
		return nil
	}
	port, err := l.open()
	if err != nil {
		return err
	}
	l.port = port
	close(l.reopen)
	l.reopen = nil
	return nil
}

// Close implements [net.Listener].
func (l *listener) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	l.closed = true
	if err := l.port.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// Addr implements [net.Listener].
func (l *listener) Addr() net.Addr { return l.addr }
