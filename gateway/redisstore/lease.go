package redisstore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"phonebank/balancer"
)

// Assign implements balancer.Store. Repeating it with the same lease returns it. After ErrUnavailable a grant may stand nevertheless; if it
// was for by's own ticket, the store puts the ticket back into the queue on its own unless the lease is assigned or finished meanwhile.
func (s *Store) Assign(ctx context.Context, by balancer.Owner, ticket, lease string, c []balancer.Candidate, hold bool) (*balancer.Lease, error) {
	if len(c) > 0 {
		if err := validLease(lease, c); err != nil {
			return nil, fmt.Errorf("assign %s: %w", ticket, err)
		}
	}
	args := []any{string(by), ticket, lease, flagText(hold), s.config.OfferTTL.Milliseconds()}
	r, err := s.evalList(ctx, s.scripts.assign, appendCandidates(args, c)...)
	if err != nil {
		if len(c) > 0 {
			s.owed.add(err, balancer.Finish{By: by, Ticket: ticket, Lease: lease, Requeue: true})
		}
		return nil, err
	}
	if !r.more() {
		return nil, nil
	}
	s.owed.clear(ticket)
	l := &balancer.Lease{ID: lease, Ticket: ticket}
	readGrant(&r, l)
	return l, r.failed(s.scripts.assign)
}

// Take implements balancer.Store. After ErrUnavailable the store puts the ticket back into the queue unless it is taken meanwhile.
func (s *Store) Take(ctx context.Context, by balancer.Owner, ticket, lease string) (bool, error) {
	ok, err := s.evalFlag(ctx, s.scripts.take, string(by), ticket, lease)
	switch {
	case err != nil:
		s.owed.add(err, balancer.Finish{By: by, Ticket: ticket, Lease: lease, Requeue: true})
	case ok:
		s.owed.clear(ticket)
	}
	return ok, err
}

// Assigned implements balancer.Store.
func (s *Store) Assigned(ctx context.Context, by balancer.Owner) ([]balancer.Lease, error) {
	var offers []string
	err := s.call(ctx, "assigned", func(ctx context.Context) error {
		var err error
		offers, err = s.client.HVals(ctx, s.keys.offered(string(by))).Result()
		return err
	})
	if err != nil {
		return nil, err
	}
	leases := make([]balancer.Lease, 0, len(offers))
	for _, text := range offers {
		l, err := parseOffer(text)
		if err != nil {
			return nil, fmt.Errorf("redis assigned: %w", err)
		}
		leases = append(leases, l)
	}
	return leases, nil
}

// parseOffer reads "lease ticket replica generation predicted_ms", as assign.lua writes it.
func parseOffer(text string) (balancer.Lease, error) {
	f := strings.Fields(text)
	if len(f) != 5 {
		return balancer.Lease{}, errors.New("offer has not five fields")
	}
	gen, err1 := strconv.ParseInt(f[3], 10, 64)
	ms, err2 := strconv.ParseInt(f[4], 10, 64)
	if err := errors.Join(err1, err2); err != nil {
		return balancer.Lease{}, fmt.Errorf("offer: %w", err)
	}
	return balancer.Lease{
		ID: f[0], Ticket: f[1], Replica: balancer.ReplicaID(f[2]), Generation: gen, Predicted: time.Duration(ms) * time.Millisecond,
	}, nil
}

// Finish implements balancer.Store. Without a lease it ends the ticket in any
// state, so a caller that has gone need not know whether it still waited. After ErrUnavailable the store repeats it on its own.
func (s *Store) Finish(ctx context.Context, f balancer.Finish) (balancer.Finished, error) {
	s.owed.clear(f.Ticket)
	done, err := s.finish(ctx, f)
	if err != nil {
		s.owed.add(err, f)
	}
	return done, err
}

func (s *Store) finish(ctx context.Context, f balancer.Finish) (balancer.Finished, error) {
	args := []any{
		string(f.By), f.Ticket, f.Lease, flagText(f.Requeue), string(f.Tried), max(0, f.Cooling.Milliseconds()),
		max(0, f.Rank.Milliseconds()), max(0, f.Tokens), flagText(f.Failed), balancer.HalfLife.Milliseconds(),
	}
	if f.Tried != "" && !validID(string(f.Tried)) {
		return balancer.Finished{}, errors.New("finish: tried is no replica id")
	}
	r, err := s.evalList(ctx, s.scripts.finish, appendSamples(args, f.Samples)...)
	if err != nil {
		return balancer.Finished{}, err
	}
	done := balancer.Finished{Known: r.flag()}
	if r.more() {
		model := r.text()
		heads := r.list()
		done.Heads = readHeads(&heads, model)
		if r.err == nil {
			r.err = heads.err
		}
	}
	return done, r.failed(s.scripts.finish)
}

// appendSamples adds three arguments for each sum that the samples change. The script wants each sum once, so samples of one are added up.
func appendSamples(args []any, samples []balancer.Sample) []any {
	names := make([]string, 0, len(samples))
	totals := make([]balancer.Sample, 0, len(samples))
	for _, m := range samples {
		name, ok := sumField(m)
		if !ok {
			continue
		}
		at := slices.Index(names, name)
		if at < 0 {
			names, totals = append(names, name), append(totals, m)
			continue
		}
		totals[at].Amount += m.Amount
		totals[at].Seconds += m.Seconds
	}
	for i, name := range names {
		args = append(args, name, formatFloat(totals[i].Amount), formatFloat(totals[i].Seconds))
	}
	return args
}

// sumField names the sum a sample belongs to. One that is no measurement (unknown kind, negative, not finite) is left out: it would poison
// the sum for good.
func sumField(m balancer.Sample) (string, bool) {
	buckets := 1
	switch m.Kind {
	case balancer.PrefillSample:
		buckets = balancer.PrefillBuckets
	case balancer.DecodeSample:
		buckets = balancer.DecodeBuckets
	case balancer.OverheadSample, balancer.FailureSample:
	default:
		return "", false
	}
	if m.Bucket < 0 || m.Bucket >= buckets || !measured(m.Amount) || !measured(m.Seconds) {
		return "", false
	}
	return string(m.Kind) + strconv.Itoa(m.Bucket), true
}

func measured(x float64) bool { return x >= 0 && !math.IsInf(x, 0) }

func formatFloat(x float64) string { return strconv.FormatFloat(x, 'g', 17, 64) }
