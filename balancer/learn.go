package balancer

import (
	"math"
	"time"
)

// HalfLife is the age at which a measurement counts half. Phones heat up and cool down within minutes.
const HalfLife = 10 * time.Minute

// Buckets: prefill speed falls with the prompt's length, decode speed with the number of busy slots.
const (
	PrefillBuckets = 4 // below 512, 2048, 8192 tokens, and longer
	DecodeBuckets  = 4 // 1, 2, 3, 4 and more busy slots
)

// PrefillBucket returns the bucket of a prompt of that many tokens.
func PrefillBucket(promptTokens int) int {
	switch {
	case promptTokens < 512:
		return 0
	case promptTokens < 2048:
		return 1
	case promptTokens < 8192:
		return 2
	default:
		return 3
	}
}

// DecodeBucket returns the bucket for that many busy slots, counting the one that asks.
func DecodeBucket(busy int) int { return min(max(busy, 1), DecodeBuckets) - 1 }

// Sum is a decaying pair of sums, valid at At. The zero value means nothing was measured.
type Sum struct {
	Amount  float64
	Seconds float64
	At      time.Time
}

// Decayed returns the sums as they count at now.
func (s Sum) Decayed(now time.Time) Sum {
	if age := now.Sub(s.At); age > 0 && !s.At.IsZero() {
		f := math.Exp2(-float64(age) / float64(HalfLife))
		return Sum{Amount: s.Amount * f, Seconds: s.Seconds * f, At: now}
	}
	return s
}

// Learned is what a replica really did, as decaying sums. The zero value means nothing yet.
type Learned struct {
	Prefill  [PrefillBuckets]Sum
	Decode   [DecodeBuckets]Sum
	Overhead Sum // Seconds over Amount is the mean time an attempt takes beside prefill and decode
	Failure  Sum // Amount over Seconds is the share of attempts that failed
}
