package redisstore

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"phonebank/auth/limit"
	"phonebank/balancer"
	"phonebank/health"
	"phonebank/test/redistest"
)

func TestAdmitGrantsAtOnce(t *testing.T) {
	onBoth(t, func(t *testing.T, s *Store) {
		a := phone(t, s, "a", 1)
		p := admit(t, s, gw1, offer(ticket(1), "L1", a))
		want := &balancer.Lease{ID: "L1", Ticket: "t1", Replica: "a", Generation: a.Generation, Predicted: 20 * time.Second}
		if diff := cmp.Diff(want, p.Lease); diff != "" {
			t.Errorf("lease (-want +got):\n%s", diff)
		}
		if again := admit(t, s, gw1, offer(ticket(1), "L2", a)); again.Lease == nil || again.Lease.ID != "L1" {
			t.Errorf("admitted again: got %+v, want lease L1", again.Lease)
		}
		p = admit(t, s, gw1, offer(ticket(2), "L3", a))
		if p.Lease != nil || p.Position != 0 || len(p.Free) != 0 {
			t.Errorf("full phone: got %+v, want to wait first in line with no free phone", p)
		}
		v := view(t, s, "a")
		if v.Depth() != 1 || v.Free() != 0 {
			t.Errorf("depth %d, free %d, want 1 and 0", v.Depth(), v.Free())
		}
		if got := time.Until(v.Ends[0]).Round(10 * time.Second); got != 20*time.Second {
			t.Errorf("predicted end in %v, want 20 s", got)
		}
	})
}

func TestAdmitRefusesUnfitCandidates(t *testing.T) {
	tests := []struct {
		name  string
		spoil func(t *testing.T, s *Store, c *balancer.Candidate, tk *balancer.Ticket)
	}{
		{"unknown", func(_ *testing.T, _ *Store, c *balancer.Candidate, _ *balancer.Ticket) { c.Replica = "nobody" }},
		{"older generation", func(_ *testing.T, _ *Store, c *balancer.Candidate, _ *balancer.Ticket) { c.Generation-- }},
		{"other model", func(_ *testing.T, _ *Store, _ *balancer.Candidate, tk *balancer.Ticket) { tk.Model = "llama" }},
		{"too few slots", func(_ *testing.T, _ *Store, _ *balancer.Candidate, tk *balancer.Ticket) { tk.Slots = 3 }},
		{"down", func(t *testing.T, s *Store, _ *balancer.Candidate, _ *balancer.Ticket) {
			setState(t, s, "a", balancer.Down)
		}},
		{"joining", func(t *testing.T, s *Store, _ *balancer.Candidate, _ *balancer.Ticket) {
			setState(t, s, "a", balancer.Joining)
		}},
		{"draining", func(t *testing.T, s *Store, _ *balancer.Candidate, _ *balancer.Ticket) {
			setState(t, s, "a", balancer.Draining)
		}},
		{"left alone", func(t *testing.T, s *Store, _ *balancer.Candidate, _ *balancer.Ticket) {
			change(t, s, "a", func(r *health.Record) { r.LeaveAlone = time.Now().Add(time.Hour) })
		}},
		{"gone", func(t *testing.T, s *Store, _ *balancer.Candidate, _ *balancer.Ticket) {
			if err := s.Leave(t.Context(), "a"); err != nil {
				t.Fatal(err)
			}
		}},
	}
	onBoth(t, func(t *testing.T, s *Store) {
		for n, tt := range tests {
			t.Run(tt.name, func(t *testing.T) {
				c, tk := phone(t, s, "a", 2), ticket(n)
				tt.spoil(t, s, &c, &tk)
				if p := admit(t, s, gw1, offer(tk, "L", c)); p.Lease != nil {
					t.Errorf("granted %+v", p.Lease)
				}
				finish(t, s, balancer.Finish{By: gw1, Ticket: tk.ID})
				if err := s.Leave(t.Context(), "a"); err != nil {
					t.Fatal(err)
				}
			})
		}
	})
}

