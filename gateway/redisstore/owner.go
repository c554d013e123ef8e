package redisstore

import (
	"context"
	"errors"
	"strings"

	"phonebank/balancer"
)

const (
	tickEntries = 128 // of each kind in one run of the script, a few ms on a real server
	tickRounds  = 32  // of the script in one Tick, when much is left
)

// Beat implements balancer.Store.
func (s *Store) Beat(ctx context.Context, by balancer.Owner) (known bool, err error) {
	if !validID(string(by)) {
		return false, errors.New("beat: owner must be 1 to 64 of [A-Za-z0-9._:-]")
	}
	return s.evalFlag(ctx, s.scripts.beat, string(by), s.config.BeatTTL.Milliseconds())
}

// Restore implements balancer.Store. Join the replicas first. What the key had reserved is not restored: it has refilled with the loss.
func (s *Store) Restore(ctx context.Context, by balancer.Owner, t balancer.Ticket, l *balancer.Lease) error {
	if err := validTicket(by, t); err != nil {
		return err
	}
	tried := make([]string, len(t.Tried))
	for i, id := range t.Tried {
		tried[i] = string(id)
	}
	lease, replica, predicted := "", "", int64(0)
	if l != nil {
		if err := validLease(l.ID, []balancer.Candidate{{Replica: l.Replica}}); err != nil {
			return err
		}
		lease, replica, predicted = l.ID, string(l.Replica), max(0, l.Predicted.Milliseconds())
	}
	_, err := s.evalFlag(ctx, s.scripts.restore, string(by), t.ID, t.Key, t.Model, t.Slots, orderText(t), s.lifeMS(t), encodeTicket(t),
		strings.Join(tried, " "), s.config.BeatTTL.Milliseconds(), millis(t.HeldSince), lease, replica, predicted)
	return err
}

// Tick implements balancer.Store. It also settles what calls without an answer have left behind.
func (s *Store) Tick(ctx context.Context, by balancer.Owner) (balancer.Tick, error) {
	var sum balancer.Tick
	for range tickRounds {
		one, left, err := s.tick(ctx, by)
		if err != nil {
			return sum, err
		}
		one.Reaped += sum.Reaped
		one.TakenBack += sum.TakenBack
		sum = one
		if !left {
			break
		}
	}
	s.settleOwed(ctx)
	return sum, nil
}

// tick is one run of the script. Left says that it stopped before everything was done.
func (s *Store) tick(ctx context.Context, by balancer.Owner) (t balancer.Tick, left bool, err error) {
	c := s.config
	r, err := s.evalList(ctx, s.scripts.tick, string(by), c.BeatTTL.Milliseconds(), c.PulseGap.Milliseconds(), c.Turn.Milliseconds(),
		c.CancelBound.Milliseconds(), tickEntries)
	if err != nil {
		return balancer.Tick{}, false, err
	}
	t.Holder = r.flag()
	t.Reaped = int(r.number())
	t.TakenBack = int(r.number())
	t.Protected = r.flag()
	left = r.flag()
	pools := r.list()
	for pools.more() {
		t.Pools = append(t.Pools, pools.text())
	}
	if r.err == nil {
		r.err = pools.err
	}
	return t, left, r.failed(s.scripts.tick)
}

// Resign implements balancer.Store.
func (s *Store) Resign(ctx context.Context, by balancer.Owner) error {
	_, err := s.evalFlag(ctx, s.scripts.resign, string(by))
	return err
}
