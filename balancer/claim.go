package balancer

import (
	"context"
	"errors"
	"time"
)

// Claim is one ticket's way through the room: Expect, Offer, (admission), Await, perhaps Requeue and Await again, End. Exactly one End
// must follow every Expect, also when the admission refused the ticket or got no answer. The methods are for one goroutine, but for Status.
type Claim struct {
	d *Dispatcher

	granted chan Lease    // 1-buffered; the dispatcher sends at most one between two Awaits
	doomed  chan struct{} // closed when waiting has become pointless
	cause   error         // why, set before doomed is closed

	// guarded by d.mu
	ticket     Ticket
	admitted   bool
	lease      *Lease
	latest     string // id of the lease delivered last, also after it was given back
	position   int
	ended      bool
	emptySince time.Time // since when the pool has had no usable phone
}

// Status is what a waiting caller can be told.
type Status struct {
	Waiting   bool
	Position  int           // 0 is next
	Predicted time.Duration // until a phone is free; 0 when unknown
	Replica   ReplicaID     // that works on it, when it does not wait
}

// Expect registers a ticket of this gateway before its admission, so that an assignment cannot come too early.
// The ticket's Arrived should be d.Now().
func (d *Dispatcher) Expect(t Ticket) *Claim {
	c := &Claim{d: d, ticket: t, granted: make(chan Lease, 1), doomed: make(chan struct{})}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.claims[t.ID] = c
	return c
}

// Offer proposes candidates for the admission. ErrNoReplica when the model has no replica at all, ErrHopeless when none could ever serve
// the ticket.
func (c *Claim) Offer(leaseID string) (Offer, error) {
	d := c.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.fleet.Snapshot().Pool(c.ticket.Model)) == 0 {
		return Offer{}, ErrNoReplica
	}
	choice := d.cfg.Rules.Choose(d.fleet, &c.ticket, d.nowLocked())
	if choice.Verdict == Never && !d.transientLocked(&c.ticket) {
		return Offer{}, ErrHopeless
	}
	return Offer{
		Ticket:     c.ticket,
		LeaseID:    leaseID,
		Candidates: choice.Candidates,
		Hold:       choice.Verdict != Grant && choice.Verdict != Wait,
		Bounds:     d.cfg.Bounds,
	}, nil
}

// transientLocked reports whether a replica that is away now could serve t when it comes back.
func (d *Dispatcher) transientLocked(t *Ticket) bool {
	now := d.nowLocked()
	for _, i := range d.fleet.Snapshot().Pool(t.Model) {
		v := &d.fleet.Snapshot().Views[i]
		lasts := v.EndsAt.IsZero() || v.EndsAt.After(now.Add(d.cfg.Rules.EndReserve))
		if d.cfg.Rules.Fits(v, t) && lasts && !v.Usable(now) && v.State != Draining {
			return true
		}
	}
	return false
}

// Admitted records what admission decided. It must be called once when Admit did not refuse the ticket.
func (c *Claim) Admitted(p Placement) {
	d := c.d
	d.mu.Lock()
	defer d.mu.Unlock()
	c.admitted = true
	if p.Lease != nil {
		c.deliverLocked(*p.Lease)
		return
	}
	c.position = p.Position
	if p.Position+1 > d.fleet.Queued(c.ticket.Model) {
		d.fleet.SetQueued(c.ticket.Model, p.Position+1)
	}
	if len(p.Free) > 0 {
		d.fleet.Correct(c.ticket.Model, p.Free, FreeListed, d.nowLocked())
		d.kickLocked(c.ticket.Model, nil)
	}
}

// FreeListed is the most free replicas a script lists.
const FreeListed = 16

// deliverLocked hands a lease to the claim. False when it has another or has ended. The same lease may come twice, by notice and by poll:
// once is enough.
func (c *Claim) deliverLocked(l Lease) bool {
	if l.ID == c.latest {
		return true
	}
	if c.ended || c.lease != nil {
		return false
	}
	c.latest = l.ID
	l.Busy = c.d.fleet.Occupy(l.Replica, c.ticket.Slots, c.d.nowLocked().Add(l.Predicted))
	c.lease = &l
	c.granted <- l // release has drained it
	return true
}

