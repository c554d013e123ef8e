package health

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sony/gobreaker/v2"

	"phonebank/balancer"
)

// ErrTripped means this process does not use the replica just now. Another replica may serve the request; it is no failure of the phone.
var ErrTripped = errors.New("phone is resting after failures seen here")

// ErrNeutral marks an end that says nothing about the phone. A context.Canceled says nothing either.
var ErrNeutral = errors.New("no evidence")

// BreakersConfig configures the local trip. The zero value means the defaults.
type BreakersConfig struct {
	Failures int           // failures in a row that trip [5]
	Rest     time.Duration // until one request may try again [10s]
}

// Breakers is the local trip of every replica: after a row of failures seen by this process it keeps the process away for a rest, then lets
// one request try. It adds little to the shared state and on purpose: it acts within one attempt, where the shared state takes a snapshot
// to spread; and it covers the phone that only this gateway cannot reach. One breaker serves all paths to a replica. Safe for concurrent use.
type Breakers struct {
	cfg BreakersConfig

	mu  sync.Mutex
	all map[balancer.ReplicaID]*gobreaker.TwoStepCircuitBreaker[struct{}] // guarded by mu
}

// NewBreakers returns breakers that are all closed.
func NewBreakers(cfg BreakersConfig) *Breakers {
	if cfg.Failures <= 0 {
		cfg.Failures = 5
	}
	if cfg.Rest <= 0 {
		cfg.Rest = 10 * time.Second
	}
	return &Breakers{cfg: cfg, all: make(map[balancer.ReplicaID]*gobreaker.TwoStepCircuitBreaker[struct{}])}
}

// Done tells a breaker how an attempt ended: nil is a success; context.Canceled and ErrNeutral count for nothing; anything else is a failure.
// It reports whether this failure has tripped the breaker: report Tripped then. Only the first call counts.
type Done func(failure error) (tripped bool)

// Allow asks for leave to use a replica, after its lease was granted. Done must be called whatever happens, else a half-open breaker waits
// for it for ever. The only error is ErrTripped.
func (b *Breakers) Allow(id balancer.ReplicaID) (Done, error) {
	cb := b.of(id)
	report, err := cb.Allow()
	if err != nil {
		return nil, ErrTripped // whichever of gobreaker's texts it was
	}
	var once sync.Once
	return func(failure error) (tripped bool) {
		once.Do(func() {
			before := cb.State()
			report(failure)
			tripped = before != gobreaker.StateOpen && cb.State() == gobreaker.StateOpen
		})
		return tripped
	}, nil
}

// Resting reports whether Allow would refuse now, or would let only one request through. For the choice, without side effects.
func (b *Breakers) Resting(id balancer.ReplicaID) bool {
	b.mu.Lock()
	cb := b.all[id]
	b.mu.Unlock()
	return cb != nil && cb.State() != gobreaker.StateClosed
}

// Retain forgets every replica for which keep is false: those that have left.
func (b *Breakers) Retain(keep func(balancer.ReplicaID) bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for id := range b.all {
		if !keep(id) {
			delete(b.all, id)
		}
	}
}

func (b *Breakers) of(id balancer.ReplicaID) *gobreaker.TwoStepCircuitBreaker[struct{}] {
	b.mu.Lock()
	defer b.mu.Unlock()
	cb := b.all[id]
	if cb == nil {
		cb = b.newBreaker(string(id))
		b.all[id] = cb
	}
	return cb
}

func (b *Breakers) newBreaker(name string) *gobreaker.TwoStepCircuitBreaker[struct{}] {
	return gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		Name:        name,
		MaxRequests: 1,
		// No interval: requests take minutes, and those that outlive a generation of counts are not counted at all.
		Interval:    0,
		Timeout:     b.cfg.Rest,
		ReadyToTrip: func(c gobreaker.Counts) bool { return int(c.ConsecutiveFailures) >= b.cfg.Failures },
		IsExcluded:  func(err error) bool { return errors.Is(err, context.Canceled) || errors.Is(err, ErrNeutral) },
	})
}