func TestNobodyIsPassedUnlessHeld(t *testing.T) {
	onBoth(t, func(t *testing.T, s *Store) {
		a := phone(t, s, "a", 1)
		admit(t, s, gw1, offer(ticket(1), ""))
		if p := admit(t, s, gw1, offer(ticket(2), "L2", a)); p.Lease != nil || p.Position != 1 {
			t.Errorf("behind one who waits: got %+v, want place 1", p)
		}
		for _, id := range []string{"t1", "t2"} {
			if _, err := s.Assign(t.Context(), gw1, id, "", nil, true); err != nil {
				t.Fatal(err)
			}
		}
		if h := heads(t, s); h.Tickets[0].HeldSince.IsZero() {
			t.Error("held ticket has no HeldSince")
		}
		if p := admit(t, s, gw1, offer(ticket(3), "L3", a)); p.Lease == nil {
			t.Errorf("all ahead are held: got %+v, want a lease", p)
		}
		if _, err := s.Assign(t.Context(), gw1, "t1", "", nil, false); err != nil {
			t.Fatal(err)
		}
		if h := heads(t, s); !h.Tickets[0].HeldSince.IsZero() || h.Tickets[1].HeldSince.IsZero() {
			t.Errorf("t1 released, t2 held: got %v and %v", h.Tickets[0].HeldSince, h.Tickets[1].HeldSince)
		}
		hold := offer(ticket(4), "L4", phone(t, s, "b", 1))
		hold.Hold = true
		if p := admit(t, s, gw1, hold); p.Lease != nil {
			t.Errorf("hold: got %+v, want to wait", p)
		}
	})
}

func TestQueueBounds(t *testing.T) {
	onBoth(t, func(t *testing.T, s *Store) {
		limits := limit.Limits{RequestsPerMinute: 10, TokensPerMinute: 1000, Concurrent: 10}
		enter := func(n int, b balancer.Bounds, c ...balancer.Candidate) (limit.Decision, balancer.Placement) {
			t.Helper()
			o := offer(ticket(n), fmt.Sprintf("L%d", n), c...)
			o.Bounds = b
			d, p, err := s.Admit(t.Context(), gw1, "shop", limits, limit.Cost{Requests: 1, Tokens: 100}, o)
			if err != nil || !d.Allowed {
				t.Fatalf("Admit: %+v, %v", d, err)
			}
			return d, p
		}
		enter(1, balancer.Bounds{Pool: 1, Key: 1})
		d, p := enter(2, balancer.Bounds{Pool: 1})
		if p.Full != balancer.PoolFull || d.Requests.Remaining != 9 || d.Tokens.Remaining != 900 {
			t.Errorf("pool full: got %+v %+v, want PoolFull and nothing charged", p, d)
		}
		if _, p = enter(2, balancer.Bounds{Key: 1}); p.Full != balancer.KeyFull {
			t.Errorf("key full: got %+v, want KeyFull", p)
		}
		if _, err := s.Assign(t.Context(), gw1, "t1", "", nil, true); err != nil {
			t.Fatal(err)
		}
		if _, p = enter(2, balancer.Bounds{Pool: 1, Key: 1}, phone(t, s, "a", 1)); p.Lease == nil {
			t.Errorf("need not wait: got %+v, want a lease in spite of the bounds", p)
		}
	})
}

func TestAssignToOwnTicket(t *testing.T) {
	onBoth(t, func(t *testing.T, s *Store) {
		a, b := phone(t, s, "a", 1), phone(t, s, "b", 1)
		admit(t, s, gw1, offer(ticket(1), ""))
		admit(t, s, gw1, offer(ticket(2), ""))
		if l := assign(t, s, gw1, "t1", "L1", a, b); l == nil || l.Replica != "a" {
			t.Fatalf("got %+v, want a", l)
		}
		if l := assign(t, s, gw1, "t1", "L1", b); l == nil || l.Replica != "a" {
			t.Errorf("same lease again: got %+v, want it on a", l)
		}
		if l := assign(t, s, gw1, "t1", "L9", b); l != nil {
			t.Errorf("no longer queued: got %+v, want none", l)
		}
		if l := assign(t, s, gw1, "nobody", "L9", b); l != nil {
			t.Errorf("unknown ticket: got %+v, want none", l)
		}
		if l := assign(t, s, gw1, "t2", "L2", a, b); l == nil || l.Replica != "b" {
			t.Errorf("a is taken: got %+v, want b", l)
		}
		if ok, err := s.Take(t.Context(), gw1, "t1", "L1"); !ok || err != nil {
			t.Errorf("Take of one's own: %v, %v, want true", ok, err)
		}
		if got, err := s.Assigned(t.Context(), gw1); len(got) != 0 || err != nil {
			t.Errorf("Assigned: %v, %v, want none", got, err)
		}
	})
}

