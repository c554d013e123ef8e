package redisstore

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"phonebank/balancer"
	"phonebank/health"
	"phonebank/test/redistest"
)

func TestJoin(t *testing.T) {
	onBoth(t, func(t *testing.T, s *Store) {
		r := balancer.Replica{
			ID: "phone-01", Model: model, Engine: balancer.LlamaCpp, Slots: 2, Context: 8192,
			Prior: balancer.Speeds{Prefill: 60.5, Decode: 9}, EndsAt: time.UnixMilli(1_800_000_000_123),
		}
		join := func(r balancer.Replica) *balancer.View {
			t.Helper()
			if err := s.Join(t.Context(), []balancer.Replica{r}); err != nil {
				t.Fatal(err)
			}
			return view(t, s, r.ID)
		}
		first := join(r)
		want := &balancer.View{Replica: r, Generation: first.Generation, State: balancer.Joining, Since: first.Since}
		if diff := cmp.Diff(want, first); diff != "" {
			t.Errorf("view (-want +got):\n%s", diff)
		}
		if first.Since.IsZero() || first.Generation == 0 {
			t.Error("a joined replica has no Since or Generation")
		}
		setState(t, s, r.ID, balancer.Draining)
		c := balancer.Candidate{Replica: r.ID, Generation: first.Generation}
		if same := join(r); same.Generation != first.Generation || same.State != balancer.Draining {
			t.Errorf("joined unchanged: got %+v, want it left as it was", same)
		}
		setState(t, s, r.ID, balancer.Ready)
		admit(t, s, gw1, offer(ticket(1), "L1", c))
		r.Slots = 1
		if changed := join(r); changed.Generation <= first.Generation || changed.State != balancer.Joining || changed.Depth() != 0 {
			t.Errorf("joined changed: got %+v, want a new generation, joining, no leases", changed)
		}
		if got := free(t, s); len(got) != 0 {
			t.Errorf("free: %v, want none while joining", got)
		}
		if done := finish(t, s, balancer.Finish{By: gw1, Ticket: "t1", Lease: "L1", Cooling: time.Hour}); !done.Known {
			t.Error("the running ticket is unknown")
		}
		if v := view(t, s, r.ID); v.Depth() != 0 {
			t.Error("a void lease cools")
		}
	})
}

