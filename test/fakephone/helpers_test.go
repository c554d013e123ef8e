package fakephone

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"
)

// quick is a profile without network delay whose figures are easy to compute with.
func quick() Profile {
	return Profile{Name: "quick", Model: "tiny", Slots: 1, PrefillShortTPS: 100, DecodeTPS: 10}
}

// client talks to a phone.
type client struct {
	*http.Client
	url string
}

func (c client) post(ctx context.Context, path, body string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	return c.Do(req)
}

func (c client) get(ctx context.Context, path string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url+path, nil)
	if err != nil {
		return nil, err
	}
	return c.Do(req)
}

// inMemory serves a phone over pipes, fit for a bubble. Everything has ended when the test ends.
func inMemory(t *testing.T, cfg Config) (*Phone, client) {
	t.Helper()
	p, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	l := NewMemListener()
	served := make(chan error, 1)
	go func() { served <- p.Serve(l) }()
	// as with llama-server, a connection does not survive a stream although it says so
	transport := &http.Transport{DialContext: l.DialContext, DisableCompression: true, DisableKeepAlives: true}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
		transport.CloseIdleConnections()
	})
	return p, client{&http.Client{Transport: transport}, "http://phone"}
}

// overTLS starts a phone on a real socket.
func overTLS(t *testing.T, cfg Config) (*Phone, client) {
	t.Helper()
	p, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start("127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(p.CertPEM()) {
		t.Fatal("CertPEM holds no certificate")
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, DisableCompression: true, DisableKeepAlives: true}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		if err := p.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return p, client{&http.Client{Transport: transport, Timeout: 20 * time.Second}, p.URL()}
}

// event is what a test reads of a stream's event.
type event struct {
	at      time.Duration // since the request
	data    string        // "" for a ping
	Choices []struct {
		Index        int
		Text         *string
		FinishReason *string `json:"finish_reason"`
		Delta        struct{ Content *string }
	}
	Usage    *usage
	Timings  *timings
	Progress *progress `json:"prompt_progress"`
	Error    json.RawMessage
}

// text returns the content of the first choice.
func (e event) text() string {
	if len(e.Choices) == 0 {
		return ""
	}
	switch c := e.Choices[0]; {
	case c.Text != nil:
		return *c.Text
	case c.Delta.Content != nil:
		return *c.Delta.Content
	}
	return ""
}

// readStream reads events until the body ends; err is nil when it ended properly. each is called with every event.
func readStream(start time.Time, body io.Reader, each ...func(event)) (events []event, err error) {
	r := bufio.NewReader(body)
	for {
		line, err := r.ReadString('\n')
		if err == io.EOF {
			return events, nil
		}
		if err != nil {
			return events, err
		}
		line = strings.TrimSuffix(line, "\n")
		e := event{at: time.Since(start)}
		switch {
		case line == "":
			continue
		case strings.HasPrefix(line, "data: "):
			e.data = line[len("data: "):]
			if e.data != "[DONE]" {
				if err := json.Unmarshal([]byte(e.data), &e); err != nil {
					return events, err
				}
			}
		}
		events = append(events, e)
		for _, f := range each {
			f(e)
		}
	}
}

// stream posts body and reads the whole stream.
func (c client) stream(t *testing.T, path, body string) ([]event, error) {
	t.Helper()
	start := time.Now()
	resp, err := c.post(t.Context(), path, body)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return readStream(start, resp.Body)
}

// whole posts body and returns status and answer.
func (c client) whole(t *testing.T, path, body string) (int, []byte) {
	t.Helper()
	resp, err := c.post(t.Context(), path, body)
	if err != nil {
		t.Fatalf("POST %s: %v", path, err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("POST %s: read: %v", path, err)
	}
	return resp.StatusCode, b
}

func texts(events []event) string {
	var b strings.Builder
	for _, e := range events {
		b.WriteString(e.text())
	}
	return b.String()
}

func done(events []event) bool {
	return len(events) > 0 && events[len(events)-1].data == "[DONE]"
}

func finishReason(events []event) string {
	for _, e := range events {
		if len(e.Choices) > 0 && e.Choices[0].FinishReason != nil {
			return *e.Choices[0].FinishReason
		}
	}
	return ""
}

// eventually polls on real time.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.NewTimer(10 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("still not: %s", what)
		}
	}
}

// near reports whether two times agree but for rounding.
func near(got, want time.Duration) bool { return (got - want).Abs() <= time.Millisecond }

// noLeaks fails when goroutines of this package or of net/http outlive the test's phone.
func noLeaks(t *testing.T) {
	t.Helper()
	eventually(t, "goroutines gone", func() bool {
		buf := make([]byte, 1<<20)
		stacks := buf[:runtime.Stack(buf, true)]
		for g := range bytes.SplitSeq(stacks, []byte("\n\n")) {
			if bytes.Contains(g, []byte("fakephone.(*")) && !bytes.Contains(g, []byte("testing.tRunner")) {
				return false
			}
		}
		return true
	})
}

// rawConn opens a TLS connection to the phone and sends text.
func rawConn(t *testing.T, p *Phone, text string) net.Conn {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(p.CertPEM())
	addr := strings.TrimPrefix(p.URL(), "https://")
	conn, err := (&tls.Dialer{Config: &tls.Config{RootCAs: roots}}).DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	return conn
}

// httpClient connects to a listener in memory.
func httpClient(l *MemListener) *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: l.DialContext, DisableCompression: true, DisableKeepAlives: true}}
}

// keyed sends the key with every request.
func (c client) keyed(key string) client {
	base := c.Transport
	return client{&http.Client{Transport: withKey{key, base}}, c.url}
}

type withKey struct {
	key  string
	base http.RoundTripper
}

func (w withKey) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+w.key)
	return w.base.RoundTrip(r)
}

// pass lets a bubble's time pass.
func pass(d time.Duration) { <-time.After(d) }
