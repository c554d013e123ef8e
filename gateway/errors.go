package gateway

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"phonebank/auth"
	"phonebank/auth/limit"
	"phonebank/balancer"
	"phonebank/gateway/account"
	"phonebank/gateway/openai"
	"phonebank/gateway/relay"
)

// Causes the edge itself gives up for.
var (
	errDeadline   = errors.New("the deadline the caller gave has passed")
	errCallerGone = errors.New("the caller has gone")
)

// retryError is an error with the time after which the same request may find a phone.
type retryError struct {
	error
	after time.Duration
}

// Unwrap returns the error without the time.
func (e *retryError) Unwrap() error { return e.error }

// withRetry adds to an error of a full or absent fleet when that may change, as far as anybody knows.
func (g *Gateway) withRetry(err error, t balancer.Ticket) error {
	for _, fleet := range []error{errQueueFull, balancer.ErrPatience, balancer.ErrNoReplica} {
		if errors.Is(err, fleet) {
			if after := g.Room.ComesFree(t); after > 0 {
				return &retryError{err, after}
			}
		}
	}
	return err
}

// attemptError is a request that failed on its phones.
type attemptError struct {
	last     relay.Result
	attempts int
}

// Error implements error.
func (e *attemptError) Error() string {
	return fmt.Sprintf("%d attempts failed, the last %s: %v", e.attempts, e.last.Kind, e.last.Err)
}

// Unwrap returns the last attempt's cause.
func (e *attemptError) Unwrap() error { return e.last.Err }

// verdict is what an error means: the answer, and its place in the books.
type verdict struct {
	public  *openai.Error // nil: nobody is left to tell
	outcome account.Outcome
	noRetry bool // our own tries are spent; the SDK's would only multiply them
}

// judge says what an error means, and when to come back where somebody knows.
func judge(err error) verdict {
	v := verdictOf(err)
	var retry *retryError
	if errors.As(err, &retry) && v.public != nil {
		v.public.RetryAfter = retry.after
	}
	return v
}

// verdictOf is the one table from errors to answers. Anything it does not know is our bug: a fixed text, and the cause in the log.
func verdictOf(err error) verdict {
	var public *openai.Error
	var exceeded *limit.Exceeded
	var attempts *attemptError
	var retry *retryError
	switch {
	case errors.Is(err, errCallerGone), errors.Is(err, context.Canceled):
		return verdict{outcome: account.Cancelled}
	case errors.As(err, &attempts):
		return judgeAttempts(attempts)
	case errors.As(err, &public):
		return verdict{public: public, outcome: account.BadRequest}
	case errors.As(err, &exceeded):
		return verdict{public: limited(exceeded), outcome: account.RefusedLimit}
	case errors.Is(err, auth.ErrMissing):
		return verdict{public: openai.MissingAPIKey(), outcome: account.Unauthorized}
	case errors.Is(err, auth.ErrMalformed), errors.Is(err, auth.ErrInvalid):
		return verdict{public: openai.InvalidAPIKey(), outcome: account.Unauthorized}
	case errors.Is(err, errDeadline):
		return verdict{public: openai.Timeout("The request did not finish within the time given in x-phonebank-timeout."), outcome: account.Timeout}
	case errors.Is(err, errQueueFull):
		return verdict{public: openai.Overloaded(retryFull, "Too many requests are waiting for this model. Try again shortly, or add phones."), outcome: account.RefusedFull}
	case errors.Is(err, balancer.ErrPatience):
		return verdict{public: openai.Overloaded(retryBusy, "All phones of this model stayed busy for as long as a request of this class waits. Try again, or add phones."), outcome: account.RefusedFull}
	case errors.Is(err, balancer.ErrNoReplica) && errors.As(err, &retry):
		return verdict{public: openai.Overloaded(retry.after, allResting), outcome: account.NoReplica}
	case errors.Is(err, balancer.ErrNoReplica):
		return verdict{public: openai.Overloaded(retryAway, "No phone that serves this model is reachable now. They are probed every few seconds; try again shortly."), outcome: account.NoReplica}
	case errors.Is(err, balancer.ErrHopeless):
		return verdict{public: openai.Overloaded(retryHopeless, "No phone of this model has enough time left in its deployment, or enough slots, for a request of this size. Try a smaller one."), outcome: account.NoReplica}
	case errors.Is(err, balancer.ErrDraining):
		return verdict{public: openai.Overloaded(retryAway, "This gateway is stopping. Send the request again; another one takes it."), outcome: account.Unavailable}
	case errors.Is(err, balancer.ErrUnavailable), errors.Is(err, balancer.ErrLost):
		return verdict{public: openai.Overloaded(retryAway, "The gateway has lost touch with its shared state and gave the request up before an answer. Try again shortly."), outcome: account.Unavailable}
	}
	return verdict{public: openai.Internal(), outcome: account.Internal}
}

