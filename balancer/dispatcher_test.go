package balancer_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"phonebank/auth/limit"
	"phonebank/balancer"
)

func TestGrantedAtOnce(t *testing.T) {
	inWorld(t, func(w *world) {
		w.join(phone{id: "slow", prefill: 20, decode: 4}, phone{id: "fast", prefill: 80, decode: 9, slots: 2})
		g := w.start("gw1")
		start := time.Now()
		first := g.mustAdmit(g.job("t1"))
		l := granted(w.t, first)
		if l.Replica != "fast" || l.Busy != 1 || time.Since(start) != 0 {
			t.Errorf("got %+v after %v, want fast at once, alone on it", l, time.Since(start))
		}
		second := g.mustAdmit(g.job("t2"))
		if l := granted(w.t, second); l.Replica != "fast" || l.Busy != 2 {
			t.Errorf("got %+v, want fast with two slots at work", l)
		}
		if waiting, running := g.room.Load(); waiting != 0 || running != 2 {
			t.Errorf("load: %d waiting, %d running, want 0, 2", waiting, running)
		}
		end(t, first)
		end(t, second)
	})
}

// A completion at one gateway serves who waits at another: at once by a notice, and by the next poll when that got lost.
func TestGrantedByAnotherGateway(t *testing.T) {
	for _, tt := range []struct {
		name     string
		deaf     bool
		min, max time.Duration
	}{
		{"by a notice", false, 0, 0},
		{"by the poll", true, time.Millisecond, time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.join(twins(1, 1)...)
				one, two := w.start("gw1"), w.startWith("gw2", func(s balancer.Store) balancer.Store {
					if tt.deaf {
						return deaf{s}
					}
					return s
				})
				runs := one.mustAdmit(one.job("t1"))
				granted(w.t, runs)
				waiting := two.mustAdmit(two.job("t2"))
				waits(w.t, waiting)
				time.Sleep(5500 * time.Millisecond)
				if s := waiting.Status(); !s.Waiting || s.Position != 0 || s.Predicted < time.Minute {
					w.t.Errorf("status %+v, want next, in more than a minute", s)
				}
				end(w.t, runs)
				freed := time.Now()
				l := granted(w.t, waiting)
				if took := time.Since(freed); took < tt.min || took > tt.max {
					w.t.Errorf("granted after %v, want %v to %v", took, tt.min, tt.max)
				}
				if l.Ticket != "t2" || w.depth("p0") != 1 {
					w.t.Errorf("lease %+v, depth %d", l, w.depth("p0"))
				}
				end(w.t, waiting)
			})
		})
	}
}

func TestPatienceEnds(t *testing.T) {
	inWorld(t, func(w *world) {
		w.join(twins(1, 1)...)
		g := w.start("gw1")
		runs := g.mustAdmit(g.job("t1"))
		granted(w.t, runs)
		tk := g.job("t2")
		tk.Deadline = tk.Arrived.Add(10 * time.Second)
		claim := g.mustAdmit(tk)
		start := time.Now()
		_, err := claim.Await(w.t.Context())
		if took := time.Since(start); !errors.Is(err, balancer.ErrPatience) || took != 10*time.Second {
			w.t.Errorf("got %v after %v, want ErrPatience after 10s", err, took)
		}
		end(w.t, claim)
		end(w.t, runs)
	})
}

func TestPoolAway(t *testing.T) {
	inWorld(t, func(w *world) {
		w.join(twins(2, 1)...)
		w.set("p0", balancer.Down)
		w.set("p1", balancer.Down)
		g := w.start("gw1")
		start := time.Now()
		claim := g.mustAdmit(g.job("t1"))
		_, err := claim.Await(w.t.Context())
		if took := time.Since(start); !errors.Is(err, balancer.ErrNoReplica) || took < 10*time.Second || took > 12*time.Second {
			w.t.Errorf("got %v after %v, want ErrNoReplica after 10s and a turn", err, took)
		}
		end(w.t, claim)

		// One that comes back in time is waited for.
		claim = g.mustAdmit(g.job("t2"))
		time.Sleep(8 * time.Second)
		w.set("p1", balancer.Ready)
		back := time.Now()
		if l := granted(w.t, claim); l.Replica != "p1" || time.Since(back) > 1500*time.Millisecond {
			w.t.Errorf("got %+v after %v, want p1 within a turn", l, time.Since(back))
		}
		end(w.t, claim)
	})
}

