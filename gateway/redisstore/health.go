package redisstore

import (
	"context"
	"fmt"
	"strings"
	"time"

	"phonebank/balancer"
	"phonebank/health"
)

// maxReason bounds the text about a phone, in bytes: it may quote what the phone said.
const maxReason = 256

// Due implements health.Store.
func (s *Store) Due(ctx context.Context, interval time.Duration, limit int) ([]balancer.ReplicaID, error) {
	if limit <= 0 {
		return nil, nil
	}
	r, err := s.evalList(ctx, s.scripts.due, interval.Milliseconds(), limit)
	if err != nil {
		return nil, err
	}
	ids := readReplicas(&r)
	return ids, r.failed(s.scripts.due)
}

// Health implements health.Store.
func (s *Store) Health(ctx context.Context, id balancer.ReplicaID) (health.Record, bool, error) {
	var fields []any
	err := s.call(ctx, "health", func(ctx context.Context) error {
		var err error
		fields, err = s.client.HMGet(ctx, s.keys.replica(string(id)), "gen", "version", "state", "reason", "since", "until", "misses",
			"failures", "busy", "good").Result()
		return err
	})
	if err != nil || fields[0] == nil {
		return health.Record{}, false, err
	}
	r := reply{rest: fields}
	h := health.Record{
		Generation: r.number(),
		Version:    r.number(),
		State:      balancer.ParseState(r.text()),
		Reason:     r.text(),
		Since:      fromMillis(r.number()),
		LeaveAlone: fromMillis(r.number()),
		Misses:     int(r.number()),
		Failures:   int(r.number()),
		Busy:       int(r.number()),
		LastGood:   fromMillis(r.number()),
	}
	if r.err != nil {
		return health.Record{}, false, fmt.Errorf("redis health of %s: %w", id, r.err)
	}
	return h, true, nil
}

// SetHealth implements health.Store. Record.LeaveAlone is compared with the server's clock: gateways should keep theirs within a second of it.
func (s *Store) SetHealth(ctx context.Context, id balancer.ReplicaID, r health.Record) (bool, error) {
	return s.evalFlag(ctx, s.scripts.setHealth, string(id), r.Generation, r.Version, r.State.String(), clip(r.Reason), millis(r.Since),
		millis(r.LeaveAlone), r.Misses, r.Failures, r.Busy, millis(r.LastGood))
}

func clip(reason string) string { return strings.ToValidUTF8(reason[:min(len(reason), maxReason)], "") }
