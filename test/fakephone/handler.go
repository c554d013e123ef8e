package fakephone

import (
	"crypto/subtle"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	jsonType8 = "application/json; charset=utf-8"
	// maxBody is llama-server's limit.
	maxBody = 100 << 20
)

// serveHTTP takes a request through network, faults, loading, key and routes, in llama-server's order.
func (p *Phone) serveHTTP(w http.ResponseWriter, r *http.Request) {
	g := p.enter()
	if g == nil {
		abort()
	}
	defer g.work.Done()
	if _, err := p.faults.waitThaw(g.dead); err != nil {
		abort()
	}
	if g.sleep(r, p.delay()) != nil {
		abort()
	}
	p.commonHeaders(w, r)
	probe := r.Method != http.MethodPost
	var body []byte
	if probe {
		p.stats.add(func(s *Stats) { s.Probes++ })
	} else {
		var ok bool
		if body, ok = readBody(w, r); !ok {
			return
		}
		if completion(r.URL.Path) {
			p.stats.request(r.Header, body)
		}
	}
	if fault, ok := p.faults.strike(func(f Fault) bool { return slices.Contains(insteadKinds(), f.Kind) && f.covers(probe) }); ok {
		g.misbehave(w, r, fault)
		return
	}
	if time.Since(g.started) < p.cfg.scaled(p.cfg.Load) {
		writeError(w, errLoading())
		return
	}
	if !slices.Contains([]string{"/health", "/v1/health", "/"}, r.URL.Path) && !p.authorized(r) {
		writeError(w, errKey())
		return
	}
	g.route(p, w, r, body)
}

func completion(path string) bool {
	return path == "/v1/chat/completions" || path == "/v1/completions"
}

func (g *generation) route(p *Phone, w http.ResponseWriter, r *http.Request, body []byte) {
	switch r.Method + " " + r.URL.Path {
	case "POST /v1/chat/completions", "POST /v1/completions":
		g.complete(p, w, r, body)
	case "GET /health", "GET /v1/health", "HEAD /health", "HEAD /v1/health":
		writeJSON(w, http.StatusOK, []byte(`{"status":"ok"}`))
	case "GET /v1/models", "GET /models":
		writeJSON(w, http.StatusOK, modelsBody(p.cfg))
	case "GET /props":
		writeJSON(w, http.StatusOK, propsBody(p.cfg))
	case "GET /slots":
		g.slots(w, r)
	case "GET /metrics":
		g.metrics(w)
	case "POST /v1/embeddings":
		writeError(w, errUnsupported("This server does not support embeddings. Start it with `--embeddings`"))
	default:
		writeError(w, errNotFound())
	}
}

// complete answers a chat or text completion.
func (g *generation) complete(p *Phone, w http.ResponseWriter, r *http.Request, body []byte) {
	req, bad := parseRequest(isChat(r.URL.Path), body, p.cfg)
	if bad != nil {
		p.stats.add(func(s *Stats) { s.Completed++ })
		writeError(w, bad)
		return
	}
	if err := p.work(g, w, r, req); err != nil && !errors.Is(err, errStruck) {
		abort() // also when the client has left: it may still be reading and must not see a proper end
	}
}

// misbehave does what a fault instead of an answer says.
func (g *generation) misbehave(w http.ResponseWriter, r *http.Request, fault Fault) {
	switch fault.Kind {
	case HangHeaders:
		g.hold(r)
		abort()
	case ResetHeaders:
		resetConn(r)
		return
	case EOFHeaders:
		abort()
	default:
	}
	resp, _ := fault.response()
	if fault.RetryAfter != "" {
		w.Header().Set("Retry-After", fault.RetryAfter)
	}
	write(w, resp.status, resp.contentType, []byte(resp.body))
}

// hold says nothing until the client leaves or the process is killed.
func (g *generation) hold(r *http.Request) {
	select {
	case <-r.Context().Done():
	case <-g.dead:
	}
}

// sleep waits; it returns an error when the client left or the process was killed meanwhile.
func (g *generation) sleep(r *http.Request, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-r.Context().Done():
		return errGone
	case <-g.dead:
		return errKilled
	}
}

// abort closes the connection without an answer, or without the end of one.
func abort() {
	panic(http.ErrAbortHandler) // net/http's documented way; it is recovered there and not logged
}

// resetConn resets the connection of a request.
func resetConn(r *http.Request) {
	if c := connOf(r); c != nil {
		c.reset()
		return
	}
	abort()
}

// commonHeaders sets what is on every answer, and ends a connection after its 100th.
func (p *Phone) commonHeaders(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h["Date"] = nil // llama-server sends none
	h.Set("Server", "llama.cpp")
	h.Set("Access-Control-Allow-Origin", r.Header.Get("Origin"))
	c := connOf(r)
	if c != nil {
		c.served++
	}
	if c != nil && c.served >= maxPerConn {
		h.Set("Connection", "close")
		return
	}
	h.Set("Keep-Alive", "timeout=5, max="+strconv.Itoa(maxPerConn))
}

// authorized looks at X-Api-Key only when there is no Authorization, as llama-server does.
func (p *Phone) authorized(r *http.Request) bool {
	if p.cfg.Key == "" {
		return true
	}
	key := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	if key == "" {
		key = r.Header.Get("X-Api-Key")
	}
	return subtle.ConstantTimeCompare([]byte(key), []byte(p.cfg.Key)) == 1
}

// readBody reads the whole body; it answers itself and reports false when it cannot.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, bool) {
	if r.Header.Get("Content-Encoding") != "" {
		write(w, http.StatusUnsupportedMediaType, "", nil)
		return nil, false
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err == nil {
		return body, true
	}
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		write(w, http.StatusRequestEntityTooLarge, "", nil)
	} else {
		write(w, http.StatusBadRequest, "", nil)
	}
	return nil, false
}

func writeError(w http.ResponseWriter, e *apiError) { write(w, e.status, jsonType8, e.body()) }

func writeJSON(w http.ResponseWriter, status int, body []byte) { write(w, status, jsonType8, body) }

// write sends a whole answer. Every 4xx and 5xx closes the connection.
func write(w http.ResponseWriter, status int, contentType string, body []byte) {
	h := w.Header()
	if contentType == "" {
		h["Content-Type"] = nil
	} else {
		h.Set("Content-Type", contentType)
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	if status >= http.StatusBadRequest {
		h.Set("Connection", "close")
		h.Del("Keep-Alive")
	}
	w.WriteHeader(status)
	_, _ = w.Write(body) // a client that has left does not want it
}