func TestOfferRefuses(t *testing.T) {
	inWorld(t, func(w *world) {
		w.join(phone{id: "small", prefill: 60, decode: 9, context: 2048})
		g := w.start("gw1")
		large, unknown := g.job("t1"), g.job("t2")
		unknown.Model = "other"
		for _, tt := range []struct {
			ticket balancer.Ticket
			want   error
		}{{large, balancer.ErrHopeless}, {unknown, balancer.ErrNoReplica}} {
			claim, err := g.admit(tt.ticket)
			if !errors.Is(err, tt.want) {
				w.t.Errorf("got %v, want %v", err, tt.want)
			}
			end(w.t, claim)
		}
		if waiting, running := g.room.Load(); waiting+running != 0 {
			w.t.Errorf("%d waiting, %d running", waiting, running)
		}
	})
}

func TestCancelledWhileQueued(t *testing.T) {
	inWorld(t, func(w *world) {
		w.join(twins(1, 1)...)
		g := w.start("gw1")
		runs := g.mustAdmit(g.job("t1"))
		granted(w.t, runs)
		claim := g.mustAdmit(g.job("t2"))
		ctx, cancel := context.WithCancelCause(w.t.Context())
		gone := errors.New("caller has gone")
		time.AfterFunc(3*time.Second, func() { cancel(gone) })
		if _, err := claim.Await(ctx); !errors.Is(err, gone) {
			w.t.Errorf("got %v, want the cause", err)
		}
		claim.End(ctx, balancer.Attempt{}, balancer.Settlement{})
		end(w.t, runs)
		if d := w.depth("p0"); d != 0 {
			w.t.Errorf("depth %d, want 0", d)
		}
	})
}

// An admission whose answer got lost stands in the queue although its caller was told to go. When a phone is found for it, the next in
// line gets that phone at once.
func TestLeaseForACallerWhoHasGone(t *testing.T) {
	inWorld(t, func(w *world) {
		w.join(twins(1, 1)...)
		one, two := w.start("gw1"), w.start("gw2")
		runs := one.mustAdmit(one.job("t1"))
		granted(w.t, runs)
		two.mute.Store(true)
		gone, err := two.admit(two.job("t2"))
		if !errors.Is(err, balancer.ErrUnavailable) {
			w.t.Fatalf("got %v, want ErrUnavailable", err)
		}
		end(w.t, gone)
		two.mute.Store(false)
		next := one.mustAdmit(one.job("t3"))
		end(w.t, runs)
		freed := time.Now()
		granted(w.t, next)
		if took := time.Since(freed); took > 2*time.Second {
			w.t.Errorf("the next got the phone after %v", took)
		}
		end(w.t, next)
		time.Sleep(3 * time.Second) // the store settles what it does not know of
	})
}

// An admission without an answer leaves nothing: no slot, no place, no share of the key's concurrency.
func TestUnansweredAdmissionIsUndone(t *testing.T) {
	inWorld(t, func(w *world) {
		w.join(twins(1, 2)...)
		g := w.start("gw1")
		end(w.t, g.mustAdmit(g.job("t0"))) // the script is loaded now
		synctest.Wait()                    // and the room's first calls are over: more failures would trip the breaker
		g.mute.Store(true)
		for i := range 2 {
			tk := g.job(fmt.Sprint("lost", i))
			tk.Key = "two"
			claim, err := g.admit(tk)
			if !errors.Is(err, balancer.ErrUnavailable) {
				w.t.Fatalf("got %v, want ErrUnavailable", err)
			}
			end(w.t, claim)
		}
		if d := w.depth("p0"); d == 0 {
			w.t.Fatal("no admission was committed: there is nothing to undo")
		}
		g.mute.Store(false)
		time.Sleep(5 * time.Second)
		if d := w.depth("p0"); d != 0 {
			w.t.Errorf("depth %d, want 0", d)
		}
		tk := g.job("t1")
		tk.Key = "two"
		claim := g.mustAdmit(tk)
		granted(w.t, claim)
		end(w.t, claim)
	})
}

