package balancer

import "slices"

import "time"

// Ticket is a request as the balancer sees it: seconds and tokens, never the body.
type Ticket struct {
	ID           string // random, 26 characters or fewer
	Key          string // id of the API key that pays, for bounds and fairness
	Model        string
	Class        Class
	PromptTokens int // estimated
	OutputTokens int // expected, at most what the caller allows
	Slots        int // one per choice (n); at least 1
	Arrived      time.Time
	Deadline     time.Time     // nothing is granted after it; zero when there is none
	HardEnd      time.Duration // from admission: a ticket still there then is reaped whoever owns it
	Tried        []ReplicaID   // phones that have failed it
	HeldSince    time.Time     // set while the choice is to wait for a busy phone; zero otherwise
}

// Order is the place of a ticket in its pool's queue: lower is earlier. It never changes, so a ticket that comes back after a phone was
// lost gets its old rank. Now first come, first served: milliseconds of arrival.
func (t *Ticket) Order() float64 { return float64(t.Arrived.UnixMilli()) }

// HasTried reports whether id has failed this ticket before.
func (t *Ticket) HasTried(id ReplicaID) bool {
	return slices.Contains(t.Tried, id)
}

// Lease is the right to use slots of one replica for one ticket. ID is the fencing token: random, new with every grant.
type Lease struct {
	ID         string
	Ticket     string
	Replica    ReplicaID
	Generation int64
	Predicted  time.Duration // of the whole attempt, when it was granted
	Busy       int           // slots of the replica at work with this lease, as its gateway knew when it was delivered; 0 when unknown
}

// Candidate is a replica the chooser would accept for a ticket, with what a script needs to verify and commit it.
type Candidate struct {
	Replica    ReplicaID
	Generation int64
	Predicted  time.Duration
}

// Offer is what a gateway proposes for a new ticket: the candidates in order of preference, none to wait.
type Offer struct {
	Ticket     Ticket
	LeaseID    string // used if a candidate is granted
	Candidates []Candidate
	Hold       bool // wait for a busy phone though a free one exists: later tickets may pass
	Bounds     Bounds
}

// Bounds limit the queue. Zero is unlimited.
type Bounds struct {
	Pool int // waiting tickets of one model
	Key  int // waiting tickets of one key, over all models
}

// Placement is what the shared state decided for an offer.
type Placement struct {
	Lease    *Lease      // set when granted at once
	Position int         // 0-based place in the queue when waiting
	Free     []ReplicaID // some replicas of the pool that have a free slot now, fastest first: the snapshot may have been stale
	Full     FullKind    // set when the queue refused the ticket
}

// FullKind says which bound refused a ticket.
type FullKind uint8

// The bounds of the queue.
const (
	NotFull  FullKind = iota
	PoolFull          // Bounds.Pool
	KeyFull           // Bounds.Key
)
