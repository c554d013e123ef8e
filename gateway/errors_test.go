package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"phonebank/auth"
	"phonebank/auth/limit"
	"phonebank/balancer"
	"phonebank/gateway/account"
	"phonebank/gateway/openai"
	"phonebank/gateway/relay"
)

// limitedBy is the refusal of a key's limit.
func limitedBy(d limit.Dimension, tooLarge bool, wait time.Duration) error {
	return limit.Decision{
		Tripped: d, TooLarge: tooLarge, RetryAfter: wait,
		Requests: limit.Bucket{Limit: 10, Remaining: 0, Reset: time.Minute},
		Tokens:   limit.Bucket{Limit: 1000, Remaining: 40, Reset: 57 * time.Second},
	}.Err()
}

func attempted(kind relay.Kind, change ...func(*relay.Result)) error {
	r := relay.Result{Kind: kind, Err: errors.New("secret cause")}
	for _, f := range change {
		f(&r)
	}
	return &attemptError{last: r, attempts: 3}
}

type judged struct {
	name    string
	err     error
	outcome account.Outcome
}

func judgements() []judged {
	wrapped := func(err error) error { return fmt.Errorf("while serving: %w", err) }
	delivered := func(r *relay.Result) { r.Delivered = true }
	return []judged{
		{"caller gone", errCallerGone, account.Cancelled},
		{"context cancelled", wrapped(context.Canceled), account.Cancelled},
		{"no key", wrapped(auth.ErrEmpty), account.Unauthorized},
		{"malformed key", auth.ErrConflict, account.Unauthorized},
		{"unknown key", auth.ErrInvalid, account.Unauthorized},
		{"bad request", wrapped(openai.InvalidRequest("n", "n must be at least 1.")), account.BadRequest},
		{"too large a body", openai.TooLarge(10 << 20), account.BadRequest},
		{"requests per minute", limitedBy(limit.Requests, false, 6*time.Second), account.RefusedLimit},
		{"tokens per minute", limitedBy(limit.Tokens, false, 1500*time.Millisecond), account.RefusedLimit},
		{"more tokens than the limit", limitedBy(limit.Tokens, true, 0), account.RefusedLimit},
		{"concurrency", limitedBy(limit.Concurrent, false, time.Second), account.RefusedLimit},
		{"caller's deadline", wrapped(errDeadline), account.Timeout},
		{"queue full", errQueueFull, account.RefusedFull},
		{"patience", wrapped(balancer.ErrPatience), account.RefusedFull},
		{"no phone", balancer.ErrNoReplica, account.NoReplica},
		{"all phones rest", &retryError{balancer.ErrNoReplica, 41500 * time.Millisecond}, account.NoReplica},
		{"all phones rest for hours", &retryError{balancer.ErrNoReplica, 3 * time.Hour}, account.NoReplica},
		{"no phone is large enough", balancer.ErrHopeless, account.NoReplica},
		{"stopping", balancer.ErrDraining, account.Unavailable},
		{"no shared state", wrapped(balancer.ErrUnavailable), account.Unavailable},
		{"lost by the shared state", balancer.ErrLost, account.Unavailable},
		{"phones failed", attempted(relay.Broken), account.UpstreamError},
		{"phone unclear", attempted(relay.Unclear), account.UpstreamError},
		{"phones busy", attempted(relay.Busy), account.NoReplica},
		{"phone lost in the middle", attempted(relay.Offline, delivered), account.Truncated},
		{"busy in the middle", attempted(relay.Busy, delivered), account.Truncated},
		{"refused by the phone", attempted(relay.Caller, func(r *relay.Result) { r.Public = openai.ContextLengthExceeded(64, 99) }), account.BadRequest},
		{"refused by the phone in the middle", attempted(relay.Caller, delivered, func(r *relay.Result) { r.Public = openai.ContextLengthExceeded(64, 99) }), account.BadRequest},
		{"anything else", errors.New("secret cause"), account.Internal},
	}
}