func TestOfferIsTakenOnce(t *testing.T) {
	onBoth(t, func(t *testing.T, s *Store) {
		a := phone(t, s, "a", 1)
		admit(t, s, gw1, offer(ticket(1), ""))
		admit(t, s, gw1, offer(ticket(2), ""))
		want := assign(t, s, gw2, "t1", "L1", a)
		got, err := s.Assigned(t.Context(), gw1)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]balancer.Lease{*want}, got); diff != "" {
			t.Errorf("Assigned (-want +got):\n%s", diff)
		}
		for _, tt := range []struct {
			by            balancer.Owner
			ticket, lease string
			want          bool
		}{{gw2, "t1", "L1", false}, {gw1, "t1", "L2", false}, {gw1, "t2", "L1", false}, {gw1, "t2", "", false}, {gw1, "t1", "L1", true}, {gw1, "t1", "L1", true}} {
			if ok, err := s.Take(t.Context(), tt.by, tt.ticket, tt.lease); ok != tt.want || err != nil {
				t.Errorf("Take(%s %s %s): %v, %v, want %v", tt.by, tt.ticket, tt.lease, ok, err, tt.want)
			}
		}
		if got, _ := s.Assigned(t.Context(), gw1); len(got) != 0 {
			t.Errorf("Assigned after Take: %v", got)
		}
	})
}

func TestOfferIsTakenBack(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, i *redistest.Instance) {
		s := openOn(t, i, Config{OfferTTL: 20 * time.Millisecond})
		a := phone(t, s, "a", 1)
		admit(t, s, gw1, offer(ticket(1), ""))
		assign(t, s, gw2, "t1", "L1", a)
		back := 0
		eventually(t, "offer is taken back", func() bool { back += tick(t, s, gw2).TakenBack; return back > 0 })
		if ok, err := s.Take(t.Context(), gw1, "t1", "L1"); ok || err != nil {
			t.Errorf("late Take: %v, %v, want false", ok, err)
		}
		if got := waiting(t, s); got != "t1" {
			t.Errorf("waiting: %q, want t1", got)
		}
		if got := free(t, s); !slices.Equal(got, []balancer.ReplicaID{"a"}) {
			t.Errorf("free: %v, want a", got)
		}
	})
}

func TestOfferOfChangedReplicaIsVoid(t *testing.T) {
	onBoth(t, func(t *testing.T, s *Store) {
		a := phone(t, s, "a", 1)
		admit(t, s, gw1, offer(ticket(1), ""))
		assign(t, s, gw2, "t1", "L1", a)
		phone(t, s, "a", 2)
		if ok, err := s.Take(t.Context(), gw1, "t1", "L1"); ok || err != nil {
			t.Errorf("Take: %v, %v, want false", ok, err)
		}
		if got := waiting(t, s); got != "t1" {
			t.Errorf("waiting: %q, want t1", got)
		}
	})
}

