package bench

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// Run puts the load of cfg on its endpoint and returns when every request that
// started has ended. When ctx ends, no further request starts, those under way
// are cancelled and counted as "cancelled", and the report of what was measured
// comes back with the cause. A failing request is a number in the report, never
// an error.
func Run(ctx context.Context, cfg Config) (Report, error) {
	if err := cfg.Validate(); err != nil {
		return Report{}, err
	}
	cfg = cfg.withDefaults()
	r := &runner{cfg: cfg, target: cfg.target(), tally: newTally()}

	start := time.Now()
	if cfg.Rate > 0 {
		r.open(ctx, start)
	} else {
		r.closed(ctx, start)
	}
	report := r.tally.report(cfg, time.Since(start))
	cfg.Client.CloseIdleConnections()
	return report, context.Cause(ctx)
}

type runner struct {
	cfg    Config
	target string
	tally  *tally
	sent   atomic.Int64
}

// next hands out the number of the next request, or says that the run is over.
func (r *runner) next(ctx context.Context, start, due time.Time) (int, bool) {
	if ctx.Err() != nil || (r.cfg.Duration > 0 && due.Sub(start) >= r.cfg.Duration) {
		return 0, false
	}
	n := int(r.sent.Add(1)) - 1
	return n, r.cfg.Requests == 0 || n < r.cfg.Requests
}

// closed runs Concurrency callers.
func (r *runner) closed(ctx context.Context, start time.Time) {
	var callers sync.WaitGroup
	for range r.cfg.Concurrency {
		callers.Go(func() {
			for {
				now := time.Now()
				n, ok := r.next(ctx, start, now)
				if !ok {
					return
				}
				r.one(ctx, n, now)
			}
		})
	}
	callers.Wait()
}

// open sends requests when they are due. A place in flight is taken before the
// goroutine starts, so what is held is bounded; waiting for it does not move
// the moment the request was due.
func (r *runner) open(ctx context.Context, start time.Time) {
	var (
		callers sync.WaitGroup
		places  = make(chan struct{}, r.cfg.Concurrency)
		gaps    = rand.New(rand.NewPCG(r.cfg.Seed, 1)) // repeatable arrivals, not secrets
		due     = start
	)
	for {
		n, ok := r.next(ctx, start, due)
		if !ok || !sleepUntil(ctx, due) {
			break
		}
		select {
		case places <- struct{}{}:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			break
		}
		wasDue := due
		callers.Go(func() {
			defer func() { <-places }()
			r.one(ctx, n, wasDue)
		})
		gap := 1.0
		if !r.cfg.Fixed {
			gap = gaps.ExpFloat64()
		}
		due = due.Add(time.Duration(gap / r.cfg.Rate * float64(time.Second)))
	}
	callers.Wait()
}

// sleepUntil reports false when ctx ended first.
func sleepUntil(ctx context.Context, t time.Time) bool {
	wait := time.Until(t)
	if wait <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// one sends request n, which was due at due, and records what came of it.
func (r *runner) one(ctx context.Context, n int, due time.Time) {
	prompt := r.cfg.Prompt(n)
	body, err := r.cfg.body(prompt)
	if err != nil {
		r.tally.failed("encode", 0, 0)
		return
	}
	lag := time.Since(due)
	a, err := r.send(ctx, body)
	end := time.Now()
	if err == nil && r.cfg.Verify != nil && r.cfg.Verify(prompt, a.text) != nil {
		err = errWrong
	}
	if err != nil {
		r.tally.failed(label(ctx, err), lag, end.Sub(due))
		return
	}
	r.tally.succeeded(a, due, lag, end)
}

var errWrong = errors.New("wrong")

// statusError is an answer whose status was not 200.
type statusError struct{ status int }

func (e *statusError) Error() string { return strconv.Itoa(e.status) }

// send makes one HTTP exchange and reads its answer to the end.
func (r *runner) send(ctx context.Context, body []byte) (answer, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, r.cfg.Timeout, errTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.target, bytes.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	if r.cfg.Key != "" {
		req.Header.Set("Authorization", "Bearer "+r.cfg.Key)
	}
	resp, err := r.cfg.Client.Do(req)
	if err != nil {
		return answer{}, timedOut(ctx, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		// Drained so that the connection is used again; bounded, so that a
		// hostile server cannot hold the generator.
		_, _ = io.CopyN(io.Discard, resp.Body, maxEventBytes)
		return answer{}, &statusError{status: resp.StatusCode}
	}
	var a answer
	if r.cfg.Stream {
		a, err = readStream(resp.Body, r.cfg.Verify != nil)
		_, _ = io.CopyN(io.Discard, resp.Body, maxEventBytes)
	} else {
		a, err = readJSON(resp.Body)
	}
	return a, timedOut(ctx, err)
}

var errTimeout = errors.New("timeout")

// timedOut replaces whatever error a passed deadline surfaced as.
func timedOut(ctx context.Context, err error) error {
	if err != nil && errors.Is(context.Cause(ctx), errTimeout) {
		return errTimeout
	}
	return err
}

// label names a failure in the report: few, stable names without addresses.
func label(ctx context.Context, err error) string {
	if ctx.Err() != nil {
		return "cancelled"
	}
	if status, ok := errors.AsType[*statusError](err); ok {
		return status.Error()
	}
	if event, ok := errors.AsType[*streamError](err); ok {
		return event.Error()
	}
	for _, known := range []error{errTimeout, errTruncated, errMalformed, errTooLong, errWrong} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	return "connection"
}
