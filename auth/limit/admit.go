package limit

import "time"

// concurrentRetry is what a refusal for concurrency asks for: the end of the
// running requests is unknown, and less than a second makes clients spin.
const concurrentRetry = time.Second

// State is everything a key's limits depend on. The zero value is an idle key.
type State struct {
	Requests, Tokens Level
	Running          int // accepted and unfinished requests
}

// Admit decides on one request at nowMS and returns the state afterwards. A
// refusal charges nothing.
func Admit(s State, nowMS int64, l Limits, c Cost) (State, Decision) {
	next, d := s, Decision{Allowed: true}
	if l.RequestsPerMinute > 0 {
		var ok bool
		var wait time.Duration
		s.Requests = s.Requests.At(nowMS, l.RequestsPerMinute)
		next.Requests, ok, wait = s.Requests.Take(nowMS, l.RequestsPerMinute, c.Requests)
		d.require(ok, Requests, wait)
	}
	if l.TokensPerMinute > 0 {
		var ok bool
		var wait time.Duration
		s.Tokens = s.Tokens.At(nowMS, l.TokensPerMinute)
		next.Tokens, ok, wait = s.Tokens.Reserve(nowMS, l.TokensPerMinute, c.Tokens)
		d.require(ok, Tokens, wait)
	}
	if l.Concurrent > 0 {
		d.require(s.Running < l.Concurrent, Concurrent, concurrentRetry)
	}
	next.Running++
	if !d.Allowed {
		next = s
	}
	d.Requests = next.Requests.Bucket(l.RequestsPerMinute)
	d.Tokens = next.Tokens.Bucket(l.TokensPerMinute)
	return next, d
}

// require turns d into a refusal unless ok. Of several refusals the longest wait
// stands, since coming back earlier would only be refused again; one that can
// never succeed (wait 0) stands above all.
func (d *Decision) require(ok bool, dim Dimension, wait time.Duration) {
	if ok || d.TooLarge {
		return
	}
	never := wait == 0
	if d.Allowed || never || wait > d.RetryAfter {
		d.Allowed, d.Tripped, d.TooLarge, d.RetryAfter = false, dim, never, wait
	}
}

// Finish ends one admitted request that had reserved tokens and used some. It
// is called exactly once for every admission, whatever became of the request;
// one that never reached a phone has used 0. The count of requests stays charged.
func Finish(s State, nowMS int64, l Limits, reserved, used int) State {
	if l.TokensPerMinute > 0 {
		s.Tokens = s.Tokens.Settle(nowMS, l.TokensPerMinute, reserved, used)
	}
	s.Running = max(0, s.Running-1)
	return s
}
