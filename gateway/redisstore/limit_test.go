package redisstore

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"phonebank/auth/limit"
	"phonebank/balancer"
	"phonebank/test/redistest"
)

// The arithmetic of the scripts and that of package limit agree to the last grain, also when a limit changes under a level.
func TestBucketsAgreeWithModel(t *testing.T) {
	t.Parallel()
	parts, err := sourceOf([]string{partBuckets})
	if err != nil {
		t.Fatal(err)
	}
	probe := script{name: "probe", run: redis.NewScript(parts + `
		local now, limit, n = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
		local b = level_at(ARGV[1], ARGV[2], ARGV[3], now, limit)
		local ok, wait = affordable(b, n)
		return {string.format('%.0f', b.g), string.format('%.0f', b.held), ok and 1 or 0, wait, remaining(b), reset(b)}`)}
	s := openOn(t, redistest.Mini(t), Config{})
	rapid.Check(t, func(rt *rapid.T) {
		size := rapid.OneOf(rapid.IntRange(1, 300), rapid.IntRange(1, limit.MaxLimit), rapid.Just(limit.MaxLimit))
		old, now := size.Draw(rt, "old limit"), size.Draw(rt, "limit")
		full := int64(old) * 60_000
		level := limit.Level{
			Grains: rapid.Int64Range(-10*full, full).Draw(rt, "grains"),
			Held:   rapid.Int64Range(0, full).Draw(rt, "held"),
			AtMS:   1_700_000_000_000,
		}
		nowMS := level.AtMS + rapid.OneOf(rapid.Int64Range(-10, 1000), rapid.Int64Range(0, 700_000), rapid.Int64Range(0, 1e12)).Draw(rt, "ms")
		n := rapid.OneOf(rapid.IntRange(-1, 300), rapid.IntRange(0, limit.MaxLimit+5)).Draw(rt, "n")

		r, err := s.evalList(t.Context(), probe, level.Grains, level.Held, level.AtMS, nowMS, now, n)
		if err != nil {
			rt.Fatal(err)
		}
		got := limit.Level{Grains: r.number(), Held: r.number(), AtMS: nowMS}
		ok, wait := r.flag(), r.duration()
		bucket := limit.Bucket{Limit: now, Remaining: int(r.number()), Reset: r.duration()}
		want := level.At(nowMS, now)
		_, wantOK, wantWait := level.Take(nowMS, now, n)
		if got != want || ok != wantOK || wait != wantWait || bucket != want.Bucket(now) || r.err != nil {
			rt.Fatalf("script %+v %v %v %+v, model %+v %v %v %+v, %v", got, ok, wait, bucket, want, wantOK, wantWait, want.Bucket(now), r.err)
		}
	})
}

// Admissions and settlements in any order leave the buckets as the model says.
func TestLimitsAgreeWithModel(t *testing.T) {
	t.Parallel()
	i := redistest.Mini(t)
	s := openOn(t, i, Config{})
	run := 0
	rapid.Check(t, func(rt *rapid.T) {
		run++
		m := limitMachine{t: t, s: s, limits: drawLimits(rt), key: fmt.Sprintf("key%d", run), reserved: make(map[string]int)}
		now := time.UnixMilli(1_700_000_000_000)
		for n := range rapid.IntRange(1, 30).Draw(rt, "steps") {
			now = now.Add(time.Duration(rapid.Int64Range(0, 90_000).Draw(rt, "ms")) * time.Millisecond)
			i.Mini.SetTime(now)
			if len(m.open) > 0 && rapid.Bool().Draw(rt, "finish") {
				m.finish(rt, now.UnixMilli())
			} else {
				m.admit(rt, now.UnixMilli(), fmt.Sprintf("t%d-%d", run, n))
			}
		}
	})
}

// limitMachine does the same to the store and to the model.
type limitMachine struct {
	t        *testing.T
	s        *Store
	key      string
	limits   limit.Limits
	state    limit.State
	open     []string
	reserved map[string]int // tokens by ticket
}

func (m *limitMachine) admit(rt *rapid.T, nowMS int64, id string) {
	cost := limit.Cost{
		Requests: rapid.IntRange(0, 3).Draw(rt, "requests"),
		Tokens:   rapid.OneOf(rapid.IntRange(-1, 300), rapid.IntRange(0, limit.MaxLimit+5)).Draw(rt, "tokens"),
	}
	tk := ticket(0)
	tk.ID, tk.Model = id, m.key
	got, _, err := m.s.Admit(m.t.Context(), gw1, m.key, m.limits, cost, offer(tk, ""))
	if err != nil {
		rt.Fatal(err)
	}
	var want limit.Decision
	m.state, want = limit.Admit(m.state, nowMS, m.limits, cost)
	if diff := cmp.Diff(want, got); diff != "" {
		rt.Fatalf("%s, limits %+v, cost %+v (-model +script):\n%s", id, m.limits, cost, diff)
	}
	if got.Allowed {
		m.open = append(m.open, id)
		m.reserved[id] = cost.Tokens
	}
}

