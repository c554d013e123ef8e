package redisstore

import (
	"context"
	"errors"
	"sync"

	"phonebank/balancer"
)

const (
	// owedRuns is how often a debt is paid, at least a second apart: the first payment may overtake the call it makes up for, when a server
	// wakes up with both in its sockets.
	owedRuns = 2
	// owedBatch bounds what one Tick pays.
	owedBatch = 512
	// owedMost bounds what is remembered; it is more than a gateway can have open.
	owedMost = 100_000
)

// owed remembers calls whose reply never came: each may or may not have been committed. The zero value lacks the map.
type owed struct {
	mu    sync.Mutex
	debts map[string]debt // by ticket; guarded by mu, as is last
	last  uint64
}

// debt is the Finish that brings the ticket to a known state.
type debt struct {
	finish balancer.Finish
	id     uint64 // tells it from a later debt of the same ticket
	left   int    // payments to make
}

// add notes a debt if err leaves open what happened. A newer one of a ticket replaces the older.
func (o *owed) add(err error, f balancer.Finish) {
	if !errors.Is(err, balancer.ErrUnavailable) {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, known := o.debts[f.Ticket]; !known && len(o.debts) >= owedMost {
		return
	}
	o.last++
	o.debts[f.Ticket] = debt{finish: f, id: o.last, left: owedRuns}
}

// clear forgets the debt of a ticket about which more is known now.
func (o *owed) clear(ticket string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.debts, ticket)
}

// some returns a batch of debts.
func (o *owed) some() []debt {
	o.mu.Lock()
	defer o.mu.Unlock()
	batch := make([]debt, 0, min(len(o.debts), owedBatch))
	for _, d := range o.debts {
		if len(batch) == owedBatch {
			break
		}
		batch = append(batch, d)
	}
	return batch
}

// paid counts a payment.
func (o *owed) paid(d debt) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now, ok := o.debts[d.finish.Ticket]
	if !ok || now.id != d.id {
		return
	}
	now.left--
	if now.left > 0 {
		o.debts[d.finish.Ticket] = now
		return
	}
	delete(o.debts, d.finish.Ticket)
}

// settleOwed pays debts until one fails for want of Redis; the rest waits for the next Tick.
func (s *Store) settleOwed(ctx context.Context) {
	for _, d := range s.owed.some() {
		if _, err := s.finish(ctx, d.finish); errors.Is(err, balancer.ErrUnavailable) {
			return
		} else if err != nil {
			s.log.Error("ticket could not be settled", "ticket", d.finish.Ticket, "error", err)
		}
		s.owed.paid(d)
	}
}
