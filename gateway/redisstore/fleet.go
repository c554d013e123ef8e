package redisstore

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"phonebank/balancer"
)

// A replica that has done nothing yet is ranked by the predicted time of this job at its prior speeds, or at those of a slow phone.
const (
	rankPrompt, rankOutput  = 1000, 100 // tokens
	slowPrefill, slowDecode = 20.0, 3.0 // tokens a second
)

const (
	joinChunk       = 64  // replicas in one run of join.lua
	viewsChunk      = 64  // replicas in one run of views.lua: others wait about half a ms for it
	maxReplicaSlots = 256 // requests at the same time
)

// Join implements health.Registry.
func (s *Store) Join(ctx context.Context, replicas []balancer.Replica) error {
	for _, r := range replicas {
		if err := validReplica(r); err != nil {
			return err
		}
	}
	for part := range slices.Chunk(replicas, joinChunk) {
		args := make([]any, 0, 10*len(part))
		for _, r := range part {
			digest, err := digestOf(r)
			if err != nil {
				return err
			}
			args = append(args, string(r.ID), digest, r.Model, string(r.Engine), r.Slots, r.Context, millis(r.EndsAt),
				formatFloat(r.Prior.Prefill), formatFloat(r.Prior.Decode), priorRank(r.Prior).Milliseconds())
		}
		if _, err := s.evalFlag(ctx, s.scripts.join, args...); err != nil {
			return err
		}
	}
	return nil
}

// Leave implements health.Registry.
func (s *Store) Leave(ctx context.Context, id balancer.ReplicaID) error {
	_, err := s.evalFlag(ctx, s.scripts.leave, string(id))
	return err
}

func validReplica(r balancer.Replica) error {
	switch {
	case !validID(string(r.ID)):
		return fmt.Errorf("replica id %.64q: use 1 to 64 of [A-Za-z0-9._:-]", string(r.ID))
	case r.Model == "" || len(r.Model) > maxName:
		return fmt.Errorf("replica %s: model must have 1 to %d bytes", r.ID, maxName)
	case r.Slots < 1 || r.Slots > maxReplicaSlots:
		return fmt.Errorf("replica %s: %d slots, must be 1 to %d", r.ID, r.Slots, maxReplicaSlots)
	case !measured(r.Prior.Prefill) || !measured(r.Prior.Decode):
		return fmt.Errorf("replica %s: prior speeds must be positive, or 0 for unknown", r.ID)
	}
	return nil
}

// digestOf tells one description of a replica from another.
func digestOf(r balancer.Replica) (string, error) {
	r.EndsAt = fromMillis(millis(r.EndsAt)).UTC()
	b, err := json.Marshal(r)
	if err != nil {
		return "", fmt.Errorf("replica %s: %w", r.ID, err)
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:8]), nil
}

func priorRank(v balancer.Speeds) time.Duration {
	seconds := rankPrompt/cmp.Or(v.Prefill, slowPrefill) + rankOutput/cmp.Or(v.Decode, slowDecode)
	return time.Duration(min(seconds, 1e5) * float64(time.Second))
}

// Snapshot implements balancer.Store. It reads in pieces, so it is no one moment; At is when it began.
func (s *Store) Snapshot(ctx context.Context) (*balancer.Snapshot, error) {
	r, err := s.evalList(ctx, s.scripts.snapshot)
	if err != nil {
		return nil, err
	}
	at := time.UnixMilli(r.number())
	ids, err := r.list().texts()
	pools := r.list()
	queued := make(map[string]int)
	for pools.more() {
		queued[pools.text()] = int(pools.number())
	}
	r.err = cmp.Or(r.err, err, pools.err)
	if err := r.failed(s.scripts.snapshot); err != nil {
		return nil, err
	}
	slices.Sort(ids)
	views := make([]balancer.View, 0, len(ids))
	for part := range slices.Chunk(ids, viewsChunk) {
		if views, err = s.appendViews(ctx, views, at, part); err != nil {
			return nil, err
		}
	}
	return balancer.NewSnapshot(at, views, queued), nil
}

// appendViews reads some replicas; one that has left meanwhile is left out.
func (s *Store) appendViews(ctx context.Context, views []balancer.View, at time.Time, ids []string) ([]balancer.View, error) {
	args := make([]any, len(ids))
	for i, id := range ids {
		args[i] = id
	}
	r, err := s.evalList(ctx, s.scripts.views, args...)
	if err != nil {
		return nil, err
	}
	for r.more() {
		one := r.list()
		v, err := readView(&one, at)
		if err != nil {
			return nil, fmt.Errorf("redis views: %w", err)
		}
		views = append(views, v)
	}
	return views, r.failed(s.scripts.views)
}
