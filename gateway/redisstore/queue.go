package redisstore

import (
	"context"
	"errors"
	"slices"
	"strings"

	"phonebank/balancer"
)

// positionsChunk is how many tickets one run of the script looks for.
const positionsChunk = 256

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
		q := balancer.Queued{Ticket: balancer.Ticket{ID: one.text(), Model: model}, Owner: balancer.Owner(one.text())}
		q.Key, q.Slots = one.text(), int(one.number())
		body := one.text()
		for phone := range strings.FieldsSeq(one.text()) {
			q.Tried = append(q.Tried, balancer.ReplicaID(phone))
		}
		q.HeldSince = fromMillis(one.number())
		if err := errors.Join(one.err, decodeTicket(&q.Ticket, body)); err != nil {
			r.err = err
			return h
		}
		h.Tickets = append(h.Tickets, q)
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
	for part := range slices.Chunk(tickets, positionsChunk) {
		args := make([]any, 0, 2*len(part))
		for _, t := range part {
			args = append(args, t.Model, t.ID)
		}
		r, err := s.evalList(ctx, s.scripts.positions, args...)
		if err != nil {
			return nil, err
		}
		for range part {
			places = append(places, int(r.number()))
		}
		if err := r.failed(s.scripts.positions); err != nil {
			return nil, err
		}
	}
	return places, nil
}
