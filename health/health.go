package health

import (
	"context"
	"time"

	"phonebank/balancer"
)

// Record is the shared health of one replica.
type Record struct {
	Generation int64
	Version    int64 // grows with every change: the compare-and-set token
	State      balancer.State
	Reason     string // for an operator; empty when ready
	Since      time.Time
	LeaveAlone time.Time // no work before this, because the phone said so
	Misses     int       // probes in a row without an answer
	Failures   int       // attempts in a row that counted against the phone
	Busy       int       // times in a row that it was busy and did not say for how long
	LastGood   time.Time // last success of a probe or an attempt
}

// Store keeps the shared records. Methods may be called concurrently, apply their own short deadline and return balancer.ErrUnavailable
// when the state cannot be reached.
type Store interface {
	// Due returns replicas whose probe is due and books their next one, so that no other gateway probes them meanwhile.
	Due(ctx context.Context, interval time.Duration, limit int) ([]balancer.ReplicaID, error)
	// Health reads one record; ok is false for an unknown replica.
	Health(ctx context.Context, id balancer.ReplicaID) (r Record, ok bool, err error)
	// SetHealth writes r if the record still has r.Generation and r.Version (it stores Version+1), and tells whether it did.
	// A change of State or LeaveAlone is announced to all gateways.
	SetHealth(ctx context.Context, id balancer.ReplicaID, r Record) (bool, error)
}

// Registry keeps the replica table. The same contract as Store.
type Registry interface {
	// Join adds replicas or refreshes them. An unchanged one is left as it is; a changed one is a new generation: its leases are void
	// and it starts as joining, with its probe due at once.
	Join(ctx context.Context, replicas []balancer.Replica) error
	// Leave removes a replica; its leases are void.
	Leave(ctx context.Context, id balancer.ReplicaID) error
}
