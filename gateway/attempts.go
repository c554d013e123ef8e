package gateway

import (
	"cmp"
	"context"
	"net/http"
	"strconv"
	"sync"
	"time"

	"phonebank/balancer"
	"phonebank/gateway/account"
	"phonebank/gateway/openai"
	"phonebank/gateway/relay"
	"phonebank/health"
)

// Bounds of one request's tries. A phone that was lost, busy or misconfigured costs the request nothing but time; maxTries only stops what
// would go on for ever.
const (
	maxAttempts = 3  // that stalled, broke off or answered nonsense
	maxUnclear  = 2  // 500s: the phone's fault once, the request's if another phone says so too
	maxTries    = 50 // of any kind
)

// plan is what stays the same over a request's attempts.
type plan struct {
	head  *openai.Head
	model *Model
}

// run is what became of a request.
type run struct {
	err      error            // nil: the whole answer was delivered
	last     relay.Result     // of the attempt that ended it; zero when there was none
	attempt  balancer.Attempt // what its lease leaves behind
	replica  balancer.ReplicaID
	attempts int
	failed   []relay.Kind // of the attempts before the last, and the last if it failed
	queued   time.Duration
	began    time.Time // of the last attempt
	worked   bool      // a phone has worked on the request
}

// attempts tries phones until one has answered, the caller is content with an error, or nothing is left to try.
func (g *Gateway) attempts(ctx context.Context, claim *balancer.Claim, out *relay.Delivery, p plan) run {
	var r run
	var charged, unclear, empty int
	for {
		waited := time.Now()
		lease, err := claim.Await(ctx)
		r.queued += time.Since(waited)
		if err != nil {
			r.err = causeOf(ctx, err)
			return r
		}
		r.attempts++
		r.replica, r.began = lease.Replica, time.Now()
		out.Note("x-phonebank-replica", string(lease.Replica))
		out.Note("x-phonebank-attempts", strconv.Itoa(r.attempts))
		out.Note("x-phonebank-queue-ms", strconv.FormatInt(r.queued.Milliseconds(), 10))

		r.last = g.try(ctx, lease, out, p, empty > 0)
		r.attempt = g.aftermath(lease, r.last)
		r.worked = r.worked || r.last.Phase >= relay.Prefill
		if r.last.Kind == relay.Done {
			return r
		}
		r.failed = append(r.failed, r.last.Kind)

		switch {
		case r.last.Kind == relay.Unclear:
			unclear++
			charged++
		case relay.IsEmpty(r.last):
			empty++
			charged++
		case !free(r.last):
			charged++
		}
		over := charged >= maxAttempts || unclear >= maxUnclear || r.attempts >= maxTries
		if r.last.Delivered || r.last.Kind == relay.Caller || r.last.Kind == relay.Cancelled || over {
			r.err = causeOf(ctx, &attemptError{last: r.last, attempts: r.attempts})
			if r.last.Kind == relay.Cancelled && ctx.Err() == nil {
				r.err = errCallerGone // noticed while writing
			}
			return r
		}
		if err := claim.Requeue(ctx, r.attempt); err != nil {
			r.err = causeOf(ctx, err)
			return r
		}
		r.attempt = balancer.Attempt{} // given back with the lease
	}
}

// free reports whether a failure costs the request no attempt: the phone was lost, or never began.
func free(r relay.Result) bool {
	return r.Lost || r.Kind == relay.Busy || r.Kind == relay.Misconfigured
}

