package health

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"phonebank/balancer"
)

// ErrContended means other gateways changed the record as often as this one tried to. The evidence is lost; there will be more.
var ErrContended = errors.New("health record contended")

// Reporter commits evidence. It remembers when it last wrote good news of a phone, so that a phone at work costs the shared state one write
// per Config.Fresh, not one per request. Safe for concurrent use.
type Reporter struct {
	store Store
	cfg   Config
	now   func() time.Time
	log   *slog.Logger

	mu   sync.Mutex
	seen map[balancer.ReplicaID]sighting // a cache; guarded by mu
}

// sighting is what this process last knew of a phone.
type sighting struct {
	generation int64
	settled    bool      // good news would change nothing but LastGood
	good       time.Time // last good news, written or not
	written    time.Time // the LastGood known to be written
}

// NewReporter returns a reporter. Now is the clock of the shared state; nil is time.Now.
func NewReporter(store Store, cfg Config, now func() time.Time, log *slog.Logger) *Reporter {
	if now == nil {
		now = time.Now
	}
	return &Reporter{store: store, cfg: cfg.withDefaults(), now: now, log: log, seen: make(map[balancer.ReplicaID]sighting)}
}

// Report applies what an attempt of that generation saw. Evidence without a time is dated now; evidence of another generation than the
// current one, and of a replica that has left, is dropped. It outlives ctx, since an attempt often ends with it. The error is
// balancer.ErrUnavailable (wrapped) or ErrContended; callers need not act on it.
func (p *Reporter) Report(ctx context.Context, id balancer.ReplicaID, generation int64, e Evidence) error {
	if e.Kind == None {
		return nil
	}
	if e.At.IsZero() {
		e.At = p.now()
	}
	if e.good() && p.settledGood(id, generation, e.At) {
		return nil
	}
	return p.apply(context.WithoutCancel(ctx), id, e, func(r Record) bool { return r.Generation == generation })
}

// settledGood notes good news and reports whether writing it can be spared.
func (p *Reporter) settledGood(id balancer.ReplicaID, generation int64, at time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	s, ok := p.seen[id]
	if !ok || s.generation != generation {
		return false
	}
	if at.After(s.good) {
		s.good = at
		p.seen[id] = s
	}
	return s.settled && at.Sub(s.written) < p.cfg.Fresh
}

// lastGood is when this process last had good news of id, written or not.
func (p *Reporter) lastGood(id balancer.ReplicaID, generation int64) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.seen[id]; s.generation == generation {
		return s.good
	}
	return time.Time{}
}

// apply reads, decides and commits, again if somebody else was faster. Records that current refuses are left alone.
func (p *Reporter) apply(ctx context.Context, id balancer.ReplicaID, e Evidence, current func(Record) bool) error {
	const attempts = 5
	for range attempts {
		r, ok, err := p.store.Health(ctx, id)
		if err != nil {
			return fmt.Errorf("read health of %s: %w", id, err)
		}
		if !ok || !current(r) {
			return nil
		}
		next := Next(r, e, p.cfg)
		if !p.material(r, next) {
			p.remember(id, r, e)
			return nil
		}
		done, err := p.store.SetHealth(ctx, id, next)
		if err != nil {
			return fmt.Errorf("write health of %s: %w", id, err)
		}
		if done {
			p.remember(id, next, e)
			p.announce(id, r, next)
			return nil
		}
	}
	return fmt.Errorf("health of %s: %w", id, ErrContended)
}

// material reports whether next is worth a write.
func (p *Reporter) material(r, next Record) bool {
	fresh := next.LastGood.Sub(r.LastGood) >= p.cfg.Fresh
	next.LastGood = r.LastGood
	return fresh || next != r
}

func (p *Reporter) remember(id balancer.ReplicaID, r Record, e Evidence) {
	const most = 1 << 14
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.seen) >= most {
		clear(p.seen) // replicas that left long ago; the others cost one read each
	}
	s := p.seen[id]
	if s.generation != r.Generation {
		s = sighting{generation: r.Generation}
	}
	s.settled = r.State == balancer.Ready && r.Misses == 0 && r.Failures == 0 && r.Busy == 0
	s.written = r.LastGood
	if e.good() && e.At.After(s.good) {
		s.good = e.At
	}
	p.seen[id] = s
}

// announce logs a change of state: Warn when the phone gets less work than before.
func (p *Reporter) announce(id balancer.ReplicaID, before, after Record) {
	if before.State == after.State {
		return
	}
	level := slog.LevelInfo
	if after.State == balancer.Suspect && before.State == balancer.Ready || after.State == balancer.Down {
		level = slog.LevelWarn
	}
	p.log.Log(context.Background(), level, "phone changed state",
		"replica", string(id), "state", after.State.String(), "before", before.State.String(), "reason", after.Reason, "failures", after.Failures)
}
