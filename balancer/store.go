package balancer

import (
	"context"
	"errors"
	"time"
)

// ErrUnavailable is returned (wrapped) by every method of a Store when the shared state did not answer in time or its breaker is open.
// Whether the decision was committed is then unknown, and the store's own affair: once it is reached again, a Tick ends a ticket whose
// admission got no answer, undoes an Assign or Take (the ticket waits again), and repeats a Finish. The caller has nothing to make up for.
var ErrUnavailable = errors.New("shared state unavailable")

// Owner names one run of one gateway: a new one with every start.
type Owner string

// Store is the shared state of the fleet. One method is one script is one decision. Every method applies its own short deadline (250 ms)
// below ctx, may be called concurrently, and returns ErrUnavailable when the state cannot be reached. Admission is not here: it
// decides limits and placement at once, so its contract belongs to the pipeline (gateway.Admitter).
type Store interface {
	// Assign grants one of the candidates to a queued ticket. A nil lease without error means refused: the ticket is no longer
	// queued, or no candidate was free any more. With no candidates the ticket is marked as held (it may be passed) or, with
	// hold false, as not held. When by owns the ticket the lease counts as taken at once; else the ticket's owner is notified.
	Assign(ctx context.Context, by Owner, ticket string, lease string, c []Candidate, hold bool) (*Lease, error)

	// Take confirms that the ticket's owner has received the lease. False: it was taken back, or the ticket has ended.
	Take(ctx context.Context, by Owner, ticket, lease string) (bool, error)

	// Assigned lists leases offered to the owner and not yet taken. It backs up lost notices.
	Assigned(ctx context.Context, by Owner) ([]Lease, error)

	// Finish ends a lease, and the ticket too unless f.Requeue. Repeating it is harmless.
	Finish(ctx context.Context, f Finish) (Finished, error)

	// Heads returns up to limit waiting tickets of the pool in order, and replicas with a free slot.
	Heads(ctx context.Context, model string, limit int) (Heads, error)

	// Positions returns the place of each waiting ticket in its queue, -1 for one that does not wait.
	Positions(ctx context.Context, tickets []Ticket) ([]int, error)

	// Beat keeps the owner's leases alive. Known is false when the state has lost the owner (restarted empty): call Restore for
	// every ticket still served.
	Beat(ctx context.Context, by Owner) (known bool, err error)

	// Restore puts back a ticket and its lease (nil when it waited) after the state was lost. It may exceed the slots: what runs, runs.
	Restore(ctx context.Context, by Owner, t Ticket, l *Lease) error

	// Tick is called about once a second by every gateway. It notices a gap in everybody's calls (then nothing is reaped for one
	// TTL) and, for the one caller that holds the turn, reaps, takes back and cools; Tick.Pools lists the models with waiting tickets.
	Tick(ctx context.Context, by Owner) (Tick, error)

	// Snapshot reads the fleet.
	Snapshot(ctx context.Context) (*Snapshot, error)

	// Resign removes the owner at the end of an orderly stop, when it serves nothing any more.
	Resign(ctx context.Context, by Owner) error

	// Notices delivers what other gateways publish until ctx ends, then closes the channel. Losing some is allowed.
	Notices(ctx context.Context, by Owner) <-chan Notice
}

// Finish is the end of an attempt, or of a ticket.
type Finish struct {
	By      Owner
	Ticket  string
	Lease   string        // fencing token; empty ends the ticket in whatever state it is, when By owns it (waiting, or given up after a lost reply)
	Requeue bool          // back to the queue with its old rank; else the ticket ends
	Tried   ReplicaID     // with Requeue: remember that this phone failed; empty when it may be used again
	Cooling time.Duration // the slot stays occupied that long: the phone may still be working after a cancel
	Samples []Sample      // what the attempt taught about the replica's speed
	Rank    time.Duration // predicted seconds of a reference job on that replica from now on; 0 leaves it

	// The rest settles the token bucket of the ticket's key; it is read only when the ticket ends.
	Tokens int  // really used; the reservation is known to the state
	Failed bool // our failure: the reservation is given back whole
}

// Finished is what Finish found.
type Finished struct {
	Known bool // the ticket existed and the lease, if one was given, was its live lease
	Heads Heads
}

// Heads are the first waiting tickets of a pool, and who could serve them.
type Heads struct {
	Model   string
	Tickets []Queued
	Free    []ReplicaID
}

// Queued is a waiting ticket with its owner.
type Queued struct {
	Ticket
	Owner Owner
}

// Tick is what one turn did.
type Tick struct {
	Holder    bool     // this caller had the turn
	Pools     []string // models with waiting tickets
	Reaped    int      // tickets of dead owners or past their hard end
	TakenBack int      // offers nobody took
	Protected bool     // nothing is reaped just now, after a gap
}

// Notice is one message from another gateway. Exactly one field is set.
type Notice struct {
	Lease *Lease // an assignment for one of the owner's tickets: Take it
	Fleet bool   // the replica table changed: read a new snapshot
}

// SampleKind says what a Sample measured.
type SampleKind string

// The kinds of samples; prefill and decode carry the bucket in Sample.Bucket.
const (
	PrefillSample  SampleKind = "p"
	DecodeSample   SampleKind = "d"
	OverheadSample SampleKind = "o" // Amount is 1
	FailureSample  SampleKind = "f" // Amount is 1 for a failure, 0 for a success; Seconds is 1: their ratio is the failure rate
)

// Sample is one measurement: Amount tokens in Seconds. The state keeps decaying sums of both, so speed is their ratio and the sum of
// Seconds is the evidence behind it.
type Sample struct {
	Kind    SampleKind
	Bucket  int
	Amount  float64
	Seconds float64
}
