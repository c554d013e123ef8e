package gateway

import (
	"errors"
	"time"

	"phonebank/balancer"
	"phonebank/gateway/relay"
	"phonebank/health"
)

var (
	errUnknownPhone = errors.New("this gateway's configuration does not hold the phone")
	errAttempt      = errors.New("attempt failed")
)

// evidenceOf is what the end of an attempt says of the phone's health.
func evidenceOf(r relay.Result) health.Evidence {
	e := health.Evidence{Kind: evidenceKind(r.Kind), LeaveAlone: r.Wait}
	if r.Kind != relay.Done {
		e.Reason = r.Kind.String()
	}
	return e
}

// evidenceKind is the one table from how an attempt ended to what that says of its phone.
func evidenceKind(k relay.Kind) health.Kind {
	switch k {
	case relay.Done:
		return health.Served
	case relay.Offline:
		return health.Offline
	case relay.Silent:
		return health.Silent
	case relay.Broken, relay.Stalled, relay.Truncated, relay.Nonsense:
		return health.Broken
	case relay.Busy:
		return health.Busy
	case relay.Misconfigured:
		return health.Misconfigured
	case relay.Unclear:
		return health.Unclear
	case relay.Caller, relay.Cancelled:
		return health.None
	}
	return health.None
}

// batchTokens is llama-server's usual logical batch: a cancel is noticed only between two of them.
const batchTokens = 512

// restingPause keeps a request for which there is only a phone that this gateway's breaker keeps away from coming back to it at once.
const restingPause = time.Second

// aftermath is what an attempt leaves on its phone: how long the slot may still be at work, and what was learned of its speed.
func (g *Gateway) aftermath(l balancer.Lease, r relay.Result) balancer.Attempt {
	a := balancer.Attempt{
		// A busy phone too: the choice would hold the request for it as long as it is the fastest, and be turned away again.
		Failed:  r.Kind != relay.Done && r.Kind != relay.Caller && r.Kind != relay.Cancelled,
		Samples: samplesOf(l, r),
	}
	if errors.Is(r.Err, health.ErrTripped) {
		a.Cooling = restingPause
		return a
	}
	if r.Phase == relay.Connecting && r.Kind != relay.Done {
		return a // the phone has not heard of the request
	}
	switch r.Kind {
	case relay.Cancelled, relay.Silent, relay.Stalled, relay.Truncated, relay.Nonsense:
		a.Cooling = g.cooling(l, r)
	default: // the phone has answered or is gone
	}
	return a
}

// cooling bounds how long a phone may go on after its caller has gone.
func (g *Gateway) cooling(l balancer.Lease, r relay.Result) time.Duration {
	const most = 2 * time.Minute
	endpoint, ok := g.Phones.Lookup(l.Replica)
	if ok && endpoint.Engine == balancer.MNN { // it never learns of it
		return min(max(l.Predicted-r.Total, g.cfg.CancelBound), 10*time.Minute)
	}
	bound := g.cfg.CancelBound
	if rates, ok := g.Room.Rates(l.Replica); ok && r.Phase < relay.Decoding {
		bound += time.Duration(batchTokens / rates.Prefill[0] * float64(time.Second))
	}
	return min(bound, most)
}

// samplesOf is what an attempt teaches. Our own clock wins over the phone's: a phone cannot claim to have been faster than its answer came,
// and what it claims to have been slower is cut to what passed.
func samplesOf(l balancer.Lease, r relay.Result) []balancer.Sample {
	if r.Kind != relay.Done {
		if r.Kind == relay.Cancelled || r.Kind == relay.Caller {
			return nil
		}
		// Busy is no illness, but a phone that says so all the time must not look like the idlest of all.
		return []balancer.Sample{{Kind: balancer.FailureSample, Amount: 1, Seconds: 1}}
	}
	s := []balancer.Sample{{Kind: balancer.FailureSample, Seconds: 1}}
	first, total := r.FirstToken.Seconds(), r.Total.Seconds()
	if first <= 0 || total <= 0 {
		return s
	}
	prefill := min(r.Timings.PromptMS/1000, first)
	if n := r.Timings.PromptN; n > 0 && prefill > 0 {
		s = append(s, balancer.Sample{Kind: balancer.PrefillSample, Bucket: balancer.PrefillBucket(n), Amount: float64(n), Seconds: prefill})
	} else if n := r.Usage.PromptTokens - r.Usage.CachedTokens; n > 0 {
		prefill = first
		s = append(s, balancer.Sample{Kind: balancer.PrefillSample, Bucket: balancer.PrefillBucket(n), Amount: float64(n), Seconds: first})
	}
	if over := first - prefill; over > 0 {
		s = append(s, balancer.Sample{Kind: balancer.OverheadSample, Amount: 1, Seconds: over})
	}
	if n := r.Usage.CompletionTokens; n > 1 && total > first {
		s = append(s, balancer.Sample{Kind: balancer.DecodeSample, Bucket: balancer.DecodeBucket(l.Busy), Amount: float64(n - 1), Seconds: total - first})
	}
	return s
}
