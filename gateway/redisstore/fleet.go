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

	"github.com/redis/go-redis/v9"

	"phonebank/balancer"
)

// A replica that has done nothing yet is ranked by the predicted time of this job at its prior speeds, or at those of a slow phone.
const (
	rankPrompt, rankOutput  = 1000, 100 // tokens
	slowPrefill, slowDecode = 20.0, 3.0 // tokens a second
)

const (
	joinChunk       = 64  // replicas in one run of the script
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
	var at time.Time
	var ids, models []string
	err := s.call(ctx, "snapshot", func(ctx context.Context) error {
		pipe := s.client.Pipeline()
		now, reps, pools := pipe.Time(ctx), pipe.SMembers(ctx, s.keys.replicas()), pipe.SMembers(ctx, s.keys.pools())
		err := exec(ctx, pipe)
		at, ids, models = now.Val(), reps.Val(), pools.Val()
		return err
	})
	if err != nil {
		return nil, err
	}
	slices.Sort(ids)
	views := make([]balancer.View, 0, len(ids))
	for part := range slices.Chunk(ids, chunk) {
		if views, err = s.readViews(ctx, at, part, views); err != nil {
			return nil, err
		}
	}
	queued, err := s.queueLengths(ctx, models)
	if err != nil {
		return nil, err
	}
	return balancer.NewSnapshot(at, views, queued), nil
}

// readViews appends the views of some replicas; one that has left meanwhile is left out.
func (s *Store) readViews(ctx context.Context, at time.Time, ids []string, views []balancer.View) ([]balancer.View, error) {
	type cmds struct {
		replica, sums *redis.MapStringStringCmd
		live, cooling *redis.ZSliceCmd
	}
	read := make([]cmds, len(ids))
	err := s.call(ctx, "snapshot", func(ctx context.Context) error {
		pipe := s.client.Pipeline()
		for i, id := range ids {
			read[i] = cmds{
				replica: pipe.HGetAll(ctx, s.keys.replica(id)),
				sums:    pipe.HGetAll(ctx, s.keys.sums(id)),
				live:    pipe.ZRangeWithScores(ctx, s.keys.live(id), 0, -1),
				cooling: pipe.ZRangeWithScores(ctx, s.keys.cooling(id), 0, -1),
			}
		}
		return exec(ctx, pipe)
	})
	if err != nil {
		return nil, err
	}
	for i, id := range ids {
		if len(read[i].replica.Val()) == 0 {
			continue
		}
		v, err := decodeView(id, read[i].replica.Val(), read[i].sums.Val())
		if err != nil {
			return nil, err
		}
		for _, z := range read[i].live.Val() {
			v.Ends = append(v.Ends, time.UnixMilli(int64(z.Score)))
		}
		for _, z := range read[i].cooling.Val() {
			if ends := time.UnixMilli(int64(z.Score)); ends.After(at) {
				v.Ends = append(v.Ends, ends)
			}
		}
		views = append(views, v)
	}
	return views, nil
}

func (s *Store) queueLengths(ctx context.Context, models []string) (map[string]int, error) {
	lengths := make([]*redis.IntCmd, len(models))
	err := s.call(ctx, "snapshot", func(ctx context.Context) error {
		if len(models) == 0 {
			return nil
		}
		pipe := s.client.Pipeline()
		for i, m := range models {
			lengths[i] = pipe.ZCard(ctx, s.keys.queue(m))
		}
		return exec(ctx, pipe)
	})
	if err != nil {
		return nil, err
	}
	queued := make(map[string]int, len(models))
	for i, m := range models {
		queued[m] = int(lengths[i].Val())
	}
	return queued, nil
}
