package health

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"phonebank/balancer"
)

// Target is how to ask one phone.
type Target struct {
	URL    string      // base, with or without a trailing /v1
	Header http.Header // sent with what needs a key: Authorization and the like; not changed
	Engine balancer.Engine
	Model  string       // the name the phone is expected to use; empty: any
	Client *http.Client // its transport bounds connect and handshake; redirects are not followed whatever it says

	// WrongIdentity tells an error of Client that means "the phone is not who it should be", such as a pin that does not match, from one that
	// means "nobody is there". Nil: only failed certificate verification does.
	WrongIdentity func(error) bool
}

// ProberConfig configures a Prober. The zero value of a field means its default.
type ProberConfig struct {
	Interval    time.Duration // between two probes of one phone, over all gateways [5s]
	Timeout     time.Duration // of one probe, both its questions together [4s]
	Concurrency int           // probes in flight [64]
	DetailEvery int           // one probe in so many of a ready phone also asks what it is [12]; others always do

	// Depth is the number of slots of a phone that are at work, as the fleet knows it; nil when nobody knows. A phone at work that was heard
	// of within Patience [30s] is not blamed for a probe that times out: its clocks are the relay's affair.
	Depth    func(balancer.ReplicaID) int
	Patience time.Duration

	// Facts is called with what a phone says about itself. It must not block. Nil: nobody wants to know.
	Facts func(balancer.ReplicaID, Facts)
}

func (c ProberConfig) withDefaults() ProberConfig {
	def := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	def(&c.Interval, 5*time.Second)
	def(&c.Timeout, 4*time.Second)
	def(&c.Patience, 30*time.Second)
	if c.Concurrency <= 0 {
		c.Concurrency = 64
	}
	if c.DetailEvery <= 0 {
		c.DetailEvery = 12
	}
	if c.Depth == nil {
		c.Depth = func(balancer.ReplicaID) int { return 0 }
	}
	if c.Facts == nil {
		c.Facts = func(balancer.ReplicaID, Facts) {}
	}
	return c
}

// Faster returns the config, with its defaults filled in, for a fleet that lives factor times faster than life. The timeout shrinks less
// than the rest: the network does not live faster.
func (c ProberConfig) Faster(factor float64) ProberConfig {
	c = c.withDefaults()
	if factor <= 0 {
		return c
	}
	shrink := func(d, least time.Duration) time.Duration {
		return max(time.Duration(float64(d)/factor), min(d, least))
	}
	c.Interval = shrink(c.Interval, 100*time.Millisecond)
	c.Timeout = shrink(c.Timeout, time.Second)
	c.Patience = shrink(c.Patience, time.Second)
	return c
}

// Prober asks phones how they are: each once an interval, by whichever gateway's turn it is (Store.Due). Never a completion.
type Prober struct {
	reporter *Reporter
	targets  func(balancer.ReplicaID) (Target, bool)
	cfg      ProberConfig
	log      *slog.Logger

	mu     sync.Mutex
	warned map[balancer.ReplicaID]string // the wrong model name last complained of; guarded by mu
}

// NewProber returns a prober that commits through reporter. Targets returns false for a replica this gateway does not know how to reach.
func NewProber(reporter *Reporter, targets func(balancer.ReplicaID) (Target, bool), cfg ProberConfig, log *slog.Logger) *Prober {
	return &Prober{reporter: reporter, targets: targets, cfg: cfg.withDefaults(), log: log, warned: make(map[balancer.ReplicaID]string)}
}

