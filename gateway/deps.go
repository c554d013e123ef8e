package gateway

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"time"

	"phonebank/auth"
	"phonebank/auth/limit"
	"phonebank/balancer"
	"phonebank/gateway/account"
	"phonebank/gateway/openai"
	"phonebank/gateway/relay"
	"phonebank/health"
)

// Authenticator says who sent a request. It may be called concurrently and returns the errors of package auth.
type Authenticator interface {
	Authenticate(http.Header) (auth.Principal, error)
}

// Admitter decides in one step whether a key may have the request, and where it runs or waits. It may be called concurrently, applies its
// own short deadline and returns balancer.ErrUnavailable when it cannot be reached; whether it was committed is then unknown.
type Admitter interface {
	Admit(ctx context.Context, by balancer.Owner, key string, l limit.Limits, c limit.Cost, o balancer.Offer) (limit.Decision, balancer.Placement, error)
}

// Reporter takes what attempts tell of a phone's health. It may be called concurrently; its errors need no action.
type Reporter interface {
	Report(ctx context.Context, id balancer.ReplicaID, generation int64, e health.Evidence) error
}

// Book takes the record of each finished request. It must not block.
type Book interface {
	Finish(ctx context.Context, r account.Record)
}

// Model is a model callers may name.
type Model struct {
	ID        string
	Upstream  string         // the name the phones use
	Context   int            // tokens; 0 when unknown
	MaxTokens int            // when the caller gave none
	Defaults  []openai.Field // spliced in where the caller did not set them
}

// Config bounds the edge. Zero values mean the defaults in brackets.
type Config struct {
	Models      []Model
	Body        int64                            // bytes of a request's body [10 MiB]
	BodyTime    time.Duration                    // for the whole body to arrive [2m]
	Patience    map[balancer.Class]time.Duration // how long a request of a class waits for a phone; 0 or missing: no limit
	CommitAfter time.Duration                    // a streaming caller hears the first comment after that [10s]
	CommentGap  time.Duration                    // and another after each such silence [10s]
	Clocks      relay.Clocks
	CancelBound time.Duration // how long an engine may take to notice that its caller has gone, beside a running batch [1s]
}

// Deps are the rooms the edge works with. All are required.
type Deps struct {
	Auth     Authenticator
	Admitter Admitter
	Room     *balancer.Dispatcher
	Relay    *relay.Relay
	Phones   *relay.Directory
	Health   Reporter
	Breakers *health.Breakers
	Book     Book
	Log      *slog.Logger
}

func (c Config) withDefaults() Config {
	if c.Body <= 0 {
		c.Body = 10 << 20
	}
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{{&c.BodyTime, 2 * time.Minute}, {&c.CommitAfter, 10 * time.Second}, {&c.CommentGap, 10 * time.Second}, {&c.CancelBound, time.Second}} {
		if *d.field <= 0 {
			*d.field = d.value
		}
	}
	return c
}

// upstreamFields are what llama-server needs to be told so that a request can be cancelled: only a stream with progress notices.
func upstreamFields() []openai.Field {
	return []openai.Field{
		{Name: "stream", Raw: json.RawMessage("true")},
		{Name: "return_progress", Raw: json.RawMessage("true")},
		{Name: "sse_ping_interval", Raw: json.RawMessage("5")},
	}
}
