// Package limit says what a key's limits are: what a request costs, what a
// bucket holds, when a caller may try again, and how that reads in the
// x-ratelimit-* headers.
//
// It decides nothing for more than one process: the shared buckets live in
// Redis, where the scripts that admit and finish a request carry out the
// arithmetic below in one atomic step. [Admit] and [Finish] are the model of
// those scripts, pure and tested; the store's contract suite holds both to the
// same answers. The package starts no goroutines and reads no clock.
//
// # The arithmetic
//
// A limit of L per minute is a bucket with a capacity of L that refills evenly
// at L per 60,000 ms. There is no window and so no border at which two bursts
// meet: in any span of time no more than the capacity plus the refill of that
// span is admitted.
//
// Levels are counted in grains, 1/60,000 of a unit, because then a bucket of
// limit L gains exactly L grains a millisecond and everything is an integer.
// Integers below 2^53 are exact in Lua's doubles as in Go's int64, so the two
// agree to the last grain. Limits are at most [MaxLimit], which keeps every
// stored number under 10^15.
//
// A bucket is three integers: level, held and at (ms of the shared clock).
// An absent bucket is a full one with nothing held. With cap = L*60000:
//
//	refresh(now)
//	    elapsed = max(0, now - at)
//	    level   = min(cap, level + elapsed*L)
//	    held    = max(0, min(held, cap - level))
//	    at      = now
//
//	take(cost)                       after refresh; c = cost*60000
//	    cost > L                     refuse: too large, waiting cannot help
//	    level < c                    refuse: retry after ceil((c - level)/L) ms
//	    level = level - c
//	    held  = held + c             tokens only: what may come back
//
//	settle(reserved, used)           after refresh; r, u likewise times 60000
//	    u <= r: level = level + min(r - u, held)
//	    u >  r: level = max(level - (u - r), -10*cap)
//	    held  = max(0, held - r)
//
//	remaining = max(0, floor(level/60000))
//	reset     = ceil((cap - level)/L) ms, the time until full
//
// Held is what keeps a settlement from making tokens. Tokens reserved a while
// ago may have refilled meanwhile; giving them back as well would pay twice.
// The refill that finds the bucket full is what is lost, and refresh takes just
// that from held: level + held never exceeds the capacity and only refill makes
// it grow. A reservation that is never settled (its gateway died) needs no
// clean-up, the refill heals it within a minute.
//
// Used tokens may exceed the reservation and drive the level below zero. Debt
// ends at ten minutes of refill, so that one absurd usage report from a phone
// cannot lock a key out for ever.
//
// A bucket may be stored with a time to live of reset + 1 s: by then it is full,
// which is what absence means. When the shared clock steps back, elapsed is 0
// and at follows the clock; the key waits no longer than usual.
//
// # Admission
//
// [Admit] takes from all three dimensions or from none: requests, then tokens,
// then concurrency (running < limit). If several refuse, the one with the
// longest wait is named, in that order when equal, and "too large" comes before
// any wait. A full concurrency limit has no clock of its own and asks for one
// second. A refusal charges nothing. [Finish] settles tokens and frees the
// concurrency; the request itself is never given back, so failing on purpose
// costs as much as succeeding.
package limit
