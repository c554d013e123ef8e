package balancer

import (
	"context"
	"crypto/rand"
	"time"
)

// headsMatched is how many waiting tickets one round of matching looks at. More only matters while many of the first are held.
const headsMatched = 32

// NewID returns a random id of 26 characters (128 bits and more), for tickets and leases.
func NewID() string { return rand.Text() }

// kick asks the matcher to look at a pool. Heads just read may be handed on; nil ones are read anew.
func (d *Dispatcher) kick(model string, h *Heads) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.kickLocked(model, h)
}

func (d *Dispatcher) kickLocked(model string, h *Heads) {
	d.kicks[model] = h
	signal(d.kicked)
}

// runMatcher matches kicked pools, one at a time, until ctx ends.
func (d *Dispatcher) runMatcher(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-d.kicked:
		}
		d.mu.Lock()
		todo := d.kicks
		d.kicks = make(map[string]*Heads)
		d.mu.Unlock()
		for model, heads := range todo {
			d.match(ctx, model, heads)
		}
	}
}

// match grants free slots of a pool to its first waiting tickets, until heads just read grant nothing. An error ends it; the tick tries again.
func (d *Dispatcher) match(ctx context.Context, model string, heads *Heads) {
	const rounds = 64 // each grants at least one slot; the tick goes on beyond
	for range rounds {
		whole := heads == nil
		if whole {
			h, err := d.store.Heads(ctx, model, headsMatched)
			if err != nil {
				d.log.Debug("match: heads", "model", model, "error", err)
				return
			}
			heads = &h
		}
		granted, err := d.matchRound(ctx, heads)
		if err != nil {
			d.log.Debug("match: assign", "model", model, "error", err)
			return
		}
		if granted == 0 && whole {
			return
		}
		heads = nil
	}
}

// matchRound decides for each head in order and commits.
func (d *Dispatcher) matchRound(ctx context.Context, h *Heads) (granted int, err error) {
	d.mu.Lock()
	d.fleet.Correct(h.Model, h.Free, FreeListed, d.nowLocked())
	d.fleet.SetQueued(h.Model, max(d.fleet.Queued(h.Model), len(h.Tickets)))
	d.mu.Unlock()
	for i := range h.Tickets {
		q := &h.Tickets[i]
		d.mu.Lock()
		choice := d.cfg.Rules.Choose(d.fleet, &q.Ticket, d.nowLocked())
		free := d.fleet.HasFree(h.Model, d.nowLocked())
		d.mu.Unlock()
		if !free { // nobody behind this one can do better, and nobody may be passed any more
			return granted, d.unhold(ctx, h.Tickets[i:])
		}
		hold := choice.Verdict != Grant // no free phone suits it: it may be passed
		if hold && !q.HeldSince.IsZero() {
			continue
		}
		lease, err := d.store.Assign(ctx, d.cfg.Owner, q.ID, NewID(), choice.Candidates, hold)
		if err != nil {
			return granted, err
		}
		if lease == nil && !hold {
			// Another gateway was faster, or the candidates are not as free as they seemed: whoever is next might pass this one.
			return granted, nil
		}
		if lease == nil {
			continue
		}
		granted++
		d.assigned(ctx, *lease, q)
	}
	return granted, nil
}

// unhold lets held tickets wait their turn again.
func (d *Dispatcher) unhold(ctx context.Context, tickets []Queued) error {
	for i := range tickets {
		if tickets[i].HeldSince.IsZero() {
			continue
		}
		if _, err := d.store.Assign(ctx, d.cfg.Owner, tickets[i].ID, "", nil, false); err != nil {
			return err
		}
	}
	return nil
}

// assigned follows a grant this gateway has committed.
func (d *Dispatcher) assigned(ctx context.Context, l Lease, q *Queued) {
	d.mu.Lock()
	if q.Owner != d.cfg.Owner {
		d.fleet.Occupy(l.Replica, q.Slots, d.nowLocked().Add(l.Predicted))
		d.mu.Unlock()
		return
	}
	d.mu.Unlock()
	d.deliver(ctx, l)
}

// receive takes an assignment another gateway has made for one of our tickets.
func (d *Dispatcher) receive(ctx context.Context, l Lease) {
	taken, err := d.store.Take(ctx, d.cfg.Owner, l.Ticket, l.ID)
	if err != nil || !taken {
		return // it goes back to the queue by itself
	}
	d.deliver(ctx, l)
}

// deliver hands a lease to its claim, or ends it when the caller has gone.
func (d *Dispatcher) deliver(ctx context.Context, l Lease) {
	d.mu.Lock()
	c := d.claims[l.Ticket]
	delivered := c != nil && c.deliverLocked(l)
	d.mu.Unlock()
	if !delivered {
		d.finish(ctx, Finish{By: d.cfg.Owner, Ticket: l.Ticket, Lease: l.ID, Failed: true})
	}
}

// finish ends a ticket for good and sees to who waits for its phone. An end without an answer is the store's to deliver.
func (d *Dispatcher) finish(ctx context.Context, f Finish) {
	done, err := d.store.Finish(ctx, f)
	if err == nil && len(done.Heads.Tickets) > 0 {
		d.kick(done.Heads.Model, &done.Heads)
	}
}

// watchEmpty dooms claims whose pool has had no usable phone for too long.
func (d *Dispatcher) watchEmpty() {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.nowLocked()
	usable := make(map[string]bool)
	for i := range d.fleet.Snapshot().Views {
		v := &d.fleet.Snapshot().Views[i]
		if v.Usable(now) {
			usable[v.Model] = true
		}
	}
	for _, c := range d.claims {
		switch {
		case c.lease != nil || usable[c.ticket.Model]:
			c.emptySince = time.Time{}
		case c.emptySince.IsZero():
			c.emptySince = now
		case now.Sub(c.emptySince) >= d.cfg.EmptyWait:
			c.doomLocked(ErrNoReplica)
		}
	}
}