// What ends while the shared state is away is settled when it is back.
func TestEndWhileTheStateIsAway(t *testing.T) {
	inWorld(t, func(w *world) {
		w.join(twins(2, 1)...)
		one, two := w.start("gw1"), w.start("gw2")
		a, b := one.mustAdmit(one.job("t1")), one.mustAdmit(one.job("t2"))
		granted(w.t, a)
		granted(w.t, b)
		waiting := two.mustAdmit(two.job("t3"))
		time.Sleep(10 * time.Second)
		w.redis.Mini.SetError("LOADING away")
		end(w.t, a)
		if err := b.Requeue(w.t.Context(), balancer.Attempt{Failed: true}); err != nil {
			w.t.Errorf("requeue: %v; want the accepted request to wait on", err)
		}
		if _, running := one.room.Load(); running != 0 {
			w.t.Errorf("%d still running", running)
		}
		time.Sleep(20 * time.Second)
		w.redis.Mini.SetError("")
		back := time.Now()
		granted(w.t, waiting)
		if took := time.Since(back); took > 5*time.Second {
			w.t.Errorf("granted %v after the state was back", took)
		}
		end(w.t, waiting) // it may have the only phone that has not failed b
		granted(w.t, b)
		time.Sleep(3 * time.Second)
		if d := w.depth("p0") + w.depth("p1"); d != 1 {
			w.t.Errorf("%d slots occupied, want 1", d)
		}
		end(w.t, b)
	})
}

// doubled delivers every notice twice, as a notice and a poll together may.
type doubled struct{ balancer.Store }

func (s doubled) Notices(ctx context.Context, by balancer.Owner) <-chan balancer.Notice {
	out := make(chan balancer.Notice)
	go func() {
		defer close(out)
		for n := range s.Store.Notices(ctx, by) {
			for range 2 {
				select {
				case out <- n:
				case <-ctx.Done():
				}
			}
		}
	}()
	return out
}

// A lease that is heard of twice is one lease: taking it again must not end it.
func TestLeaseHeardOfTwice(t *testing.T) {
	inWorld(t, func(w *world) {
		w.join(twins(1, 1)...)
		one := w.start("gw1")
		two := w.startWith("gw2", func(s balancer.Store) balancer.Store { return doubled{s} })
		runs := one.mustAdmit(one.job("t1"))
		granted(w.t, runs)
		waiting := two.mustAdmit(two.job("t2"))
		waits(w.t, waiting)
		end(w.t, runs)
		granted(w.t, waiting)
		time.Sleep(3 * time.Second)
		if d := w.depth("p0"); d != 1 {
			w.t.Errorf("depth %d, want 1: the request runs", d)
		}
		end(w.t, waiting)
	})
}

