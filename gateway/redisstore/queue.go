package redisstore

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"phonebank/balancer"
)

// chunk is how many tickets or replicas one round trip reads, so that each stays well below the deadline of a call.
const chunk = 256

// Heads implements balancer.Store.
func (s *Store) Heads(ctx context.Context, model string, limit int) (balancer.Heads, error) {
	if limit <= 0 {
		return balancer.Heads{Model: model}, nil
	}
	r, err := s.evalList(ctx, s.scripts.heads, model, limit)
	if err != nil {
		return balancer.Heads{}, err
	}
	h := readHeads(&r, model)
	return h, r.failed(s.scripts.heads)
}

// readHeads reads {tickets, free}, as heads_of.lua returns it.
func readHeads(r *reply, model string) balancer.Heads {
	h := balancer.Heads{Model: model}
	tickets := r.list()
	for tickets.more() {
		one := tickets.list()
		id, owner, body, tried, held := one.text(), one.text(), one.text(), one.text(), one.number()
		t, err := decodeTicket(id, body, tried, held)
		if err = errors.Join(one.err, err); err != nil {
			r.err = err
			return h
		}
		h.Tickets = append(h.Tickets, balancer.Queued{Ticket: t, Owner: balancer.Owner(owner)})
	}
	free := r.list()
	h.Free = readReplicas(&free)
	if r.err == nil {
		r.err = errors.Join(tickets.err, free.err)
	}
	return h
}

// Positions implements balancer.Store.
func (s *Store) Positions(ctx context.Context, tickets []balancer.Ticket) ([]int, error) {
	places := make([]int, 0, len(tickets))
	for len(tickets) > 0 {
		n := min(chunk, len(tickets))
		ranks := make([]*redis.IntCmd, n)
		err := s.call(ctx, "positions", func(ctx context.Context) error {
			pipe := s.client.Pipeline()
			for i, t := range tickets[:n] {
				ranks[i] = pipe.ZRank(ctx, s.keys.queue(t.Model), t.ID)
			}
			return exec(ctx, pipe)
		})
		if err != nil {
			return nil, err
		}
		for _, rank := range ranks {
			place := -1
			if rank.Err() == nil {
				place = int(rank.Val())
			}
			places = append(places, place)
		}
		tickets = tickets[n:]
	}
	return places, nil
}

// exec runs a pipeline; a value that does not exist is no error.
func exec(ctx context.Context, pipe redis.Pipeliner) error {
	cmds, err := pipe.Exec(ctx)
	if err == nil || !errors.Is(err, redis.Nil) {
		return err
	}
	for _, cmd := range cmds {
		if err := cmd.Err(); err != nil && !errors.Is(err, redis.Nil) {
			return err
		}
	}
	return nil
}
