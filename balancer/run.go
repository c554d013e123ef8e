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
	if err != nil || known {
		return
	}
	type held struct {
		t Ticket
		l *Lease
	}
	d.mu.Lock()
	var all []held
	for _, c := range d.claims {
		if c.admitted {
			all = append(all, held{c.ticket, c.lease})
		}
	}
	d.mu.Unlock()
	for _, h := range all {
		if err := d.store.Restore(ctx, d.cfg.Owner, h.t, h.l); err != nil {
			d.log.Warn("restore after the shared state was lost", "ticket", h.t.ID, "error", err)
			return // the next beat finds the owner known; the rest ends by itself
		}
	}
	if len(all) > 0 {
		d.log.Warn("shared state was lost; own tickets restored", "tickets", len(all))
	}
}

// turn does what is due every second.
func (d *Dispatcher) turn(ctx context.Context) {
	d.payDebts(ctx)
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
		if c := d.claims[waiting[i].ID]; c != nil {
			c.position = places[i]
		}
	}
}

// payDebts delivers ends that could not be delivered before, oldest first.
func (d *Dispatcher) payDebts(ctx context.Context) {
	for {
		d.mu.Lock()
		if len(d.debts) == 0 {
			d.mu.Unlock()
			return
		}
		f := d.debts[0]
		d.mu.Unlock()
		done, err := d.store.Finish(ctx, f)
		if errors.Is(err, ErrUnavailable) {
			return
		}
		d.mu.Lock()
		d.debts = d.debts[1:]
		d.mu.Unlock()
		if len(done.Heads.Tickets) > 0 {
			d.kick(done.Heads.Model, &done.Heads)
		}
	}
}
