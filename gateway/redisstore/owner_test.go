package redisstore

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"phonebank/balancer"
	"phonebank/test/redistest"
)

func beat(t testing.TB, s *Store, by balancer.Owner) bool {
	t.Helper()
	known, err := s.Beat(t.Context(), by)
	if err != nil {
		t.Fatalf("Beat: %v", err)
	}
	return known
}

func TestBeatTellsLoss(t *testing.T) {
	onBoth(t, func(t *testing.T, s *Store) {
		admit(t, s, gw1, offer(ticket(1), ""))
		for n, want := range []bool{false, true, true} {
			if got := beat(t, s, gw1); got != want {
				t.Errorf("beat %d: known %v, want %v", n, got, want)
			}
		}
		if err := s.client.FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		// New work must not hide the loss.
		admit(t, s, gw1, offer(ticket(2), ""))
		if beat(t, s, gw1) {
			t.Error("known after the state was lost")
		}
	})
}

func TestRestore(t *testing.T) {
	onBoth(t, func(t *testing.T, s *Store) {
		a := phone(t, s, "a", 1)
		admit(t, s, gw1, offer(ticket(1), "L1", a))
		admit(t, s, gw1, offer(ticket(2), ""))
		if err := s.client.FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		again := phone(t, s, "a", 1)
		admit(t, s, gw2, offer(ticket(3), "L3", again))
		held := ticket(2)
		held.HeldSince, held.Tried = time.UnixMilli(1_700_000_000_000), []balancer.ReplicaID{"x", "y"}
		for range 2 {
			if err := s.Restore(t.Context(), gw1, ticket(1), &balancer.Lease{ID: "L1", Ticket: "t1", Replica: "a", Generation: a.Generation}); err != nil {
				t.Fatal(err)
			}
			if err := s.Restore(t.Context(), gw1, held, nil); err != nil {
				t.Fatal(err)
			}
		}
		if v := view(t, s, "a"); v.Depth() != 2 || v.Free() != 0 {
			t.Errorf("depth %d, free %d: want 2 (what runs, runs) and 0", v.Depth(), v.Free())
		}
		if diff := cmp.Diff(balancer.Queued{Ticket: held, Owner: gw1}, heads(t, s).Tickets[0]); diff != "" {
			t.Errorf("waiting (-want +got):\n%s", diff)
		}
		for _, f := range []balancer.Finish{{By: gw1, Ticket: "t1", Lease: "L1"}, {By: gw1, Ticket: "t2"}, {By: gw2, Ticket: "t3", Lease: "L3"}} {
			if done := finish(t, s, f); !done.Known {
				t.Errorf("%s: unknown", f.Ticket)
			}
		}
		if got := leftovers(t, s); len(got) != 0 {
			t.Errorf("keys left: %v", got)
		}
	})
}

// A lease restored before its replica has joined again is there when it has.
func TestRestoreBeforeJoin(t *testing.T) {
	onBoth(t, func(t *testing.T, s *Store) {
		if err := s.Restore(t.Context(), gw1, ticket(1), &balancer.Lease{ID: "L1", Ticket: "t1", Replica: "a", Generation: 7}); err != nil {
			t.Fatal(err)
		}
		phone(t, s, "a", 1)
		if got := free(t, s); len(got) != 0 {
			t.Errorf("free: %v, want none", got)
		}
		finish(t, s, balancer.Finish{By: gw1, Ticket: "t1", Lease: "L1"})
		if got := free(t, s); len(got) != 1 {
			t.Errorf("free: %v, want a", got)
		}
	})
}

func TestOneTicksForAll(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, i *redistest.Instance) {
		s := openOn(t, i, Config{Turn: 50 * time.Millisecond})
		admit(t, s, gw1, offer(ticket(1), ""))
		if k := tick(t, s, gw1); !k.Holder || !slices.Equal(k.Pools, []string{model}) || !k.Protected {
			t.Errorf("first: got %+v, want the turn, one pool, protected", k)
		}
		if !tick(t, s, gw1).Holder {
			t.Error("the holder has lost its turn")
		}
		eventually(t, "the turn passes on", func() bool { return tick(t, s, gw2).Holder })
		if err := s.Resign(t.Context(), gw2); err != nil {
			t.Fatal(err)
		}
		if !tick(t, s, gw1).Holder {
			t.Error("the turn stays with one that has resigned")
		}
	})
}

func TestResignWithTickets(t *testing.T) {
	onBoth(t, func(t *testing.T, s *Store) {
		beat(t, s, gw1)
		admit(t, s, gw1, offer(ticket(1), ""))
		if err := s.Resign(t.Context(), gw1); err != nil {
			t.Fatal(err)
		}
		if err := s.client.Set(t.Context(), s.keys.prefix+"pulse", time.Now().UnixMilli(), 0).Err(); err != nil {
			t.Fatal(err)
		}
		if k := tick(t, s, gw2); k.Reaped != 1 {
			t.Errorf("got %+v, want one reaped", k)
		}
		if got := leftovers(t, s); len(got) != 0 {
			t.Errorf("keys left: %v", got)
		}
	})
}

// bubble runs f in fake time, on an embedded server.
func bubble(t *testing.T, f func(t *testing.T, s *Store)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { f(t, openOn(t, redistest.Mini(t), Config{})) })
}

// live beats and ticks for an owner until d has passed, once a second as a gateway does; each is called in between.
func live(t *testing.T, s *Store, by balancer.Owner, d time.Duration, each func()) {
	t.Helper()
	for n := range int(d / time.Second) {
		if n%4 == 0 {
			beat(t, s, by)
		}
		tick(t, s, by)
		each()
		<-time.After(time.Second)
	}
}

