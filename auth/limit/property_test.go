package limit

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// event is an admission or a settlement in a generated history, with what it
// admitted (positive) or gave back (negative), in grains.
type event struct {
	atMS  int64
	moved int64
}

// In every window of every history, what was admitted less what was given back
// is at most the capacity plus the refill of that window. (What a phone used
// beyond its reservation was never admitted; it only makes later ones wait.)
func TestNeverMoreThanCapacityPlusRefill(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(1, 5000).Draw(t, "limit")
		now, level := t0, Level{}
		var open []int // reservations not yet settled
		var history []event
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now += rapid.Int64Range(0, 40_000).Draw(t, "idle")
			before := level.At(now, limit)
			most := int64(math.MaxInt64)
			if len(open) > 0 && rapid.Bool().Draw(t, "settle") {
				i := rapid.IntRange(0, len(open)-1).Draw(t, "which")
				used := rapid.IntRange(0, 2*limit).Draw(t, "used")
				level = level.Settle(now, limit, open[i], used)
				open = append(open[:i], open[i+1:]...)
				most = 0
			} else {
				n := rapid.IntRange(0, limit+1).Draw(t, "n")
				var ok bool
				if level, ok, _ = level.Reserve(now, limit, n); ok {
					open = append(open, n)
				}
			}
			history = append(history, event{now, min(before.Grains-level.Grains, most)})
			checkLevel(t, level, limit)
			if level.Grains+level.Held > before.Grains+before.Held {
				t.Fatalf("level and held grew without refill: %+v to %+v", before, level)
			}
		}
		checkWindows(t, history, limit)
	})
}

func checkLevel(t *rapid.T, l Level, limit int) {
	if l.Held < 0 || l.Grains+l.Held > capacity(limit) {
		t.Fatalf("got level %d, held %d with a capacity of %d", l.Grains, l.Held, capacity(limit))
	}
	if b := l.Bucket(limit); b.Remaining < 0 || b.Remaining > limit || b.Reset < 0 {
		t.Fatalf("got bucket %+v", b)
	}
}

func checkWindows(t *rapid.T, history []event, limit int) {
	for i := range history {
		taken := int64(0)
		for _, e := range history[i:] {
			taken += e.moved
			if most := capacity(limit) + (e.atMS-history[i].atMS)*int64(limit); taken > most {
				t.Fatalf("got %d grains taken in %d ms, want at most %d", taken, e.atMS-history[i].atMS, most)
			}
		}
	}
}

// The wait of a refusal is enough, and a millisecond less is not.
func TestWaitIsExact(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(1, MaxLimit).Draw(t, "limit")
		level := Level{Grains: rapid.Int64Range(-maxDebtCaps*capacity(limit), capacity(limit)).Draw(t, "grains"), AtMS: t0}
		n := rapid.IntRange(1, limit).Draw(t, "n")
		refused, ok, wait := level.Take(t0, limit, n)
		if ok {
			return
		}
		if _, ok, _ := refused.Take(t0+wait.Milliseconds(), limit, n); !ok {
			t.Fatalf("refused again after the wait of %v", wait)
		}
		if _, ok, _ := refused.Take(t0+wait.Milliseconds()-1, limit, n); ok {
			t.Fatalf("admitted 1 ms before the wait of %v was over", wait)
		}
	})
}

// The documented formulas, carried out in doubles as Lua does, give the same
// integers: the proof that a script can be held to this model to the last grain.
func TestDoublesAgree(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.OneOf(rapid.IntRange(1, 1000), rapid.IntRange(1, MaxLimit)).Draw(t, "limit")
		var level Level
		var lua doubles
		now := t0
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			now += rapid.OneOf(rapid.Int64Range(-1000, 70_000), rapid.Int64Range(0, 1e11)).Draw(t, "idle")
			n := rapid.IntRange(0, min(2*limit, MaxLimit)).Draw(t, "n")
			if rapid.Bool().Draw(t, "settle") {
				used := rapid.IntRange(0, MaxLimit).Draw(t, "used")
				level = level.Settle(now, limit, n, used)
				lua.settle(float64(now), float64(limit), float64(n), float64(used))
			} else {
				var ok bool
				level, ok, _ = level.Reserve(now, limit, n)
				if got := lua.reserve(float64(now), float64(limit), float64(n)); got != ok {
					t.Fatalf("got %t in doubles, %t in integers", got, ok)
				}
			}
			if got := (Level{int64(lua.level), int64(lua.held), int64(lua.at)}); got != level {
				t.Fatalf("got %+v in doubles, %+v in integers", got, level)
			}
			if math.Abs(lua.level) > 1e15 || lua.held > 1e15 {
				t.Fatalf("stored number beyond 10^15: %+v", lua)
			}
		}
	})
}

// doubles is the arithmetic of doc.go word for word, in the numbers Lua has.
type doubles struct{ level, held, at float64 }

func (d *doubles) refresh(now, limit float64) {
	elapsed := max(0, now-d.at)
	d.level = min(limit*60000, d.level+float64(elapsed*limit))
	d.held = max(0, min(d.held, limit*60000-d.level))
	d.at = now
}

func (d *doubles) reserve(now, limit, n float64) bool {
	d.refresh(now, limit)
	if n > limit || d.level < n*60000 {
		return false
	}
	d.level -= n * 60000
	d.held += n * 60000
	return true
}

func (d *doubles) settle(now, limit, reserved, used float64) {
	d.refresh(now, limit)
	r, u := reserved*60000, used*60000
	if u <= r {
		d.level += min(r-u, d.held)
	} else {
		d.level = max(d.level-(u-r), -10*limit*60000)
	}
	d.held = max(0, d.held-r)
}