// A phone may be found for a request before the answer to its admission comes, or instead of it.
func TestLeaseBeforeTheAdmission(t *testing.T) {
	inWorld(t, func(w *world) {
		w.join(twins(1, 1)...)
		one, two := w.start("gw1"), w.start("gw2")
		runs := one.mustAdmit(one.job("t1"))
		granted(w.t, runs)
		claims := make([]*balancer.Claim, 2)
		for i := range claims {
			tk := two.job(fmt.Sprintf("t%d", i+2))
			claims[i] = two.room.Expect(tk)
			if _, _, err := two.store.Admit(w.t.Context(), two.owner, tk.Key, limit.Limits{}, limit.Cost{}, balancer.Offer{Ticket: tk}); err != nil {
				w.t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		end(w.t, runs)
		synctest.Wait()
		end(w.t, claims[0]) // its answer never came
		synctest.Wait()
		claims[1].Admitted(balancer.Placement{Position: 1}) // this one's comes late
		if l := granted(w.t, claims[1]); l.Ticket != "t3" {
			w.t.Errorf("got %+v", l)
		}
		end(w.t, claims[1])
	})
}

// A shared state that came back empty learns again what is still served, and nothing that has ended.
func TestStateIsLost(t *testing.T) {
	inWorld(t, func(w *world) {
		w.join(twins(2, 1)...)
		g := w.start("gw1")
		runs, ends, waiting := g.mustAdmit(g.job("t1")), g.mustAdmit(g.job("t2")), g.mustAdmit(g.job("t3"))
		on, other := granted(w.t, runs), granted(w.t, ends)
		time.Sleep(5 * time.Second)
		w.redis.Mini.FlushAll()
		w.join(twins(2, 1)...)
		w.set(string(other.Replica), balancer.Down) // so that what waits goes on waiting
		end(w.t, ends)
		time.Sleep(5 * time.Second)
		if d := w.depth(string(on.Replica)); d != 1 {
			w.t.Errorf("depth %d, want 1: the running lease is not back", d)
		}
		if d := w.depth(string(other.Replica)); d != 0 {
			w.t.Errorf("depth %d, want 0: a lease came back that had ended", d)
		}
		waits(w.t, waiting)
		end(w.t, runs)
		if l := granted(w.t, waiting); l.Replica != on.Replica {
			w.t.Errorf("got %+v, want %s", l, on.Replica)
		}
		end(w.t, waiting)
	})
}

// What ends just before it would be put back stays ended.
func TestEndWhileTheStateIsRestored(t *testing.T) {
	inWorld(t, func(w *world) {
		w.join(twins(1, 1)...)
		var runs *balancer.Claim
		g := w.startWith("gw1", func(s balancer.Store) balancer.Store {
			return hooked{Store: s, restore: func(string) { end(t, runs) }}
		})
		runs = g.mustAdmit(g.job("t1"))
		granted(w.t, runs)
		w.redis.Mini.FlushAll()
		w.join(twins(1, 1)...)
		time.Sleep(5 * time.Second)
		if d := w.depth("p0"); d != 0 {
			w.t.Errorf("depth %d, want 0", d)
		}
	})
}

// Whoever is refused, because another gateway was faster or a phone not as free as it seemed, is not passed by the next.
func TestRefusedIsNotPassed(t *testing.T) {
	inWorld(t, func(w *world) {
		w.join(twins(1, 1)...)
		refusals := 0
		g := w.startWith("gw1", func(s balancer.Store) balancer.Store {
			return hooked{Store: s, refuse: func(ticket string) bool {
				refusals++
				return refusals <= 2 && ticket == "t2"
			}}
		})
		runs, first := g.mustAdmit(g.job("t1")), g.mustAdmit(g.job("t2"))
		time.Sleep(time.Second)
		second := g.mustAdmit(g.job("t3"))
		end(w.t, runs)
		granted(w.t, first)
		if refusals < 2 {
			w.t.Errorf("refused %d times, want 2", refusals)
		}
		waits(w.t, second)
		end(w.t, first)
		granted(w.t, second)
		end(w.t, second)
	})
}

// A request whose phone failed keeps its place in the line, and is not given that phone again while another can be hoped for.
func TestRequeueKeepsTheRank(t *testing.T) {
	inWorld(t, func(w *world) {
		w.join(phone{id: "fast", prefill: 80, decode: 9}, phone{id: "slow", prefill: 60, decode: 8})
		g := w.start("gw1")
		first := g.mustAdmit(g.job("t1"))
		granted(w.t, first)
		time.Sleep(time.Second)
		blocker := g.mustAdmit(g.job("t2"))
		granted(w.t, blocker)
		time.Sleep(time.Second)
		second := g.mustAdmit(g.job("t3"))
		time.Sleep(time.Second)
		third := g.mustAdmit(g.job("t4"))

		if err := first.Requeue(w.t.Context(), balancer.Attempt{Failed: true}); err != nil {
			w.t.Fatal(err)
		}
		if l := granted(w.t, second); l.Replica != "fast" {
			w.t.Errorf("the next in line got %s, want fast", l.Replica)
		}
		waits(w.t, first)
		waits(w.t, third)
		end(w.t, blocker)
		if l := granted(w.t, first); l.Replica != "slow" {
			w.t.Errorf("the retry got %s, want slow", l.Replica)
		}
		waits(w.t, third)

		// Failed by both, the request may have one of them again.
		if err := first.Requeue(w.t.Context(), balancer.Attempt{Failed: true}); err != nil {
			w.t.Fatal(err)
		}
		if l := granted(w.t, first); l.Replica != "slow" {
			w.t.Errorf("the second retry got %s, want slow: it comes before who came later", l.Replica)
		}
		for _, c := range []*balancer.Claim{second, first} {
			end(w.t, c)
		}
		granted(w.t, third)
		end(w.t, third)
	})
}

// A slot cools after a cancel: nobody gets it before.
func TestCoolingSlot(t *testing.T) {
	inWorld(t, func(w *world) {
		w.join(twins(1, 1)...)
		g := w.start("gw1")
		cancelled := g.mustAdmit(g.job("t1"))
		granted(w.t, cancelled)
		waiting := g.mustAdmit(g.job("t2"))
		cancelled.End(w.t.Context(), balancer.Attempt{Cooling: 7 * time.Second}, balancer.Settlement{})
		start := time.Now()
		granted(w.t, waiting)
		if took := time.Since(start); took < 7*time.Second || took > 9*time.Second {
			w.t.Errorf("granted after %v, want 7 s and a turn", took)
		}
		end(w.t, waiting)
	})
}

// Holding for a far faster phone ends at its cap; meanwhile others may pass.
func TestHoldEndsAtItsCap(t *testing.T) {
	inWorld(t, func(w *world) {
		w.join(phone{id: "fast", prefill: 400, decode: 45}, phone{id: "slow", prefill: 20, decode: 4})
		g := w.start("gw1")
		endless := g.job("t1")
		endless.PromptTokens = 40000
		busy := g.mustAdmit(endless)
		if l := granted(w.t, busy); l.Replica != "fast" {
			w.t.Fatalf("got %s, want fast", l.Replica)
		}
		held := g.mustAdmit(g.job("t2"))
		start := time.Now()
		waits(w.t, held)
		time.Sleep(10 * time.Second)
		waits(w.t, held)

		short := g.job("t3")
		short.PromptTokens, short.OutputTokens = 20, 4
		passes := g.mustAdmit(short)
		if l := granted(w.t, passes); l.Replica != "slow" || time.Since(start) != 10*time.Second {
			w.t.Errorf("got %s after %v, want slow at once", l.Replica, time.Since(start))
		}
		end(w.t, passes)
		waits(w.t, held)

		l := granted(w.t, held)
		limit := time.Duration(balancer.DefaultRules().HoldCap * float64(400*time.Millisecond+7000*time.Second/20+10*time.Second/4))
		if took := time.Since(start); l.Replica != "slow" || took < limit || took > limit+2*time.Second {
			w.t.Errorf("got %s after %v, want slow after %v", l.Replica, took, limit)
		}
		end(w.t, held)
		end(w.t, busy)
	})
}

// With no free phone left a held ticket waits its turn like any other: the phone that comes free next is its own.
func TestHeldTicketIsNotPassedOnceAllAreBusy(t *testing.T) {
	inWorld(t, func(w *world) {
		w.join(phone{id: "fast", prefill: 400, decode: 45}, phone{id: "slow", prefill: 20, decode: 4})
		g := w.start("gw1")
		first := g.mustAdmit(g.job("t1"))
		granted(w.t, first)
		held := g.mustAdmit(g.job("t2")) // for fast
		waits(w.t, held)
		endless := g.job("t3")
		endless.PromptTokens, endless.OutputTokens = 20, 4
		passes := g.mustAdmit(endless)
		if l := granted(w.t, passes); l.Replica != "slow" {
			w.t.Fatalf("got %s, want slow", l.Replica)
		}
		time.Sleep(2 * time.Second) // a turn sees that nobody is free
		if n := w.redis.Do("SCARD", "{phonebank}:h:m"); n != ":0" {
			w.t.Errorf("%s tickets may be passed though every phone is busy", n)
		}
		late := g.mustAdmit(g.job("t4"))
		end(w.t, first)
		if l := granted(w.t, held); l.Replica != "fast" {
			w.t.Errorf("got %s, want fast", l.Replica)
		}
		waits(w.t, late)
		end(w.t, held)
		granted(w.t, late)
		end(w.t, late)
		end(w.t, passes)
	})
}

// However many gateways there are, whoever came first is served first.
func TestFirstComeFirstServed(t *testing.T) {
	inWorld(t, func(w *world) {
		w.join(twins(3, 1)...)
		gateways := []*gateway{w.start("gw1"), w.start("gw2"), w.start("gw3")}
		random := rand.New(rand.NewPCG(1, 2))
		const jobs = 120
		at := make([]time.Time, jobs)
		var wg sync.WaitGroup
		for i := range jobs {
			time.Sleep(time.Duration(1+random.IntN(3000)) * time.Millisecond)
			g, work := gateways[random.IntN(3)], time.Duration(1+random.IntN(20_000))*time.Millisecond
			claim := g.mustAdmit(g.job(fmt.Sprintf("t%03d", i)))
			wg.Go(func() {
				granted(w.t, claim)
				at[i] = time.Now()
				time.Sleep(work)
				end(w.t, claim)
			})
		}
		wg.Wait()
		if !slices.IsSortedFunc(at, time.Time.Compare) {
			for i := 1; i < jobs; i++ {
				if at[i].Before(at[i-1]) {
					w.t.Errorf("job %d was served %v before the one ahead of it", i, at[i-1].Sub(at[i]))
				}
			}
		}
	})
}

// A gateway dies under load. Its slots are usable again within 15 s, what waited at it is gone, and no slot was ever given twice.
func TestGatewayDies(t *testing.T) {
	inWorld(t, func(w *world) {
		phones := twins(4, 2)
		w.join(phones...)
		alive, dies := w.start("gw1"), w.start("gw2")
		random := rand.New(rand.NewPCG(3, 4))
		var wg sync.WaitGroup
		run := func(g *gateway, id string, work time.Duration, dead <-chan struct{}) {
			claim := g.mustAdmit(g.job(id))
			wg.Go(func() {
				ctx, cancel := context.WithCancel(w.t.Context())
				defer cancel()
				go func() {
					select {
					case <-dead:
						cancel()
					case <-ctx.Done():
					}
				}()
				if _, err := claim.Await(ctx); err != nil {
					return // with its gateway
				}
				pause := time.NewTimer(work)
				defer pause.Stop()
				select {
				case <-dead:
				case <-pause.C:
					end(w.t, claim)
				}
			})
		}
		dead := make(chan struct{})
		check := func() {
			for _, p := range phones {
				if d := w.depth(p.id); d > 2 {
					w.t.Errorf("%s: %d of 2 slots occupied", p.id, d)
				}
			}
		}
		for i := range 60 {
			time.Sleep(time.Duration(random.IntN(1000)) * time.Millisecond)
			run(alive, fmt.Sprintf("a%02d", i), time.Duration(1+random.IntN(12_000))*time.Millisecond, nil)
			run(dies, fmt.Sprintf("d%02d", i), time.Duration(1+random.IntN(12_000))*time.Millisecond, dead)
			check()
		}
		dies.kill()
		close(dead)
		died := time.Now()
		for time.Since(died) < 15*time.Second {
			time.Sleep(500 * time.Millisecond)
			check()
		}
		synctest.Wait()
		_, running := alive.room.Load()
		occupied := 0
		for _, p := range phones {
			occupied += w.depth(p.id)
		}
		if waiting, _ := alive.room.Load(); occupied != running || running < 8 && waiting > 0 {
			w.t.Errorf("15 s after the death: %d slots occupied, %d of them by the living, %d waiting", occupied, running, waiting)
		}
		wg.Wait()
	})
}
