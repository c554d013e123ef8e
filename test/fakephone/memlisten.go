package fakephone

import (
	"context"
	"net"
	"sync"
)

// MemListener is a listener over [net.Pipe]: it opens no socket, so a phone can be served in a testing/synctest bubble. A write
// blocks until it is read. Close it once; it is safe for concurrent use.
type MemListener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

// NewMemListener returns an open listener.
func NewMemListener() *MemListener {
	return &MemListener{conns: make(chan net.Conn), closed: make(chan struct{})}
}

// DialContext connects to the listener, whatever the address; it fits [net/http.Transport]. It returns [net.ErrClosed] after Close.
func (l *MemListener) DialContext(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case l.conns <- server:
		return client, nil
	case <-l.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Accept implements [net.Listener].
func (l *MemListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener].
func (l *MemListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr implements [net.Listener].
func (l *MemListener) Addr() net.Addr { return memAddr{} }

type memAddr struct{}

func (memAddr) Network() string { return "mem" }
func (memAddr) String() string  { return "phone.mem:0" }
