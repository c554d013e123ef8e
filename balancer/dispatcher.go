package balancer

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"
)

// Errors of a claim that got no phone.
var (
	ErrPatience  = errors.New("no phone became free in time")
	ErrNoReplica = errors.New("no phone serves this model now")
	ErrHopeless  = errors.New("no phone of this model can serve a request of this size in its remaining time")
	ErrDraining  = errors.New("gateway is stopping")
)

// Config of a Dispatcher. Zero durations mean their defaults, which suit a fleet that lives at normal speed.
type Config struct {
	Owner     Owner
	Rules     Rules
	Bounds    Bounds
	Beat      time.Duration // heartbeat of this gateway's leases [4s]; the state lets them die after three
	Turn      time.Duration // tick, poll of assignments [1s]
	Refresh   time.Duration // snapshot [2s]
	EmptyWait time.Duration // how long callers wait while their pool has no usable phone at all [10s]

	Avoid func(ReplicaID) bool // replicas only this gateway has trouble with; nil for none
}

func (c Config) withDefaults() Config {
	def := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	def(&c.Beat, 4*time.Second)
	def(&c.Turn, time.Second)
	def(&c.Refresh, 2*time.Second)
	def(&c.EmptyWait, 10*time.Second)
	return c
}

// Dispatcher is the waiting room of one gateway. Its methods may be called concurrently; Run owns its goroutines.
type Dispatcher struct {
	store Store
	cfg   Config
	log   *slog.Logger

	mu     sync.Mutex
	fleet  *Fleet
	readAt time.Time         // local time when fleet's snapshot was read; pairs with its At
	claims map[string]*Claim // by ticket, of this gateway
	kicks  map[string]*Heads // pools to match; nil heads are fetched

	kicked chan struct{} // 1-buffered: kicks is not empty
	stale  chan struct{} // 1-buffered: read a snapshot soon

	lost []string // tickets to restore; of beat's goroutine only
}

// NewDispatcher returns a dispatcher that knows no fleet until Refresh or Run.
func NewDispatcher(store Store, cfg Config, log *slog.Logger) *Dispatcher {
	cfg = cfg.withDefaults()
	now := time.Now()
	return &Dispatcher{
		store:  store,
		cfg:    cfg,
		log:    log,
		fleet:  NewFleet(cfg.Rules, NewSnapshot(now, nil, nil)),
		readAt: now,
		claims: make(map[string]*Claim),
		kicks:  make(map[string]*Heads),
		kicked: make(chan struct{}, 1),
		stale:  make(chan struct{}, 1),
	}
}

// Owner is the name this gateway's leases carry.
func (d *Dispatcher) Owner() Owner { return d.cfg.Owner }

// Now is the time by the clock of the shared state, as well as this gateway knows it.
func (d *Dispatcher) Now() time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.nowLocked()
}

func (d *Dispatcher) nowLocked() time.Time { return d.fleet.Snapshot().At.Add(time.Since(d.readAt)) }

// Snapshot is the fleet as last read.
func (d *Dispatcher) Snapshot() *Snapshot {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.fleet.Snapshot()
}

// Rates returns the speeds the cost model uses for id.
func (d *Dispatcher) Rates(id ReplicaID) (Rates, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.fleet.Rates(id)
}

// ComesFree estimates when a ticket like t would find a phone if it came now; zero when nobody knows.
func (d *Dispatcher) ComesFree(t Ticket) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.fleet.ComesFree(&t, d.nowLocked())
}

// Load counts this gateway's own tickets.
func (d *Dispatcher) Load() (waiting, running int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.claims {
		if c.lease == nil {
			waiting++
		} else {
			running++
		}
	}
	return waiting, running
}

// Refresh reads a new snapshot.
func (d *Dispatcher) Refresh(ctx context.Context) error {
	s, err := d.store.Snapshot(ctx)
	if err != nil {
		return err
	}
	fleet := NewFleet(d.cfg.Rules, s)
	fleet.Avoid = d.cfg.Avoid
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fleet, d.readAt = fleet, time.Now()
	return nil
}

// SoonStale asks Run for a new snapshot soon, after something changed that the caller knows of.
func (d *Dispatcher) SoonStale() { signal(d.stale) }

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
