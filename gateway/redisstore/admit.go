package redisstore

import (
	"context"
	"fmt"
	"time"

	"phonebank/auth/limit"
	"phonebank/balancer"
)

// Admit decides in one step whether the key may have this request and where it goes. When the decision refuses, or Placement.Full is set,
// nothing was charged and no ticket exists; else the ticket runs (Placement.Lease) or waits, and must be ended with Finish. The bounds of
// the queue hold only for a ticket that has to wait.
//
// Repeating it with the same ticket charges nothing and tells where the ticket is. After ErrUnavailable the ticket may exist nevertheless:
// unless it is admitted again, the store ends it on its own.
func (s *Store) Admit(ctx context.Context, by balancer.Owner, key string, limits limit.Limits, cost limit.Cost, offer balancer.Offer,
) (limit.Decision, balancer.Placement, error) {
	t := offer.Ticket
	t.Key = key
	if err := validTicket(by, t); err != nil {
		return limit.Decision{}, balancer.Placement{}, err
	}
	if len(offer.Candidates) > 0 {
		if err := validLease(offer.LeaseID, offer.Candidates); err != nil {
			return limit.Decision{}, balancer.Placement{}, fmt.Errorf("ticket %s: %w", t.ID, err)
		}
	}
	args := []any{
		string(by), t.ID, key, t.Model, t.Slots, orderText(t), s.lifeMS(t), encodeTicket(t),
		bounded(limits.RequestsPerMinute), bounded(limits.TokensPerMinute), max(0, limits.Concurrent), cost.Requests, cost.Tokens,
		max(0, offer.Bounds.Pool), max(0, offer.Bounds.Key), offer.LeaseID, flagText(offer.Hold), s.config.BeatTTL.Milliseconds(),
	}
	s.owed.clear(t.ID)
	r, err := s.evalList(ctx, s.scripts.admit, appendCandidates(args, offer.Candidates)...)
	if err != nil {
		s.owed.add(err, balancer.Finish{By: by, Ticket: t.ID, Failed: true})
		return limit.Decision{}, balancer.Placement{}, err
	}
	outcome := r.text()
	d := readDecision(&r, limits)
	d.Allowed = outcome != "refused"
	p := readPlacement(&r, outcome, t.ID)
	return d, p, r.failed(s.scripts.admit)
}

// bounded keeps a limit within what the arithmetic can hold.
func bounded(perMinute int) int { return min(max(perMinute, 0), limit.MaxLimit) }

func readDecision(r *reply, limits limit.Limits) limit.Decision {
	return limit.Decision{
		Tripped:    limit.Dimension(r.text()),
		TooLarge:   r.flag(),
		RetryAfter: r.duration(),
		Requests:   readBucket(r, limits.RequestsPerMinute),
		Tokens:     readBucket(r, limits.TokensPerMinute),
	}
}

func readBucket(r *reply, perMinute int) limit.Bucket {
	b := limit.Bucket{Limit: bounded(perMinute), Remaining: int(r.number()), Reset: r.duration()}
	if b.Limit == 0 {
		return limit.Bucket{}
	}
	return b
}

func readPlacement(r *reply, outcome, ticket string) balancer.Placement {
	p := balancer.Placement{Position: int(r.number())}
	switch outcome {
	case "refused", "offered":
	case "granted":
		p.Lease = &balancer.Lease{ID: r.text(), Ticket: ticket}
		readGrant(r, p.Lease)
	case "queued":
		free := r.list()
		p.Free = readReplicas(&free)
	case "full":
		p.Full = balancer.PoolFull
		if r.text() == "key" {
			p.Full = balancer.KeyFull
		}
	default:
		r.err = fmt.Errorf("unknown outcome %q", outcome)
	}
	return p
}

// readGrant reads replica, generation and predicted ms.
func readGrant(r *reply, l *balancer.Lease) {
	l.Replica = balancer.ReplicaID(r.text())
	l.Generation = r.number()
	l.Predicted = time.Duration(r.number()) * time.Millisecond
}

func readReplicas(r *reply) []balancer.ReplicaID {
	var ids []balancer.ReplicaID
	for r.more() {
		ids = append(ids, balancer.ReplicaID(r.text()))
	}
	return ids
}
