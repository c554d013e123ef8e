package account

import (
	"log/slog"
	"time"
)

// Outcome is how a request ended for its caller.
type Outcome string

// The outcomes.
const (
	OK            Outcome = "ok"
	Truncated     Outcome = "truncated"      // content was delivered, then an error event
	Cancelled     Outcome = "cancelled"      // the caller went away
	RefusedLimit  Outcome = "refused_limit"  // the caller's own limit
	RefusedFull   Outcome = "refused_full"   // the queue is full
	NoReplica     Outcome = "no_replica"     // no phone can serve it now
	Timeout       Outcome = "timeout"        // its deadline passed
	UpstreamError Outcome = "upstream_error" // every phone tried failed
	Unavailable   Outcome = "unavailable"    // the shared state is away, or the gateway is stopping
	BadRequest    Outcome = "bad_request"    // the caller's mistake, found by us or by a phone
	Unauthorized  Outcome = "unauthorized"
	Internal      Outcome = "internal" // our bug
)

// Outcomes lists every outcome, for metrics and tests.
func Outcomes() []Outcome {
	return []Outcome{
		OK, Truncated, Cancelled, RefusedLimit, RefusedFull, NoReplica, Timeout, UpstreamError, Unavailable, BadRequest, Unauthorized, Internal,
	}
}

// level is who should care: Info an operator, Warn somebody whose phone or tenant misbehaves, Error us.
func (o Outcome) level() slog.Level {
	switch o {
	case OK, Cancelled:
		return slog.LevelInfo
	case Internal:
		return slog.LevelError
	default:
		return slog.LevelWarn
	}
}

// worked reports whether the caller was made to wait for a phone to work. Only then do its durations say something about the fleet:
// refusals take no time, and a caller who leaves chooses his own.
func (o Outcome) worked() bool {
	switch o {
	case OK, Truncated, Timeout, UpstreamError:
		return true
	default:
		return false
	}
}

// Record is one finished request. Fields that do not apply are zero; durations and counts are never negative.
type Record struct {
	RequestID string
	KeyID     string // id of the API key; empty when nobody was authenticated
	Model     string // a configured model; empty when the caller named none or another
	Route     string // the route's pattern, such as /v1/chat/completions, never the path as sent
	Class     string // guard, chat, review or batch; empty when it was refused before that was known
	Stream    bool

	Status    int // HTTP status; 499 when the caller went away before one was sent
	Outcome   Outcome
	ErrorCode string // the code in the error body; empty with OK
	Err       error  // the cause, for the log only; must not quote a prompt or a secret

	PromptTokens     int
	CachedTokens     int // of PromptTokens
	CompletionTokens int
	EstimatedPrompt  int // PromptTokens as guessed before

	Attempts int      // phones that were given the request
	Replica  string   // the last of them
	Kinds    []string // how each failed attempt ended (relay.Kind), in order

	Queue      time.Duration // waiting for a phone, over all attempts
	FirstToken time.Duration // from the arrival of the request; 0 when none came
	Total      time.Duration
}
