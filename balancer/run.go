package balancer

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"
)

// Run keeps the room going until ctx ends: heartbeat, turn, snapshot, matching, notices. It returns nil after ctx ended and never for an
// unavailable state, which it waits out. Claims may be used before, and must all be ended before the state is closed.
func (d *Dispatcher) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return d.runMatcher(ctx) })
	g.Go(func() error { return d.runNotices(ctx) })
	g.Go(func() error { return every(ctx, d.cfg.Turn, d.turn) })
	g.Go(func() error { return every(ctx, d.cfg.Beat, d.beat) })
	g.Go(func() error { return d.runRefresh(ctx) })
	return g.Wait()
}

// every calls f at once and then each interval until ctx ends.
func every(ctx context.Context, interval time.Duration, f func(context.Context)) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		f(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

func (d *Dispatcher) runNotices(ctx context.Context) error {
	for n := range d.store.Notices(ctx, d.cfg.Owner) {
		switch {
		case n.Lease != nil:
			d.receive(ctx, *n.Lease)
		case n.Fleet:
			d.SoonStale()
		}
	}
	return nil
}

// runRefresh reads snapshots: each interval, and soon after a change. Changes that come in a burst share one read.
func (d *Dispatcher) runRefresh(ctx context.Context) error {
	const settle = 50 * time.Millisecond
	ticker := time.NewTicker(d.cfg.Refresh)
	defer ticker.Stop()
	for {
		if err := d.Refresh(ctx); err != nil && ctx.Err() == nil {
			d.log.Warn("fleet snapshot", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		case <-d.stale:
			pause := time.NewTimer(settle)
			select {
			case <-ctx.Done():
				pause.Stop()
				return nil
			case <-pause.C:
			}
		}
	}
}

// beat keeps this gateway's leases alive, and puts them back when the state has lost them.
func (d *Dispatcher) beat(ctx context.Context) {
	known, err := d.store.Beat(ctx, d.cfg.Owner)
	if err != nil {
		return
	}
	if !known {
		d.lost = d.admitted()
		if len(d.lost) > 0 {
			d.log.Warn("shared state was lost; own tickets are put back", "tickets", len(d.lost))
		}
	}
	for len(d.lost) > 0 && d.restore(ctx, d.lost[0]) {
		d.lost = d.lost[1:]
	}
}

// admitted lists the tickets of this gateway that the shared state should know.
func (d *Dispatcher) admitted() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var ids []string
	for id, c := range d.claims {
		if c.admitted {
			ids = append(ids, id)
		}
	}
	return ids
}

// restore puts one ticket back, unless it has ended. False when that has to be tried again with the next beat.
func (d *Dispatcher) restore(ctx context.Context, id string) bool {
	d.mu.Lock()
	c := d.claims[id]
	if c == nil {
		d.mu.Unlock()
		return true
	}
	ticket, lease := c.ticket, c.lease
	d.mu.Unlock()
	if err := d.store.Restore(ctx, d.cfg.Owner, ticket, lease); err != nil {
		d.log.Warn("ticket not put back", "ticket", id, "error", err)
		return !errors.Is(err, ErrUnavailable)
	}
	d.mu.Lock()
	gone := d.claims[id] != c
	d.mu.Unlock()
	if gone { // its end came before, when nobody knew the ticket
		d.finish(ctx, Finish{By: d.cfg.Owner, Ticket: id, Failed: true})
	}
	return true
}

// turn does what is due every second.
func (d *Dispatcher) turn(ctx context.Context) {
	d.watchEmpty()
	t, err := d.store.Tick(ctx, d.cfg.Owner)
	if err != nil {
		return
	}
	if t.Holder {
		for _, model := range t.Pools {
			d.kick(model, nil)
		}
		if t.Reaped > 0 || t.TakenBack > 0 {
			d.log.Warn("reaped", "tickets", t.Reaped, "offers_taken_back", t.TakenBack)
			d.SoonStale()
		}
	}
	d.pollWaiting(ctx)
}

// pollWaiting finds assignments whose notice was lost, and the places of this gateway's waiting tickets.
func (d *Dispatcher) pollWaiting(ctx context.Context) {
	d.mu.Lock()
	var waiting []Ticket
	for _, c := range d.claims {
		if c.admitted && c.lease == nil {
			waiting = append(waiting, c.ticket)
		}
	}
	d.mu.Unlock()
	if len(waiting) == 0 {
		return
	}
	if offers, err := d.store.Assigned(ctx, d.cfg.Owner); err == nil {
		for _, l := range offers {
			d.receive(ctx, l)
		}
	}
	places, err := d.store.Positions(ctx, waiting)
	if err != nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range waiting {
		if c := d.claims[waiting[i].ID]; c != nil && places[i] >= 0 { // else it is just on its way into the queue, or out
			c.position = places[i]
		}
	}
}