// try runs one attempt and reports what it says of the phone's health, before anything else can choose that phone again.
func (g *Gateway) try(ctx context.Context, lease balancer.Lease, out *relay.Delivery, p plan, acceptEmpty bool) relay.Result {
	endpoint, ok := g.Phones.Lookup(lease.Replica)
	if !ok {
		return relay.Result{Kind: relay.Misconfigured, Err: errUnknownPhone}
	}
	done, err := g.Breakers.Allow(lease.Replica)
	if err != nil {
		return relay.Result{Kind: relay.Busy, Err: err, Lost: true}
	}
	var alive sync.WaitGroup
	defer alive.Wait()
	streamed := p.head.Stream || endpoint.Engine != balancer.OpenAI
	res := g.Relay.Attempt(ctx, relay.Job{
		Endpoint:    endpoint,
		Body:        p.body(endpoint),
		Streamed:    streamed,
		Predicted:   lease.Predicted,
		Out:         out,
		AcceptEmpty: acceptEmpty,
		Alive: func() {
			// Beside the stream: a slow shared state must not slow the answer down.
			alive.Go(func() { _ = g.Health.Report(ctx, lease.Replica, lease.Generation, health.Evidence{Kind: health.Alive}) })
		},
	})
	evidence := evidenceOf(res)
	if tripped := done(breakerError(res, evidence)); tripped {
		_ = g.Health.Report(ctx, lease.Replica, lease.Generation, health.Evidence{Kind: health.Tripped, Reason: "failures in a row"})
	}
	// An unavailable shared state is told by others; a lost report is followed by more.
	_ = g.Health.Report(ctx, lease.Replica, lease.Generation, evidence)
	return res
}

// body is what the phone gets: the caller's bytes with the few edits its engine needs.
func (p plan) body(e *relay.Endpoint) []byte {
	edits := openai.Edits{Model: e.Model, Defaults: p.model.Defaults, Drop: []string{"id_slot"}}
	if p.head.MaxTokens == 0 && p.model.MaxTokens > 0 {
		// Without a bound an engine runs until its context is full.
		edits.Set = append(edits.Set, openai.Field{Name: "max_tokens", Raw: []byte(strconv.Itoa(p.model.MaxTokens))})
	}
	switch e.Engine {
	case balancer.LlamaCpp, balancer.MNN:
		edits.Set = append(edits.Set, upstreamFields()...)
		edits.IncludeUsage = true
	default:
		edits.IncludeUsage = p.head.Stream
	}
	return p.head.Splice(edits)
}

// breakerError is what the local breaker hears: failures of the phone only. A 500 may be the request's, and a caller who repeats it must
// not take the fleet away from everybody.
func breakerError(r relay.Result, e health.Evidence) error {
	switch e.Kind {
	case health.Served:
		return nil
	case health.None, health.Busy, health.Unclear:
		return health.ErrNeutral
	default:
		return cmp.Or(r.Err, errAttempt)
	}
}

// settlement is what the key pays: what was counted, what was streamed before the caller left, nothing when we failed.
func (r run) settlement(t balancer.Ticket) balancer.Settlement {
	used := r.last.Usage.PromptTokens + r.last.Usage.CompletionTokens
	if r.last.Usage.PromptTokens == 0 && r.worked {
		used += t.PromptTokens
	}
	v := judge(r.err)
	switch {
	case r.err == nil, v.outcome == account.Cancelled, v.outcome == account.Timeout, v.outcome == account.Truncated:
		return balancer.Settlement{Tokens: used}
	case v.public != nil && v.public.Status < http.StatusInternalServerError:
		return balancer.Settlement{}
	default:
		return balancer.Settlement{Failed: true}
	}
}

// tell ends the answer of a request that failed.
func (g *Gateway) tell(out *relay.Delivery, r run) {
	if r.err == nil {
		return
	}
	if v := judge(r.err); v.public != nil {
		out.Fail(v.public, func(h http.Header) { setRetryHeaders(h, v) })
	}
}

// record completes the record of a request that was admitted.
func (r run) record(rec account.Record, start time.Time) account.Record {
	rec.Attempts, rec.Replica, rec.Queue = r.attempts, string(r.replica), r.queued
	if r.last.FirstToken > 0 {
		rec.FirstToken = r.began.Sub(start) + r.last.FirstToken
	}
	u := r.last.Usage
	rec.PromptTokens, rec.CompletionTokens, rec.CachedTokens = u.PromptTokens, u.CompletionTokens, u.CachedTokens
	for _, k := range r.failed {
		rec.Kinds = append(rec.Kinds, k.String())
	}
	rec.Outcome, rec.Status = account.OK, http.StatusOK
	if r.err != nil {
		v := judge(r.err)
		rec.Outcome, rec.Err, rec.Status = v.outcome, r.err, statusClientClosed
		if v.public != nil {
			rec.Status, rec.ErrorCode = v.public.Status, v.public.Code
		}
	}
	rec.Total = time.Since(start)
	return rec
}

// statusClientClosed stands in the log where the caller had gone before any status; it is never sent.
const statusClientClosed = 499