// Case: a gateway is killed. Its slots are usable again within 15 s, its waiting tickets are gone, the other's stay.
func TestDeadOwnerIsReaped(t *testing.T) {
	bubble(t, func(t *testing.T, s *Store) {
		a, b := phone(t, s, "a", 1), phone(t, s, "b", 1)
		live(t, s, gw2, 20*time.Second, func() { beat(t, s, gw1) })
		beat(t, s, gw1)
		admit(t, s, gw1, offer(ticket(1), "L1", a))
		admit(t, s, gw2, offer(ticket(2), "L2", b))
		admit(t, s, gw1, offer(ticket(3), ""))
		admit(t, s, gw2, offer(ticket(4), ""))
		died, usable := time.Now(), time.Duration(0)
		live(t, s, gw2, 30*time.Second, func() {
			if usable == 0 && slices.Contains(free(t, s), "a") {
				usable = time.Since(died)
			}
		})
		if usable < 12*time.Second || usable > 15*time.Second {
			t.Errorf("usable after %v, want 12 to 15 s", usable)
		}
		if got := waiting(t, s); got != "t4" {
			t.Errorf("waiting: %q, want t4", got)
		}
		if done := finish(t, s, balancer.Finish{By: gw2, Ticket: "t2", Lease: "L2"}); !done.Known {
			t.Error("the living one's lease is gone")
		}
		if done := finish(t, s, balancer.Finish{By: gw1, Ticket: "t1", Lease: "L1"}); done.Known {
			t.Error("the dead one's lease lives")
		}
		if beat(t, s, gw1) {
			t.Error("a reaped owner is known: it would not restore what it still serves")
		}
	})
}

// A ticket ends at its hard end whoever lives, and its slot cools for as long as a phone may work on.
func TestHardEnd(t *testing.T) {
	bubble(t, func(t *testing.T, s *Store) {
		tk := ticket(1)
		tk.HardEnd = 30 * time.Second
		live(t, s, gw1, 20*time.Second, func() {})
		admit(t, s, gw1, offer(tk, "L1", phone(t, s, "a", 1)))
		start, usable := time.Now(), time.Duration(0)
		live(t, s, gw1, 60*time.Second, func() {
			if usable == 0 && len(free(t, s)) == 1 {
				usable = time.Since(start)
			}
		})
		if usable < 35*time.Second || usable > 37*time.Second {
			t.Errorf("usable after %v, want 35 to 37 s", usable)
		}
	})
}

// After a gap in everybody's calls nobody is reaped until all had the time to beat again.
func TestNothingIsReapedAfterAGap(t *testing.T) {
	bubble(t, func(t *testing.T, s *Store) {
		a := phone(t, s, "a", 1)
		live(t, s, gw1, 20*time.Second, func() {})
		admit(t, s, gw1, offer(ticket(1), "L1", a))
		<-time.After(20 * time.Second)
		if k := tick(t, s, gw2); !k.Protected || k.Reaped != 0 {
			t.Errorf("first tick after the gap: %+v, want protected", k)
		}
		live(t, s, gw1, 30*time.Second, func() {})
		if done := finish(t, s, balancer.Finish{By: gw1, Ticket: "t1", Lease: "L1"}); !done.Known {
			t.Error("a living owner's lease was reaped")
		}
	})
}

// A dead owner with more tickets than one run of the script handles.
func TestManyTicketsAreReapedInOneTick(t *testing.T) {
	t.Parallel()
	i := redistest.Server(t)
	s := openOn(t, i, Config{})
	n := 3*tickEntries + 5
	for k := range n {
		admit(t, s, gw1, offer(ticket(k), ""))
	}
	if err := s.client.Set(t.Context(), s.keys.prefix+"pulse", time.Now().UnixMilli(), 0).Err(); err != nil {
		t.Fatal(err)
	}
	if err := s.client.ZAdd(t.Context(), s.keys.prefix+"owners", redis.Z{Member: string(gw1)}).Err(); err != nil {
		t.Fatal(err)
	}
	if k := tick(t, s, gw2); k.Reaped != n {
		t.Errorf("reaped %d, want %d", k.Reaped, n)
	}
	if got := leftovers(t, s); len(got) != 0 {
		t.Errorf("keys left: %v", got)
	}
}

func TestNotices(t *testing.T) {
	onBoth(t, func(t *testing.T, s *Store) {
		news := s.Notices(t.Context(), gw1)
		next := func() balancer.Notice {
			t.Helper()
			select {
			case n := <-news:
				return n
			case <-time.After(10 * time.Second):
				t.Fatal("no notice")
				return balancer.Notice{}
			}
		}
		if n := next(); !n.Fleet {
			t.Errorf("once subscribed: got %+v, want Fleet", n)
		}
		a := phone(t, s, "a", 1)
		for range 2 { // joined, ready
			if n := next(); !n.Fleet {
				t.Errorf("got %+v, want Fleet", n)
			}
		}
		admit(t, s, gw1, offer(ticket(1), ""))
		want := assign(t, s, gw2, "t1", "L1", a)
		if diff := cmp.Diff(balancer.Notice{Lease: want}, next()); diff != "" {
			t.Errorf("notice (-want +got):\n%s", diff)
		}
	})
}

func TestNoticesEndWithContext(t *testing.T) {
	bubble(t, func(t *testing.T, s *Store) {
		ctx, cancel := context.WithCancel(t.Context())
		news := s.Notices(ctx, gw1)
		<-news
		cancel()
		for range news {
		}
	})
}