func TestFinish(t *testing.T) {
	onBoth(t, func(t *testing.T, s *Store) {
		a := phone(t, s, "a", 1)
		admit(t, s, gw1, offer(ticket(2), "L2", a))
		for n := 3; n <= 8; n++ {
			admit(t, s, gw2, offer(ticket(n), ""))
		}
		for _, f := range []balancer.Finish{
			{By: gw1, Ticket: "t2", Lease: "other"}, {By: gw2, Ticket: "t2", Lease: "L2"}, {By: gw1, Ticket: "t3"}, {By: gw1, Ticket: "nobody"},
		} {
			if done := finish(t, s, f); done.Known {
				t.Errorf("Finish(%+v): known", f)
			}
		}
		done := finish(t, s, balancer.Finish{By: gw1, Ticket: "t2", Lease: "L2"})
		if !done.Known || done.Heads.Model != model || len(done.Heads.Tickets) != 4 || !slices.Equal(done.Heads.Free, []balancer.ReplicaID{"a"}) {
			t.Fatalf("got %+v, want four heads and a free", done)
		}
		if diff := cmp.Diff(balancer.Queued{Ticket: ticket(3), Owner: gw2}, done.Heads.Tickets[0]); diff != "" {
			t.Errorf("head (-want +got):\n%s", diff)
		}
		if done := finish(t, s, balancer.Finish{By: gw1, Ticket: "t2", Lease: "L2"}); done.Known {
			t.Error("finished twice")
		}
		for n := 3; n <= 8; n++ {
			if done := finish(t, s, balancer.Finish{By: gw2, Ticket: ticket(n).ID}); !done.Known {
				t.Errorf("t%d: unknown", n)
			}
		}
		if got := leftovers(t, s); len(got) != 0 {
			t.Errorf("keys left: %v", got)
		}
	})
}

func TestRequeueKeepsThePlace(t *testing.T) {
	onBoth(t, func(t *testing.T, s *Store) {
		a, b := phone(t, s, "a", 1), phone(t, s, "b", 1)
		admit(t, s, gw1, offer(ticket(1), "L1", a))
		admit(t, s, gw1, offer(ticket(2), "L2", b))
		admit(t, s, gw1, offer(ticket(3), ""))
		for _, phone := range []balancer.ReplicaID{"a", "a"} {
			done := finish(t, s, balancer.Finish{By: gw1, Ticket: "t1", Lease: "L1", Requeue: true, Tried: phone})
			if !done.Known {
				t.Fatal("unknown")
			}
			assign(t, s, gw1, "t1", "L1", a)
		}
		finish(t, s, balancer.Finish{By: gw1, Ticket: "t1", Lease: "L1", Requeue: true, Tried: "c"})
		want := ticket(1)
		want.Tried = []balancer.ReplicaID{"a", "c"}
		if diff := cmp.Diff(want, heads(t, s).Tickets[0].Ticket); diff != "" {
			t.Errorf("head (-want +got):\n%s", diff)
		}
		places, err := s.Positions(t.Context(), []balancer.Ticket{ticket(3), ticket(1), ticket(2), ticket(9)})
		if err != nil {
			t.Fatal(err)
		}
		if want := []int{1, 0, -1, -1}; !slices.Equal(places, want) {
			t.Errorf("Positions: %v, want %v", places, want)
		}
	})
}

func TestSlotCools(t *testing.T) {
	onBoth(t, func(t *testing.T, s *Store) {
		a := phone(t, s, "a", 1)
		admit(t, s, gw1, offer(ticket(1), "L1", a))
		finish(t, s, balancer.Finish{By: gw1, Ticket: "t1", Lease: "L1", Cooling: 100 * time.Millisecond})
		if p := admit(t, s, gw1, offer(ticket(2), "L2", a)); p.Lease != nil {
			t.Error("granted a slot that cools")
		}
		if v := view(t, s, "a"); v.Free() != 0 {
			t.Error("a cooling slot counts as free")
		}
		eventually(t, "slot is free again", func() bool { tick(t, s, gw1); return len(free(t, s)) == 1 })
		if l := assign(t, s, gw1, "t2", "L2", a); l == nil {
			t.Error("not granted after cooling")
		}
	})
}

func TestTicketOfSeveralSlots(t *testing.T) {
	onBoth(t, func(t *testing.T, s *Store) {
		a := phone(t, s, "a", 4)
		three := ticket(1)
		three.Slots = 3
		admit(t, s, gw1, offer(three, "L1", a))
		if v := view(t, s, "a"); v.Free() != 1 {
			t.Fatalf("free: %d, want 1", v.Free())
		}
		two := ticket(2)
		two.Slots = 2
		if p := admit(t, s, gw1, offer(two, "L2", a)); p.Lease != nil {
			t.Error("two slots granted of one")
		}
		finish(t, s, balancer.Finish{By: gw1, Ticket: "t1", Lease: "L1", Cooling: time.Hour})
		if v := view(t, s, "a"); v.Depth() != 3 {
			t.Errorf("cooling: depth %d, want 3", v.Depth())
		}
	})
}

