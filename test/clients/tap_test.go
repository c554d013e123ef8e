package clients_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"
)

// A call is one exchange as it passed the tap.
type call struct {
	auth     string
	status   int
	at       time.Time
	comments int // lines of the stream that an SDK does not show
}

// tap is a proxy in front of the gateway that passes everything on at once and
// counts what SDKs hide.
type tap struct {
	url string

	mu    sync.Mutex // guards calls
	calls []*call
}

func newTap(t *testing.T, gateway string) *tap {
	t.Helper()
	target, err := url.Parse(gateway)
	if err != nil {
		t.Fatal(err)
	}
	p := &tap{}
	server := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite:        func(r *httputil.ProxyRequest) { r.SetURL(target) },
		FlushInterval:  -1,
		ModifyResponse: p.note,
	})
	t.Cleanup(server.Close)
	p.url = server.URL
	return p
}

func (p *tap) note(r *http.Response) error {
	c := &call{auth: r.Request.Header.Get("Authorization"), status: r.StatusCode, at: time.Now()}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls = append(p.calls, c)
	r.Body = &commentCounter{ReadCloser: r.Body, tap: p, call: c, atStart: true}
	return nil
}

// of returns the calls made with key, in order.
func (p *tap) of(key string) []call {
	p.mu.Lock()
	defer p.mu.Unlock()
	var calls []call
	for _, c := range p.calls {
		if strings.TrimPrefix(c.auth, "Bearer ") == key {
			calls = append(calls, *c)
		}
	}
	return calls
}

// commentCounter counts lines that start with a colon.
type commentCounter struct {
	io.ReadCloser
	tap     *tap
	call    *call
	atStart bool // of a line
}

func (c *commentCounter) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	comments := bytes.Count(p[:n], []byte("\n:"))
	if c.atStart && n > 0 && p[0] == ':' {
		comments++
	}
	if n > 0 {
		c.atStart = p[n-1] == '\n'
	}
	c.tap.mu.Lock()
	c.call.comments += comments
	c.tap.mu.Unlock()
	return n, err
}
