package limit

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// t0 is some moment of the shared clock.
const t0 = int64(1_764_500_000_000)

func TestTake(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name     string
		level    Level
		now      int64
		limit, n int
		want     Level
		wantOK   bool
		wantWait time.Duration
	}{
		{
			name: "absent bucket is full", now: t0, limit: 60, n: 60,
			want: Level{Grains: 0, AtMS: t0}, wantOK: true,
		},
		{
			name:  "one unit a second at 60 a minute",
			level: Level{AtMS: t0}, now: t0 + 1000, limit: 60, n: 1,
			want: Level{Grains: 0, AtMS: t0 + 1000}, wantOK: true,
		},
		{
			name:  "one millisecond too early",
			level: Level{AtMS: t0}, now: t0 + 999, limit: 60, n: 1,
			want: Level{Grains: 999 * 60, AtMS: t0 + 999}, wantWait: time.Millisecond,
		},
		{
			name:  "wait is rounded up, never too short",
			level: Level{AtMS: t0}, now: t0, limit: 7, n: 1,
			want: Level{AtMS: t0}, wantWait: 8572 * time.Millisecond,
		},
		{
			name: "larger than the bucket can never succeed", now: t0, limit: 10, n: 11,
			want: Level{Grains: 10 * grainsPerUnit, AtMS: t0},
		},
		{
			name:  "a lowered limit clips the level",
			level: Level{Grains: 100 * grainsPerUnit, AtMS: t0}, now: t0, limit: 10, n: 1,
			want: Level{Grains: 9 * grainsPerUnit, AtMS: t0}, wantOK: true,
		},
		{
			name:  "a clock that steps back refills nothing and blocks nothing",
			level: Level{Grains: grainsPerUnit, AtMS: t0 + 5000}, now: t0, limit: 60, n: 1,
			want: Level{Grains: 0, AtMS: t0}, wantOK: true,
		},
		{
			name:  "the largest limit after a year",
			level: Level{AtMS: t0 - 365*86_400_000}, now: t0, limit: MaxLimit, n: MaxLimit,
			want: Level{Grains: 0, AtMS: t0}, wantOK: true,
		},
		{
			name:  "a negative number takes nothing",
			level: Level{Grains: 5, AtMS: t0}, now: t0, limit: 60, n: -4,
			want: Level{Grains: 5, AtMS: t0}, wantOK: true,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, ok, wait := tt.level.Take(tt.now, tt.limit, tt.n)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("level (-want +got):\n%s", diff)
			}
			if ok != tt.wantOK || wait != tt.wantWait {
				t.Errorf("got ok %t, wait %v; want %t, %v", ok, wait, tt.wantOK, tt.wantWait)
			}
		})
	}
}

// Sixty requests before and sixty after a full minute pass a fixed window. A
// bucket lets the second burst have only what has refilled.
func TestNoDoubleBurstAtAMinuteBorder(t *testing.T) {
	t.Parallel()
	var l Level
	admitted := 0
	burst := func(now int64) {
		for range 60 {
			var ok bool
			if l, ok, _ = l.Take(now, 60, 1); ok {
				admitted++
			}
		}
	}
	border := t0 / 60_000 * 60_000
	burst(border - 500)
	burst(border + 500)
	if admitted != 61 {
		t.Errorf("got %d of 120 admitted within a second, want 61 (60 of the bucket, 1 refilled)", admitted)
	}
}

func TestSettle(t *testing.T) {
	t.Parallel()
	const limit = 600 // ten tokens a second
	reserve := func(t *testing.T, l Level, now int64, n int) Level {
		t.Helper()
		l, ok, _ := l.Reserve(now, limit, n)
		if !ok {
			t.Fatalf("reserve %d at +%d ms: refused", n, now-t0)
		}
		return l
	}
	tests := []struct {
		name           string
		afterMS        int64
		reserved, used int
		wantRemaining  int
	}{
		{name: "used as reserved", reserved: 100, used: 100, wantRemaining: 500},
		{name: "unused comes back at once", reserved: 600, used: 50, wantRemaining: 550},
		{name: "nothing used", reserved: 600, used: 0, wantRemaining: 600},
		{name: "after half the refill", afterMS: 30_000, reserved: 600, used: 500, wantRemaining: 400},
		{name: "what has refilled does not come back twice", afterMS: 50_000, reserved: 600, used: 0, wantRemaining: 600},
		{name: "long after", afterMS: 600_000, reserved: 600, used: 0, wantRemaining: 600},
		{name: "more used than reserved", reserved: 100, used: 300, wantRemaining: 300},
		{name: "below zero", reserved: 600, used: 900, wantRemaining: 0},
		{name: "negative report gives back no more than was reserved", reserved: 100, used: -500, wantRemaining: 600},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			l := reserve(t, Level{}, t0, tt.reserved)
			l = l.Settle(t0+tt.afterMS, limit, tt.reserved, tt.used)
			if got := l.Bucket(limit).Remaining; got != tt.wantRemaining {
				t.Errorf("got %d remaining, want %d", got, tt.wantRemaining)
			}
			if l.Held != 0 {
				t.Errorf("got %d grains held after the only reservation was settled, want 0", l.Held)
			}
		})
	}

	t.Run("a refund after the refill was spent again", func(t *testing.T) {
		t.Parallel()
		l := reserve(t, Level{}, t0, 600)
		l = reserve(t, l, t0+60_000, 600) // the bucket had refilled, and is empty again
		l = l.Settle(t0+60_000, limit, 600, 600)
		if got := l.Bucket(limit).Remaining; got != 0 {
			t.Errorf("got %d remaining, want 0", got)
		}
	})

	t.Run("under steady load refunds survive long requests", func(t *testing.T) {
		t.Parallel()
		// Never full in between: no refill was lost, so all of the rest comes back.
		l := reserve(t, Level{}, t0, 600)
		l = reserve(t, l, t0+30_000, 300)
		l = reserve(t, l, t0+60_000, 300)
		l = l.Settle(t0+60_000, limit, 600, 100)
		if got := l.Bucket(limit).Remaining; got != 500 {
			t.Errorf("got %d remaining, want 500", got)
		}
	})

	t.Run("debt is bounded", func(t *testing.T) {
		t.Parallel()
		l := reserve(t, Level{}, t0, 1).Settle(t0, limit, 1, 1<<60)
		if got, want := l.Bucket(limit).Reset, 11*time.Minute; got != want {
			t.Errorf("got full again in %v, want %v", got, want)
		}
	})
}

func TestBucket(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		level Level
		limit int
		want  Bucket
	}{
		{name: "unlimited"},
		{name: "full", level: Level{Grains: 60 * grainsPerUnit}, limit: 60, want: Bucket{Limit: 60, Remaining: 60}},
		{name: "a fraction is not there yet", level: Level{Grains: 2*grainsPerUnit - 1}, limit: 60, want: Bucket{Limit: 60, Remaining: 1, Reset: 58_001 * time.Millisecond}},
		{name: "debt shows as nothing", level: Level{Grains: -grainsPerUnit}, limit: 60, want: Bucket{Limit: 60, Reset: 61 * time.Second}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tt.want, tt.level.Bucket(tt.limit)); diff != "" {
				t.Errorf("bucket (-want +got):\n%s", diff)
			}
		})
	}
}
