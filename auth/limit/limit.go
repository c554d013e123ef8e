package limit

import (
	"fmt"
	"time"
)

// MaxLimit is the largest limit per minute that may be configured. Beyond it
// the arithmetic of the scripts would leave the integers a double can hold.
const MaxLimit = 1_000_000_000

// Limits are what one key may do. Zero means unlimited, in every field.
type Limits struct {
	RequestsPerMinute int
	TokensPerMinute   int
	Concurrent        int // accepted and unfinished requests, queued ones included
}

// Cost is what admitting a request takes: usually one request and the tokens it
// may use at most (prompt estimate plus output cap). Negative values count as 0.
type Cost struct {
	Requests int
	Tokens   int
}

// Dimension names the limit that refused a request. The zero value is none.
type Dimension string

// The dimensions, in the order in which they are checked.
const (
	Requests   Dimension = "requests"
	Tokens     Dimension = "tokens"
	Concurrent Dimension = "concurrent"
)

// Bucket is a limit as the caller sees it. A zero Limit means unlimited; the
// other fields are then zero too.
type Bucket struct {
	Limit     int
	Remaining int           // whole units that could be taken now, never negative
	Reset     time.Duration // until full again, whole milliseconds
}

// Decision is the answer to one admission.
type Decision struct {
	Allowed bool
	// Tripped is the dimension that refused; empty when Allowed.
	Tripped Dimension
	// TooLarge says that the cost exceeds the whole limit, so that no waiting
	// helps. RetryAfter is then 0.
	TooLarge bool
	// RetryAfter is how long the bucket needs to hold the cost, at least 1 ms
	// for a refusal that is not TooLarge. Others may be faster, so it is no promise.
	RetryAfter time.Duration
	// Requests and Tokens are the buckets after the decision.
	Requests, Tokens Bucket
}

// Err returns nil for an admission and an [*Exceeded] for a refusal.
func (d Decision) Err() error {
	if d.Allowed {
		return nil
	}
	return &Exceeded{Decision: d}
}

// Exceeded is a refusal as an error. Its text is meant for the caller: it names
// the limit and what to do, and holds no key.
type Exceeded struct {
	Decision Decision
}

func (e *Exceeded) Error() string {
	d := e.Decision
	switch {
	case d.Tripped == Concurrent:
		return "Too many requests of this key are unfinished. Please try again when one has finished."
	case d.TooLarge:
		return fmt.Sprintf("Request too large for the limit on %s per min: Limit %d. Please ask for less.", d.Tripped, d.bucket().Limit)
	default:
		return fmt.Sprintf("Rate limit reached on %s per min: Limit %d, Remaining %d. Please try again in %s.",
			d.Tripped, d.bucket().Limit, d.bucket().Remaining, d.RetryAfter)
	}
}

// bucket is the one that refused.
func (d Decision) bucket() Bucket {
	if d.Tripped == Tokens {
		return d.Tokens
	}
	return d.Requests
}