// Await blocks until a phone is granted, the ticket's deadline passes (ErrPatience), waiting becomes pointless (ErrNoReplica,
// ErrHopeless) or ctx ends (its cause). The claim must still be ended after an error.
func (c *Claim) Await(ctx context.Context) (Lease, error) {
	select {
	case l := <-c.granted:
		return l, nil
	default:
	}
	var deadline <-chan time.Time
	if !c.ticket.Deadline.IsZero() {
		timer := time.NewTimer(max(c.ticket.Deadline.Sub(c.d.Now()), 0))
		defer timer.Stop()
		deadline = timer.C
	}
	select {
	case l := <-c.granted:
		return l, nil
	case <-deadline:
		return Lease{}, ErrPatience
	case <-c.doomed:
		return Lease{}, c.cause
	case <-ctx.Done():
		return Lease{}, context.Cause(ctx)
	}
}

// Status tells a waiting caller where it stands. Safe for concurrent use.
func (c *Claim) Status() Status {
	d := c.d
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case c.ended:
		return Status{}
	case c.lease != nil:
		return Status{Replica: c.lease.Replica}
	}
	return Status{Waiting: true, Position: c.position, Predicted: d.fleet.PredictWait(&c.ticket, c.position, d.nowLocked())}
}

// Ticket returns the claim's ticket as it is now.
func (c *Claim) Ticket() Ticket {
	c.d.mu.Lock()
	defer c.d.mu.Unlock()
	return c.ticket
}

// Attempt is how one lease ended, for Requeue and End.
type Attempt struct {
	Failed  bool          // counts against the replica: it is not chosen again while another is feasible
	Cooling time.Duration // the phone may go on working that long
	Samples []Sample
}

// Requeue gives the lease back and puts the ticket in the queue with its old rank. Await again after it. When the shared state does not
// answer the store repeats it, and the ticket waits meanwhile: what was accepted is not given up for one slow call. ErrLost means that
// the ticket is gone; the claim must then be ended.
func (c *Claim) Requeue(ctx context.Context, a Attempt) error {
	f, ok := c.release(a, false)
	if !ok {
		return errors.New("requeue without a lease")
	}
	f.Requeue = true
	done, err := c.d.store.Finish(context.WithoutCancel(ctx), f)
	switch {
	case errors.Is(err, ErrUnavailable):
		return nil
	case err != nil:
		return err
	case !done.Known:
		return ErrLost
	}
	c.d.kick(c.ticket.Model, &done.Heads)
	return nil
}

// ErrLost means the shared state no longer knows the ticket: it was reaped while this gateway was out of touch.
var ErrLost = errors.New("the request's lease was lost")

// Settlement is what a request really cost its key.
type Settlement struct {
	Tokens int
	Failed bool // not the caller's fault: the reservation is given back
}

// End finishes the ticket, whatever state it is in. When the shared state is away the store delivers the end later.
func (c *Claim) End(ctx context.Context, a Attempt, s Settlement) {
	f, leased := c.release(a, true)
	if !c.admitted && !leased {
		return // refused, or without an answer: then the store ends it
	}
	f.Tokens, f.Failed = s.Tokens, s.Failed
	c.d.finish(context.WithoutCancel(ctx), f)
}

// release takes the lease away from the claim, or ends it.
func (c *Claim) release(a Attempt, end bool) (Finish, bool) {
	d := c.d
	d.mu.Lock()
	defer d.mu.Unlock()
	f := Finish{By: d.cfg.Owner, Ticket: c.ticket.ID, Cooling: a.Cooling, Samples: a.Samples}
	had := c.lease != nil
	if had {
		f.Lease = c.lease.ID
		f.Rank = d.fleet.Rank(c.lease.Replica)
		if a.Failed {
			f.Tried = c.lease.Replica
			c.ticket.Tried = append(c.ticket.Tried, c.lease.Replica)
		}
		if a.Cooling <= 0 {
			d.fleet.Release(c.lease.Replica, c.ticket.Slots)
		}
		c.lease = nil
		select {
		case <-c.granted:
		default:
		}
	}
	if end {
		c.ended = true
		delete(d.claims, c.ticket.ID)
	}
	return f, had
}

// doomLocked ends the waiting of a claim.
func (c *Claim) doomLocked(cause error) {
	if c.cause == nil {
		c.cause = cause
		close(c.doomed)
	}
}