func TestLeave(t *testing.T) {
	onBoth(t, func(t *testing.T, s *Store) {
		a := phone(t, s, "a", 1)
		admit(t, s, gw1, offer(ticket(1), "L1", a))
		for range 2 {
			if err := s.Leave(t.Context(), "a"); err != nil {
				t.Fatal(err)
			}
		}
		if _, ok, err := s.Health(t.Context(), "a"); ok || err != nil {
			t.Errorf("Health after Leave: %v, %v", ok, err)
		}
		if again := phone(t, s, "a", 1); again.Generation <= a.Generation {
			t.Errorf("generation %d after %d", again.Generation, a.Generation)
		}
		if done := finish(t, s, balancer.Finish{By: gw1, Ticket: "t1", Lease: "L1"}); !done.Known {
			t.Error("the running ticket is unknown")
		}
		if err := s.Leave(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		left, err := s.client.Keys(t.Context(), "*").Result()
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(left)
		if want := []string{s.keys.prefix + "gen", s.keys.prefix + "owners"}; !slices.Equal(left, want) {
			t.Errorf("keys left: %v, want %v", left, want)
		}
	})
}

func TestSetHealthComparesAndSets(t *testing.T) {
	onBoth(t, func(t *testing.T, s *Store) {
		phone(t, s, "a", 1)
		read, _, err := s.Health(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		want := read
		want.State, want.Reason, want.Since = balancer.Suspect, "no answer", time.UnixMilli(1_700_000_000_001)
		want.LeaveAlone, want.LastGood = time.UnixMilli(1_700_000_000_002), time.UnixMilli(1_700_000_000_003)
		want.Misses, want.Failures, want.Busy = 2, 3, 4
		if ok, err := s.SetHealth(t.Context(), "a", want); !ok || err != nil {
			t.Fatalf("SetHealth: %v, %v", ok, err)
		}
		got, _, err := s.Health(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		want.Version++
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("record (-want +got):\n%s", diff)
		}
		other := want
		other.Generation++
		for _, stale := range []health.Record{read, other} {
			if ok, err := s.SetHealth(t.Context(), "a", stale); ok || err != nil {
				t.Errorf("SetHealth with %d/%d: %v, %v, want refused", stale.Generation, stale.Version, ok, err)
			}
		}
		if ok, err := s.SetHealth(t.Context(), "nobody", read); ok || err != nil {
			t.Errorf("SetHealth of nobody: %v, %v", ok, err)
		}
	})
}

func TestFreeReplicasInOrder(t *testing.T) {
	onBoth(t, func(t *testing.T, s *Store) {
		for _, id := range []balancer.ReplicaID{"a", "b", "c"} {
			phone(t, s, id, 1)
		}
		rank := func(id balancer.ReplicaID, d time.Duration) {
			t.Helper()
			r, _, err := s.Health(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			tk := ticket(1)
			tk.ID = "rank-" + string(id)
			admit(t, s, gw1, offer(tk, "L", balancer.Candidate{Replica: id, Generation: r.Generation}))
			finish(t, s, balancer.Finish{By: gw1, Ticket: tk.ID, Lease: "L", Rank: d})
		}
		rank("a", 30*time.Second)
		rank("b", 10*time.Second)
		rank("c", 20*time.Second)
		if got, want := free(t, s), []balancer.ReplicaID{"b", "c", "a"}; !slices.Equal(got, want) {
			t.Errorf("free: %v, want %v", got, want)
		}
		setState(t, s, "b", balancer.Suspect)
		if got, want := free(t, s), []balancer.ReplicaID{"c", "a", "b"}; !slices.Equal(got, want) {
			t.Errorf("b suspect: %v, want %v", got, want)
		}
		change(t, s, "c", func(r *health.Record) { r.LeaveAlone = time.Now().Add(150 * time.Millisecond) })
		if got, want := free(t, s), []balancer.ReplicaID{"a", "b"}; !slices.Equal(got, want) {
			t.Errorf("c left alone: %v, want %v", got, want)
		}
		eventually(t, "c is free again", func() bool { tick(t, s, gw1); return len(free(t, s)) == 3 })
	})
}

func TestDueIsSharedOut(t *testing.T) {
	onBoth(t, func(t *testing.T, s *Store) {
		for n := range 20 {
			phone(t, s, balancer.ReplicaID(fmt.Sprintf("p%02d", n)), 1)
		}
		seen := make(map[balancer.ReplicaID]int)
		for range 5 {
			ids, err := s.Due(t.Context(), time.Hour, 7)
			if err != nil {
				t.Fatal(err)
			}
			if len(ids) > 7 {
				t.Errorf("%d ids, want at most 7", len(ids))
			}
			for _, id := range ids {
				seen[id]++
			}
		}
		if len(seen) != 20 {
			t.Errorf("%d replicas due, want 20", len(seen))
		}
		for id, n := range seen {
			if n != 1 {
				t.Errorf("%s was due %d times, want once", id, n)
			}
		}
		next, err := s.client.ZRangeWithScores(t.Context(), s.keys.prefix+"due", 0, -1).Result()
		if err != nil {
			t.Fatal(err)
		}
		for _, z := range next {
			in := time.Until(time.UnixMilli(int64(z.Score)))
			if in < 47*time.Minute || in > 73*time.Minute {
				t.Errorf("%v: next probe in %v, want an hour give or take a fifth", z.Member, in)
			}
		}
		if spread := next[19].Score - next[0].Score; spread < 60_000 {
			t.Errorf("20 probes within %.0f ms", spread)
		}
	})
}

// The sums in Redis decay as balancer.Sum does.
func TestSamplesDecay(t *testing.T) {
	t.Parallel()
	i := redistest.Mini(t)
	s := openOn(t, i, Config{})
	now := time.UnixMilli(1_700_000_000_000)
	i.Mini.SetTime(now)
	a := phone(t, s, "a", 1)
	var want balancer.Sum
	teach := func(samples ...balancer.Sample) {
		t.Helper()
		tk := ticket(1)
		admit(t, s, gw1, offer(tk, "L", a))
		finish(t, s, balancer.Finish{By: gw1, Ticket: tk.ID, Lease: "L", Samples: samples})
	}
	for _, m := range []balancer.Sample{
		{Kind: balancer.PrefillSample, Bucket: 2, Amount: 7000, Seconds: 93.123456789012345},
		{Kind: balancer.PrefillSample, Bucket: 2, Amount: 6999.5, Seconds: 1e-9},
		{Kind: balancer.PrefillSample, Bucket: 2, Amount: 1e15 / 3, Seconds: 12},
	} {
		teach(m)
		want = want.Decayed(now)
		want = balancer.Sum{Amount: want.Amount + m.Amount, Seconds: want.Seconds + m.Seconds, At: now}
		now = now.Add(7*time.Minute + 13*time.Millisecond)
		i.Mini.SetTime(now)
	}
	teach(
		balancer.Sample{Kind: balancer.DecodeSample, Bucket: 3, Amount: 2, Seconds: 0.25},
		balancer.Sample{Kind: balancer.DecodeSample, Bucket: 3, Amount: 3, Seconds: 0.75},
		balancer.Sample{Kind: balancer.OverheadSample, Amount: 1, Seconds: 0.25},
		balancer.Sample{Kind: balancer.FailureSample, Amount: 0, Seconds: 1},
		// None of these is a measurement.
		balancer.Sample{Kind: balancer.FailureSample, Bucket: 1, Amount: 1, Seconds: 1},
		balancer.Sample{Kind: balancer.DecodeSample, Bucket: 3, Amount: math.NaN(), Seconds: 1},
		balancer.Sample{Kind: balancer.PrefillSample, Bucket: 2, Amount: math.NaN(), Seconds: 1},
		balancer.Sample{Kind: balancer.PrefillSample, Bucket: 2, Amount: math.Inf(1), Seconds: 1},
		balancer.Sample{Kind: balancer.PrefillSample, Bucket: 2, Amount: -1, Seconds: 1},
		balancer.Sample{Kind: "x y", Amount: 1, Seconds: 1},
	)
	got := view(t, s, "a").Learned
	if diff := cmp.Diff(want, got.Prefill[2], cmpopts.EquateApprox(1e-14, 0)); diff != "" {
		t.Errorf("prefill (-want +got):\n%s", diff)
	}
	got.Prefill[2] = balancer.Sum{}
	rest := balancer.Learned{
		Overhead: balancer.Sum{Amount: 1, Seconds: 0.25, At: now},
		Failure:  balancer.Sum{Amount: 0, Seconds: 1, At: now},
	}
	rest.Decode[3] = balancer.Sum{Amount: 5, Seconds: 1, At: now}
	if diff := cmp.Diff(rest, got); diff != "" {
		t.Errorf("the rest (-want +got):\n%s", diff)
	}
}

func TestSnapshotCountsQueues(t *testing.T) {
	onBoth(t, func(t *testing.T, s *Store) {
		var replicas []balancer.Replica
		for n := range 300 {
			replicas = append(replicas, balancer.Replica{ID: balancer.ReplicaID(fmt.Sprintf("p%03d", n)), Model: model, Slots: 1})
		}
		if err := s.Join(t.Context(), replicas); err != nil {
			t.Fatal(err)
		}
		admit(t, s, gw1, offer(ticket(1), ""))
		admit(t, s, gw1, offer(ticket(2), ""))
		snap, err := s.Snapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(snap.Views) != 300 || len(snap.Pool(model)) != 300 || snap.Queued[model] != 2 {
			t.Errorf("%d views, %d in the pool, %d queued, want 300, 300, 2", len(snap.Views), len(snap.Pool(model)), snap.Queued[model])
		}
		if !slices.IsSortedFunc(snap.Views, func(a, b balancer.View) int { return strings.Compare(string(a.ID), string(b.ID)) }) {
			t.Error("views are not in order")
		}
		if age := time.Since(snap.At); age < -time.Minute || age > time.Minute {
			t.Errorf("taken at %v", snap.At)
		}
	})
}