// TestJudge holds every answer to an error against testdata/errors.golden: status, headers, body. Change the file on purpose only: callers
// branch on it.
func TestJudge(t *testing.T) {
	t.Parallel()
	var got strings.Builder
	for _, j := range judgements() {
		v := judge(j.err)
		if v.outcome != j.outcome {
			t.Errorf("%s: got outcome %s, want %s", j.name, v.outcome, j.outcome)
		}
		if v.public == nil {
			fmt.Fprintf(&got, "%s: nobody to tell\n\n", j.name)
			continue
		}
		h := make(http.Header)
		setRetryHeaders(h, v)
		fmt.Fprintf(&got, "%s: %d", j.name, v.public.Status)
		for _, name := range []string{"Retry-After", "X-Should-Retry"} {
			if value := h.Get(name); value != "" {
				fmt.Fprintf(&got, " %s: %s", name, value)
			}
		}
		fmt.Fprintf(&got, "\n%s\n\n", v.public.Body())
	}
	if strings.Contains(got.String(), "secret") {
		t.Error("an answer repeats the cause")
	}
	path := filepath.Join("testdata", "errors.golden")
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; got:\n%s", err, got.String())
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}

// Limits have their own exact headers, which the table must not replace; and one that an SDK is told not to retry keeps that.
func TestSetRetryHeaders(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		v       verdict
		before  string // Retry-After that is set already
		after   string
		retries string
	}{
		{"a wait", verdict{public: openai.Overloaded(5*time.Second, "")}, "", "5", ""},
		{"rounded up", verdict{public: openai.Overloaded(5001*time.Millisecond, "")}, "", "6", ""},
		{"at least a second", verdict{public: openai.Overloaded(time.Millisecond, "")}, "", "1", ""},
		{"at most what SDKs obey", verdict{public: openai.Overloaded(time.Hour, "")}, "", "120", ""},
		{"one that is set stays", verdict{public: openai.Overloaded(5*time.Second, "")}, "3", "3", ""},
		{"limits set their own", verdict{public: openai.RateLimited(openai.LimitRequests, 1, time.Second)}, "", "", ""},
		{"no wait", verdict{public: openai.Internal()}, "", "", ""},
		{"our tries are spent", verdict{public: openai.BadGateway(""), noRetry: true}, "", "", "false"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := make(http.Header)
			if tt.before != "" {
				h.Set("Retry-After", tt.before)
			}
			setRetryHeaders(h, tt.v)
			if got := h.Get("Retry-After"); got != tt.after {
				t.Errorf("got Retry-After %q, want %q", got, tt.after)
			}
			if got := h.Get("X-Should-Retry"); got != tt.retries {
				t.Errorf("got x-should-retry %q, want %q", got, tt.retries)
			}
		})
	}
}

func TestCauseOf(t *testing.T) {
	t.Parallel()
	other := errors.New("write failed")
	tests := []struct {
		name  string
		cause error
		err   error
		want  error
	}{
		{"nothing happened", nil, nil, nil},
		{"the context lives", nil, other, other},
		{"no error", context.Canceled, nil, nil},
		{"the deadline", errDeadline, other, errDeadline},
		{"the gateway stops", balancer.ErrDraining, other, balancer.ErrDraining},
		{"the caller", context.Canceled, other, errCallerGone},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			if tt.cause != nil {
				cancel(tt.cause)
			}
			if got := causeOf(ctx, tt.err); !errors.Is(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func TestRoutesThatDoNotExist(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	tests := []struct {
		method, path string
		status       int
		code         string
	}{
		{http.MethodGet, "/v1/nothing", http.StatusNotFound, "null"},
		{http.MethodPost, "/v2/chat/completions", http.StatusNotFound, "null"},
		{http.MethodGet, "/v1/chat/completions", http.StatusMethodNotAllowed, `"method_not_supported"`},
		{http.MethodDelete, "/models", http.StatusMethodNotAllowed, `"method_not_supported"`},
	}
	for _, tt := range tests {
		t.Run(tt.method+tt.path, func(t *testing.T) {
			t.Parallel()
			w := httptest.NewRecorder()
			g.Handler(func() error { return nil }).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), tt.method, tt.path, nil))
			if w.Code != tt.status || !strings.HasSuffix(w.Body.String(), `"code":`+tt.code+"}}") {
				t.Errorf("got %d %s, want %d and code %s", w.Code, w.Body, tt.status, tt.code)
			}
			if got := w.Header().Get("Content-Type"); got != "application/json" {
				t.Errorf("got content type %q", got)
			}
		})
	}
}
