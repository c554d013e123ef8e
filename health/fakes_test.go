package health

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"phonebank/balancer"
)

// memoryStore is a Store with the contract's compare-and-set, and a count of what it was asked.
type memoryStore struct {
	mu            sync.Mutex
	records       map[balancer.ReplicaID]Record
	due           map[balancer.ReplicaID]time.Time
	down          bool
	reads, writes int
	meddle        func(*Record) // called between a read and the next write, once
}

func newMemoryStore(ids ...balancer.ReplicaID) *memoryStore {
	s := &memoryStore{records: make(map[balancer.ReplicaID]Record), due: make(map[balancer.ReplicaID]time.Time)}
	for _, id := range ids {
		s.records[id] = Record{Generation: 1, State: balancer.Joining, Since: time.Now()}
		s.due[id] = time.Now()
	}
	return s
}

func (s *memoryStore) Due(_ context.Context, interval time.Duration, limit int) ([]balancer.ReplicaID, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return nil, balancer.ErrUnavailable
	}
	var ids []balancer.ReplicaID
	for id, at := range s.due {
		if len(ids) < limit && !at.After(time.Now()) {
			ids = append(ids, id)
			s.due[id] = time.Now().Add(interval)
		}
	}
	return ids, nil
}

func (s *memoryStore) Health(_ context.Context, id balancer.ReplicaID) (Record, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return Record{}, false, balancer.ErrUnavailable
	}
	s.reads++
	r, ok := s.records[id]
	if s.meddle != nil {
		changed := r
		s.meddle(&changed)
		changed.Version++
		s.records[id], s.meddle = changed, nil
	}
	return r, ok, nil
}

func (s *memoryStore) SetHealth(_ context.Context, id balancer.ReplicaID, r Record) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return false, balancer.ErrUnavailable
	}
	now, ok := s.records[id]
	if !ok || now.Generation != r.Generation || now.Version != r.Version {
		return false, nil
	}
	s.writes++
	r.Version++
	s.records[id] = r
	return true, nil
}

func (s *memoryStore) get(id balancer.ReplicaID) Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.records[id]
}

func (s *memoryStore) set(id balancer.ReplicaID, change func(*Record)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.records[id]
	change(&r)
	s.records[id] = r
}

// answerer is how a phone answers.
type answerer func(*http.Request) (*http.Response, error)

// phone answers probes as the test says. It is an http.RoundTripper.
type phone struct {
	mu     sync.Mutex
	answer answerer
	asked  []string // paths
	keys   []string // Authorization as received
}

func (p *phone) RoundTrip(r *http.Request) (*http.Response, error) {
	p.mu.Lock()
	p.asked = append(p.asked, r.URL.Path)
	p.keys = append(p.keys, r.Header.Get("Authorization"))
	answer := p.answer
	p.mu.Unlock()
	return answer(r)
}

func (p *phone) says(answer answerer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answer = answer
}

func (p *phone) paths() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.asked...)
}

// status answers every path alike.
func status(code int, body string, header ...string) answerer {
	return func(*http.Request) (*http.Response, error) {
		h := make(http.Header)
		for i := 0; i+1 < len(header); i += 2 {
			h.Set(header[i], header[i+1])
		}
		return &http.Response{StatusCode: code, Header: h, Body: io.NopCloser(strings.NewReader(body))}, nil
	}
}

// hang answers nothing until the request's context ends.
func hang(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// recorded answers with what a real llama-server (b10587) sent, by path.
func recorded(t *testing.T, byPath map[string]string) answerer {
	t.Helper()
	raw := make(map[string][]byte)
	for path, name := range byPath {
		b, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		raw[path] = b
	}
	return func(r *http.Request) (*http.Response, error) {
		b, ok := raw[r.URL.Path]
		if !ok {
			return status(http.StatusNotFound, `{"error":{"code":404,"message":"File Not Found","type":"not_found_error"}}`)(r)
		}
		return http.ReadResponse(bufio.NewReader(bytes.NewReader(b)), r)
	}
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// logLines collects a logger's lines.
type logLines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logLines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *logLines) count(part string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.buf.String(), part)
}
