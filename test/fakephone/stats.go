package fakephone

import (
	"net/http"
	"slices"
	"sync"
)

// maxKeptBody bounds the body kept for [Stats.LastBody].
const maxKeptBody = 256 << 10

// Stats is what a phone has seen since [New], across restarts. Slots are counted one by one: a request with n=3 works on three.
type Stats struct {
	// Requests counts completion requests whose body was read; Completed those answered to the end (errors of the caller included),
	// Cancelled those whose client left before, counted when the phone notices, which can be before their slot is free.
	Requests  int `json:"requests"`
	Completed int `json:"completed"`
	Cancelled int `json:"cancelled"`
	// Active slots are working; PeakActive is their largest number.
	Active     int `json:"active"`
	PeakActive int `json:"peak_active"`
	// PeakLive is the largest number of slots working at once for clients that were still connected.
	PeakLive int `json:"peak_live"`
	// Queued requests wait for a slot; PeakQueued is their largest number.
	Queued     int `json:"queued"`
	PeakQueued int `json:"peak_queued"`
	// Waited counts requests that had to wait for a slot. WaitedLive counts those of them that waited although the client of every
	// slot was connected: a real over-commit. Both are counted when the wait ends.
	Waited     int `json:"waited"`
	WaitedLive int `json:"waited_live"`
	// Probes counts GETs: health, models, props, slots, metrics.
	Probes int `json:"probes"`
	// Struck counts how often a fault did its work; a refused connection and a slowed step are not counted.
	Struck int `json:"struck"`
	// LastHeader and LastBody (at most 256 KiB of it) are those of the latest completion request.
	LastHeader http.Header `json:"-"`
	LastBody   []byte      `json:"-"`
}

// counters is the Stats of a phone behind a lock.
type counters struct {
	mu sync.Mutex // guards s
	s  Stats
}

func (c *counters) snapshot() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.s
	s.LastHeader = s.LastHeader.Clone()
	s.LastBody = slices.Clone(s.LastBody)
	return s
}

func (c *counters) add(update func(*Stats)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	update(&c.s)
}

func (c *counters) request(h http.Header, body []byte) {
	body = body[:min(len(body), maxKeptBody)]
	c.add(func(s *Stats) { s.Requests, s.LastHeader, s.LastBody = s.Requests+1, h.Clone(), body })
}

func (c *counters) cancelled() { c.add(func(s *Stats) { s.Cancelled++ }) }

func (c *counters) queued(n int) {
	c.add(func(s *Stats) { s.Queued, s.PeakQueued = n, max(s.PeakQueued, n) })
}

func (c *counters) waited(live bool) {
	c.add(func(s *Stats) {
		s.Waited++
		if live {
			s.WaitedLive++
		}
	})
}

func (c *counters) working(busy, live int) {
	c.add(func(s *Stats) {
		s.Active, s.PeakActive, s.PeakLive = busy, max(s.PeakActive, busy), max(s.PeakLive, live)
	})
}