// Waits we advise when nothing better is known. SDKs ignore more than 120 s.
const (
	retryFull     = 10 * time.Second
	retryBusy     = 15 * time.Second
	retryAway     = 5 * time.Second
	retryHopeless = 60 * time.Second
)

const allResting = "Every phone of this model asked to be left alone for a while. Try again shortly."

// errQueueFull means a bound of the queue refused the ticket.
var errQueueFull = errors.New("queue is full")

func judgeAttempts(e *attemptError) verdict {
	last := e.last
	switch {
	case last.Kind == relay.Caller && last.Public != nil:
		return verdict{public: last.Public, outcome: account.BadRequest}
	case last.Delivered:
		return verdict{public: openai.BadGateway("The phone that was answering was lost in the middle of its answer, which therefore ends here, incomplete. Send the request again."), outcome: account.Truncated}
	case last.Kind == relay.Busy:
		return verdict{public: openai.Overloaded(retryBusy, allResting), outcome: account.NoReplica}
	default:
		return verdict{
			public:  openai.BadGateway(fmt.Sprintf("%d attempts to answer this request failed, the last one with: %s. If it happens again with this request only, change the request.", e.attempts, last.Kind)),
			outcome: account.UpstreamError, noRetry: true,
		}
	}
}

func limited(e *limit.Exceeded) *openai.Error {
	d := e.Decision
	bound := d.Requests.Limit
	if d.Tripped == limit.Tokens {
		bound = d.Tokens.Limit
	}
	public := openai.RateLimited(openai.LimitKind(d.Tripped), bound, d.RetryAfter)
	public.Message = e.Error()
	return public
}

// setRetryHeaders says when to come back. Limits have set theirs already, exactly.
func setRetryHeaders(h http.Header, v verdict) {
	if v.noRetry {
		h.Set("x-should-retry", "false")
		return
	}
	if v.public.RetryAfter > 0 && h.Get("Retry-After") == "" && v.public.Status != http.StatusTooManyRequests {
		seconds := min(max(math.Ceil(v.public.RetryAfter.Seconds()), 1), 120)
		h.Set("Retry-After", strconv.Itoa(int(seconds)))
	}
}

// handleError is echo's error handler: routes that do not exist, and what handlers outside the pipeline return.
func (g *Gateway) handleError(err error, c echo.Context) {
	if c.Response().Committed {
		return
	}
	v := verdict{}
	var he *echo.HTTPError
	switch {
	case errors.As(err, &he) && he.Code == http.StatusNotFound:
		v.public = openai.UnknownURL(c.Request().Method, c.Request().URL.Path)
	case errors.As(err, &he) && he.Code == http.StatusMethodNotAllowed:
		v.public = openai.MethodNotAllowed(c.Request().Method, c.Request().URL.Path)
	default:
		v = judge(err)
		if v.public == nil {
			return
		}
		if v.outcome == account.Internal {
			g.Log.Error("handler", "error", err, "route", c.Path())
		}
	}
	setRetryHeaders(c.Response().Header(), v)
	_ = c.Blob(v.public.Status, "application/json", v.public.Body()) // the caller may have gone
}