// Run probes until ctx ends, then waits for the probes in flight, which end with it. It returns nil, also when the shared state was away:
// then nothing is due.
func (p *Prober) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	busy := make(chan struct{}, p.cfg.Concurrency)
	ticker := time.NewTicker(max(p.cfg.Interval/10, 10*time.Millisecond))
	defer ticker.Stop()
	for {
		for p.startDue(ctx, &wg, busy) {
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// startDue starts the probes that are due, and reports whether there may be more. It books only as many as can start now: one that had to
// wait here would be late for everybody.
func (p *Prober) startDue(ctx context.Context, wg *sync.WaitGroup, busy chan struct{}) (more bool) {
	limit := cap(busy) - len(busy)
	if limit == 0 || ctx.Err() != nil {
		return false
	}
	due, err := p.reporter.store.Due(ctx, p.cfg.Interval, limit)
	if err != nil {
		p.log.Debug("probes due", "error", err)
		return false
	}
	for _, id := range due {
		busy <- struct{}{}
		wg.Go(func() {
			defer func() { <-busy }()
			p.probe(ctx, id)
		})
	}
	return len(due) == limit
}

// probe is one turn of one phone.
func (p *Prober) probe(ctx context.Context, id balancer.ReplicaID) {
	target, ok := p.targets(id)
	if !ok {
		return
	}
	r, ok, err := p.reporter.store.Health(ctx, id)
	if err != nil || !ok {
		return
	}
	sent := p.reporter.now()
	if p.proved(id, r, sent) {
		return
	}
	detail := r.State != balancer.Ready || rand.IntN(p.cfg.DetailEvery) == 0
	probing, cancel := context.WithTimeout(ctx, p.cfg.Timeout)
	v := ask(probing, target, detail)
	cancel()
	if ctx.Err() != nil {
		return // we are stopping; it is not the phone's silence
	}
	if v.facts != nil {
		p.cfg.Facts(id, *v.facts)
		p.checkModel(id, target, *v.facts)
	}
	if v.timedOut && p.working(id, r, sent) {
		return
	}
	e := Evidence{Kind: v.kind, At: sent, LeaveAlone: v.leaveAlone, Reason: v.reason}
	if e.Kind == ProbeBusy && e.LeaveAlone <= 0 {
		e.LeaveAlone = 2 * p.cfg.Interval // past the next probe, so that nothing slips in between
	}
	err = p.reporter.apply(ctx, id, e, func(now Record) bool {
		// What a live request showed while the probe waited outweighs it.
		return now.Generation == r.Generation && (e.Kind != Unreachable || !p.heard(id, now, sent, p.reporter.cfg.Proof))
	})
	if err != nil && !errors.Is(err, balancer.ErrUnavailable) {
		p.log.Warn("probe result", "replica", string(id), "error", err)
	}
}

// proved reports whether live traffic has just shown that the phone is well, so that a probe would only cost it time.
func (p *Prober) proved(id balancer.ReplicaID, r Record, now time.Time) bool {
	if r.State != balancer.Ready || r.Misses > 0 {
		return false
	}
	return p.heard(id, r, now, p.reporter.cfg.Proof)
}

// working reports whether the phone is probably too deep in work to answer.
func (p *Prober) working(id balancer.ReplicaID, r Record, now time.Time) bool {
	return p.cfg.Depth(id) > 0 && p.heard(id, r, now, p.cfg.Patience)
}

// heard reports whether any gateway, or this one without having written it, had good news of the phone within d.
func (p *Prober) heard(id balancer.ReplicaID, r Record, now time.Time, d time.Duration) bool {
	return near(now, r.LastGood, d) || near(now, p.reporter.lastGood(id, r.Generation), d)
}

// checkModel warns, once for each name, of a phone that calls its model something else. It goes on serving: the name is what the phone was
// started with, and answers carry the caller's name anyway.
func (p *Prober) checkModel(id balancer.ReplicaID, t Target, f Facts) {
	const most = 1 << 14
	if f.Serves(t.Model) {
		return
	}
	name := ""
	if len(f.Models) > 0 {
		name = f.Models[0]
	}
	p.mu.Lock()
	if len(p.warned) >= most {
		clear(p.warned)
	}
	known, ok := p.warned[id]
	p.warned[id] = name
	p.mu.Unlock()
	if !ok || known != name {
		p.log.Warn("phone serves another model than configured", "replica", string(id), "want", t.Model, "got", name)
	}
}