func (m *limitMachine) finish(rt *rapid.T, nowMS int64) {
	at := rapid.IntRange(0, len(m.open)-1).Draw(rt, "which")
	id := m.open[at]
	m.open = slices.Delete(m.open, at, at+1)
	used := rapid.OneOf(rapid.IntRange(0, 300), rapid.IntRange(0, 2*limit.MaxLimit)).Draw(rt, "used")
	failed := rapid.Bool().Draw(rt, "failed")
	if _, err := m.s.Finish(m.t.Context(), balancer.Finish{By: gw1, Ticket: id, Tokens: used, Failed: failed}); err != nil {
		rt.Fatal(err)
	}
	if failed {
		used = 0
	}
	m.state = limit.Finish(m.state, nowMS, m.limits, m.reserved[id], used)
}

func drawLimits(rt *rapid.T) limit.Limits {
	size := rapid.OneOf(rapid.Just(0), rapid.IntRange(1, 300), rapid.IntRange(1, limit.MaxLimit), rapid.Just(limit.MaxLimit))
	return limit.Limits{
		RequestsPerMinute: size.Draw(rt, "rpm"),
		TokensPerMinute:   size.Draw(rt, "tpm"),
		Concurrent:        rapid.IntRange(0, 5).Draw(rt, "concurrent"),
	}
}

// A burst from several gateways gets the capacity and nothing more.
func TestBurstGetsTheCapacity(t *testing.T) {
	tests := []struct {
		name   string
		limits limit.Limits
		want   int64
		dim    limit.Dimension
	}{
		{"requests", limit.Limits{RequestsPerMinute: 50}, 50, limit.Requests},
		{"tokens", limit.Limits{TokensPerMinute: 5000}, 50, limit.Tokens},
		{"concurrent", limit.Limits{Concurrent: 50}, 50, limit.Concurrent},
	}
	onBoth(t, func(t *testing.T, s *Store) {
		for _, tt := range tests {
			var allowed atomic.Int64
			var wg sync.WaitGroup
			start := time.Now()
			for w := range 8 {
				wg.Go(func() {
					for n := range 25 {
						tk := ticket(n)
						tk.ID, tk.Key = fmt.Sprintf("%s-%d-%d", tt.name, w, n), tt.name
						d, _, err := s.Admit(t.Context(), gw1, tt.name, tt.limits, limit.Cost{Requests: 1, Tokens: 100}, offer(tk, ""))
						switch {
						case err != nil:
							t.Error(err)
						case d.Allowed:
							allowed.Add(1)
						case d.Tripped != tt.dim || d.RetryAfter <= 0:
							t.Errorf("%s: got %+v", tt.name, d)
						}
					}
				})
			}
			wg.Wait()
			refilled := int64(time.Since(start).Seconds()*50/60) + 1
			if got := allowed.Load(); got < tt.want || got > tt.want+refilled {
				t.Errorf("%s: allowed %d, want %d and at most %d that refilled", tt.name, got, tt.want, refilled)
			}
		}
	})
}

// Reservations of a gateway that died drain by themselves, and its concurrency comes back when it is reaped.
func TestReservationsDrain(t *testing.T) {
	t.Parallel()
	i := redistest.Mini(t)
	s := openOn(t, i, Config{})
	now := time.UnixMilli(1_700_000_000_000)
	i.Mini.SetTime(now)
	limits := limit.Limits{TokensPerMinute: 2000, Concurrent: 20}
	for n := range 20 {
		if _, _, err := s.Admit(t.Context(), gw1, "shop", limits, limit.Cost{Tokens: 100}, offer(ticket(n), "")); err != nil {
			t.Fatal(err)
		}
	}
	probe := func() limit.Decision {
		t.Helper()
		d, _, err := s.Admit(t.Context(), gw2, "shop", limits, limit.Cost{Tokens: 2000}, offer(ticket(99), ""))
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	if d := probe(); d.Allowed {
		t.Fatal("allowed beyond the limits")
	}
	for range 60 {
		now = now.Add(time.Second)
		i.Mini.SetTime(now)
		if _, err := s.Beat(t.Context(), gw2); err != nil {
			t.Fatal(err)
		}
		tick(t, s, gw2)
	}
	if d := probe(); !d.Allowed {
		t.Errorf("a minute later: %+v, want allowed", d)
	}
}
