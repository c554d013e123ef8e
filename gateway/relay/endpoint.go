package relay

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"phonebank/balancer"
)

// Endpoint is how to reach one phone. It holds secrets: never log it.
type Endpoint struct {
	URL    *url.URL    // scheme, host and an optional path before /v1
	Key    string      // sent as Bearer; empty for none
	Model  string      // the name the phone uses
	Header http.Header // sent with every request, for tunnels that want one
	Trust  Trust
	Engine balancer.Engine
}

// Trust says which certificate a phone may show. The zero value trusts the system's authorities.
type Trust struct {
	CA       *x509.CertPool // only these authorities
	Pin      string         // "sha256/<base64 of the SHA-256 of the public key info>": only this key, whatever its certificate says
	Insecure bool           // anything; loud in the log, never by default
}

// Config returns the TLS configuration to dial host with.
//
// The curves are fixed: a relay that routes by the ClientHello peeks at the first segment only, and a post-quantum key share does not fit
// into one. No protocol but HTTP/1.1 is offered: one stream, one connection, a clean failure.
func (t Trust) Config(host string) *tls.Config {
	c := &tls.Config{
		ServerName:       host,
		RootCAs:          t.CA,
		MinVersion:       tls.VersionTLS12,
		CurvePreferences: []tls.CurveID{tls.X25519, tls.CurveP256},
	}
	switch {
	case t.Insecure:
		c.InsecureSkipVerify = true
	case t.Pin != "":
		c.InsecureSkipVerify = true // the pin replaces the chain
		c.VerifyConnection = func(s tls.ConnectionState) error { return verifyPin(t.Pin, s) }
	}
	return c
}

// ErrPin means a phone showed a public key other than the pinned one.
var ErrPin = errors.New("public key does not match the pin")

func verifyPin(pin string, s tls.ConnectionState) error {
	if len(s.PeerCertificates) == 0 {
		return ErrPin
	}
	sum := sha256.Sum256(s.PeerCertificates[0].RawSubjectPublicKeyInfo)
	got := "sha256/" + base64.StdEncoding.EncodeToString(sum[:])
	if subtle.ConstantTimeCompare([]byte(strings.TrimRight(got, "=")), []byte(strings.TrimRight(pin, "="))) != 1 {
		return ErrPin
	}
	return nil
}

// DialError is a connection that did not come about.
type DialError struct {
	Handshake bool // TCP was there, TLS failed
	Err       error
}

// Error implements error.
func (e *DialError) Error() string {
	if e.Handshake {
		return fmt.Sprintf("tls handshake: %v", e.Err)
	}
	return fmt.Sprintf("dial: %v", e.Err)
}

// Unwrap returns the cause.
func (e *DialError) Unwrap() error { return e.Err }

// Directory knows how to reach each phone. Immutable.
type Directory struct {
	byID   map[balancer.ReplicaID]*Endpoint
	byAddr map[string]*Endpoint
}

// NewDirectory indexes endpoints, which it keeps.
func NewDirectory(endpoints map[balancer.ReplicaID]*Endpoint) *Directory {
	d := &Directory{byID: endpoints, byAddr: make(map[string]*Endpoint, len(endpoints))}
	for _, e := range endpoints {
		d.byAddr[address(e.URL)] = e
	}
	return d
}

// Lookup returns the endpoint of id.
func (d *Directory) Lookup(id balancer.ReplicaID) (*Endpoint, bool) {
	e, ok := d.byID[id]
	return e, ok
}

func address(u *url.URL) string {
	if u.Port() != "" {
		return u.Host
	}
	if u.Scheme == "http" {
		return net.JoinHostPort(u.Hostname(), "80")
	}
	return net.JoinHostPort(u.Hostname(), "443")
}

// TransportConfig bounds connections to phones. Zero values mean the defaults in brackets.
type TransportConfig struct {
	Connect time.Duration // TCP, then again TLS [5s each]
	Idle    time.Duration // llama-server closes idle connections after 5 s; stay below [3s]
	PerHost int           // idle connections kept for one phone [2]; more for an engine that serves many at once
}

// NewTransport returns the transport to the phones of a directory. Redirects are followed by clients, not transports: use RoundTrip.
func NewTransport(d *Directory, c TransportConfig) *http.Transport {
	if c.Connect <= 0 {
		c.Connect = 5 * time.Second
	}
	if c.Idle <= 0 {
		c.Idle = 3 * time.Second
	}
	if c.PerHost <= 0 {
		c.PerHost = 2
	}
	dialer := &net.Dialer{Timeout: c.Connect, KeepAlive: 15 * time.Second}
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dialer.DialContext(ctx, network, addr)
		if err != nil {
			return nil, &DialError{Err: err}
		}
		return conn, nil
	}
	return &http.Transport{
		DialContext: dial,
		DialTLSContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := dial(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return handshake(ctx, conn, d.trust(addr), addr, c.Connect)
		},
		DisableCompression:     true,
		IdleConnTimeout:        c.Idle,
		MaxIdleConnsPerHost:    c.PerHost,
		MaxResponseHeaderBytes: 64 << 10,
		ExpectContinueTimeout:  time.Second,
		Protocols:              onlyHTTP1(),
	}
}

func onlyHTTP1() *http.Protocols {
	p := new(http.Protocols)
	p.SetHTTP1(true)
	return p
}

func (d *Directory) trust(addr string) Trust {
	if e, ok := d.byAddr[addr]; ok {
		return e.Trust
	}
	return Trust{}
}

func handshake(ctx context.Context, conn net.Conn, trust Trust, addr string, limit time.Duration) (net.Conn, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		host = addr
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	secure := tls.Client(conn, trust.Config(host))
	if err := secure.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, &DialError{Handshake: true, Err: err}
	}
	return secure, nil
}
