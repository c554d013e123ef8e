package limit

import "time"

const (
	// grainsPerUnit makes a bucket of limit L gain L grains per millisecond.
	grainsPerUnit = 60_000
	// maxDebtCaps bounds how far a level may fall below zero, in capacities.
	maxDebtCaps = 10
)

// Level is the stored state of one bucket, in grains (1/60,000 of a unit).
// The zero value was full long ago, and therefore is a full bucket. It carries
// no limit: the limit in force is given to every method, at most [MaxLimit] and
// at least 1, and may change between calls.
type Level struct {
	Grains int64 // may be negative: debt
	Held   int64 // part of the reservations that a settlement may still give back
	AtMS   int64 // shared clock, ms since the epoch, when Grains and Held were right
}

// At is the level at nowMS.
func (l Level) At(nowMS int64, limit int) Level {
	rate, full := int64(limit), capacity(limit)
	elapsed := max(0, nowMS-l.AtMS)
	grains := full
	// Comparing by division first: elapsed*rate may not fit after a long idle time.
	if missing := full - l.Grains; elapsed < ceilDiv(missing, rate) {
		grains = l.Grains + elapsed*rate
	}
	return Level{Grains: grains, Held: max(0, min(l.Held, full-grains)), AtMS: nowMS}
}

// Take takes n units at nowMS. If they are not there, it returns the refreshed
// level unchanged, false, and how long the bucket needs to gather them; 0 means
// that it never can, n being larger than the limit.
func (l Level) Take(nowMS int64, limit, n int) (Level, bool, time.Duration) {
	l = l.At(nowMS, limit)
	if n > limit {
		return l, false, 0
	}
	cost := grains(n)
	if l.Grains < cost {
		return l, false, milliseconds(ceilDiv(cost-l.Grains, int64(limit)))
	}
	l.Grains -= cost
	return l, true, 0
}

// Reserve is [Level.Take] for units whose real number is known only later. Each
// reservation is settled at most once.
func (l Level) Reserve(nowMS int64, limit, n int) (Level, bool, time.Duration) {
	l, ok, wait := l.Take(nowMS, limit, n)
	if ok {
		l.Held += grains(n)
	}
	return l, ok, wait
}

// Settle replaces a reservation by what was really used. What was not used
// comes back as far as it has not refilled meanwhile; what was used beyond the
// reservation is charged, below zero if need be.
func (l Level) Settle(nowMS int64, limit, reserved, used int) Level {
	l = l.At(nowMS, limit)
	r, u := grains(reserved), grains(used)
	if u <= r {
		l.Grains += min(r-u, l.Held)
	} else {
		l.Grains = max(l.Grains-(u-r), -maxDebtCaps*capacity(limit))
	}
	l.Held = max(0, l.Held-r)
	return l
}

// Bucket is the level as the caller sees it, with the limit it stands for. The
// level is taken as it is: refresh it first if it is old.
func (l Level) Bucket(limit int) Bucket {
	if limit <= 0 {
		return Bucket{}
	}
	missing := max(0, capacity(limit)-l.Grains)
	return Bucket{
		Limit:     limit,
		Remaining: int(max(0, l.Grains) / grainsPerUnit),
		Reset:     milliseconds(ceilDiv(missing, int64(limit))),
	}
}

func capacity(limit int) int64 { return int64(limit) * grainsPerUnit }

// grains converts units, held between 0 and MaxLimit: a negative count would
// make tokens, and a larger one is no count a request can have.
func grains(n int) int64 { return int64(min(max(n, 0), MaxLimit)) * grainsPerUnit }

// ceilDiv is the quotient rounded up, for a >= 0 and b > 0.
func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }

func milliseconds(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