func TestFinishWithoutLeaseEndsAnyState(t *testing.T) {
	onBoth(t, func(t *testing.T, s *Store) {
		a := phone(t, s, "a", 2)
		admit(t, s, gw1, offer(ticket(1), "L1", a))
		admit(t, s, gw1, offer(ticket(2), ""))
		assign(t, s, gw2, "t2", "L2", a)
		for _, id := range []string{"t1", "t2"} {
			if done := finish(t, s, balancer.Finish{By: gw1, Ticket: id}); !done.Known {
				t.Errorf("%s: unknown", id)
			}
		}
		if v := view(t, s, "a"); v.Free() != 2 {
			t.Errorf("free: %d, want 2", v.Free())
		}
		if got := leftovers(t, s); len(got) != 0 {
			t.Errorf("keys left: %v", got)
		}
	})
}

// Sixty-four at once for four slots: exactly four get one.
func TestRaceForSlots(t *testing.T) {
	onBoth(t, func(t *testing.T, s *Store) {
		a := phone(t, s, "a", 4)
		for n := range 64 {
			hold := offer(ticket(n), "")
			hold.Hold = n%2 == 0
			if hold.Hold {
				admit(t, s, gw1, hold)
			}
		}
		var granted atomic.Int64
		var wg sync.WaitGroup
		for n := range 64 {
			wg.Go(func() {
				lease := fmt.Sprintf("L%d", n)
				if n%2 == 0 {
					if l, err := s.Assign(t.Context(), gw1, ticket(n).ID, lease, []balancer.Candidate{a}, false); err != nil {
						t.Error(err)
					} else if l != nil {
						granted.Add(1)
					}
					return
				}
				_, p, err := s.Admit(t.Context(), gw2, "shop", limit.Limits{}, limit.Cost{}, offer(ticket(n), lease, a))
				if err != nil {
					t.Error(err)
				} else if p.Lease != nil {
					granted.Add(1)
				}
			})
		}
		wg.Wait()
		if got := granted.Load(); got != 4 {
			t.Errorf("granted %d, want 4", got)
		}
		if v := view(t, s, "a"); v.Depth() != 4 {
			t.Errorf("depth %d, want 4", v.Depth())
		}
	})
}

func TestHostileArguments(t *testing.T) {
	onBoth(t, func(t *testing.T, s *Store) {
		a := phone(t, s, "a", 1)
		for _, id := range []string{"", "a b", "x#2", "a}:r:b", "\"]]..redis.call('FLUSHALL')--", "t\r\nFLUSHALL\r\n", "\x00"} {
			tk := ticket(1)
			tk.ID = id
			if _, _, err := s.Admit(t.Context(), gw1, "shop", limit.Limits{}, limit.Cost{}, offer(tk, "L1")); err == nil {
				t.Errorf("ticket %q: admitted", id)
			}
			if _, _, err := s.Admit(t.Context(), gw1, "shop", limit.Limits{}, limit.Cost{}, offer(ticket(2), id, a)); err == nil {
				t.Errorf("lease %q: admitted", id)
			}
			if err := s.Join(t.Context(), []balancer.Replica{{ID: balancer.ReplicaID(id), Model: model, Slots: 1}}); err == nil {
				t.Errorf("replica %q: joined", id)
			}
		}
		// Names of models and keys are free: they are data wherever they go.
		evil := ticket(3)
		evil.Model = "m\r\n\"]]..redis.call('FLUSHALL')-- {x}:y '"
		evil.Key = "k\x00{y} 'a b"
		admit(t, s, gw1, offer(evil, ""))
		h, err := s.Heads(t.Context(), evil.Model, 1)
		if err != nil || len(h.Tickets) != 1 {
			t.Fatalf("Heads: %+v, %v", h, err)
		}
		if diff := cmp.Diff(evil, h.Tickets[0].Ticket); diff != "" {
			t.Errorf("ticket (-want +got):\n%s", diff)
		}
		if err := s.Leave(t.Context(), "a b"); err != nil {
			t.Errorf("Leave of an impossible id: %v", err)
		}
		view(t, s, "a")
	})
}
