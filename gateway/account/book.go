package account

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"go.opentelemetry.io/otel/metric"
)

// Book writes finished requests down. Safe for concurrent use.
type Book struct {
	in  instruments
	log *slog.Logger

	series   memo[seriesKey, *series]
	attempts memo[string, []metric.AddOption]
	calls    memo[callKey, []metric.RecordOption]
}

// New returns a book that counts with m and logs to log. Fleet is asked at every scrape; nil leaves its gauges out.
func New(m metric.Meter, log *slog.Logger, fleet func() Fleet) (*Book, error) {
	in, err := newInstruments(m)
	if err != nil {
		return nil, err
	}
	if fleet != nil {
		if err := watch(m, fleet); err != nil {
			return nil, err
		}
	}
	return &Book{in: in, log: log}, nil
}

// Finish writes the one log line of a request and counts it. Call it exactly once for every request, whatever became of it.
func (b *Book) Finish(ctx context.Context, r Record) {
	ctx = context.WithoutCancel(ctx)
	b.count(ctx, r)
	b.log.LogAttrs(ctx, r.Outcome.level(), Message, line(r)...)
}

func (b *Book) count(ctx context.Context, r Record) {
	s := b.series.get(seriesKey{model: modelLabel(r.Model), route: r.Route, class: r.Class, outcome: r.Outcome}, newSeries)
	b.in.requests.Add(ctx, 1, s.request...)
	for _, kind := range r.Kinds {
		b.in.attempts.Add(ctx, 1, b.attempts.get(kind, newAttempt)...)
	}
	if good := r.Attempts - len(r.Kinds); good > 0 {
		b.in.attempts.Add(ctx, int64(good), b.attempts.get("done", newAttempt)...)
	}
	b.in.tokens.Add(ctx, int64(r.PromptTokens), s.input...)
	b.in.tokens.Add(ctx, int64(r.CachedTokens), s.cached...)
	b.in.tokens.Add(ctx, int64(r.CompletionTokens), s.output...)
	if !r.Outcome.worked() {
		return
	}
	b.in.duration.Record(ctx, r.Total.Seconds(), s.work...)
	b.in.queueWait.Record(ctx, r.Queue.Seconds(), s.wait...)
	if r.FirstToken > 0 {
		b.in.first.Record(ctx, r.FirstToken.Seconds(), s.work...)
	}
}

// RedisCall counts one round trip to the shared state. Script is the name of a script or command, from a closed set.
func (b *Book) RedisCall(script string, d time.Duration, err error) {
	b.in.redisCall.Record(context.Background(), d.Seconds(), b.calls.get(callKey{script: script, failed: err != nil}, newCall)...)
}

// line is the canonical log line. What does not apply is left out, but for the fields every line is searched by.
func line(r Record) []slog.Attr {
	attrs := make([]slog.Attr, 0, 20)
	attrs = append(attrs,
		slog.String(KeyRequestID, r.RequestID),
		slog.String(KeyKeyID, r.KeyID),
		slog.String(KeyModel, modelLabel(r.Model)),
		slog.String(KeyRoute, r.Route),
		slog.String(KeyClass, r.Class),
		slog.Bool(KeyStream, r.Stream),
		slog.Int(KeyStatus, r.Status),
		slog.String(KeyOutcome, string(r.Outcome)),
		slog.Int64(KeyTotalMS, r.Total.Milliseconds()),
	)
	if r.ErrorCode != "" {
		attrs = append(attrs, slog.String(KeyErrorCode, r.ErrorCode))
	}
	if r.Err != nil {
		attrs = append(attrs, slog.String(KeyError, r.Err.Error()))
	}
	if r.Replica != "" {
		attrs = append(attrs, slog.String(KeyReplica, r.Replica))
	}
	if len(r.Kinds) > 0 {
		attrs = append(attrs, slog.String(KeyFailedAttempts, strings.Join(r.Kinds, ",")))
	}
	attrs = appendCount(attrs, KeyAttempts, r.Attempts)
	attrs = appendCount(attrs, KeyTokensEstimated, r.EstimatedPrompt)
	attrs = appendCount(attrs, KeyTokensIn, r.PromptTokens)
	attrs = appendCount(attrs, KeyTokensCached, r.CachedTokens)
	attrs = appendCount(attrs, KeyTokensOut, r.CompletionTokens)
	attrs = appendCount(attrs, KeyQueueWaitMS, int(r.Queue.Milliseconds()))
	attrs = appendCount(attrs, KeyFirstTokenMS, int(r.FirstToken.Milliseconds()))
	if decode := r.Total - r.FirstToken; r.FirstToken > 0 && decode > 0 && r.CompletionTokens > 1 {
		perSecond := float64(r.CompletionTokens-1) / decode.Seconds()
		attrs = append(attrs, slog.Float64(KeyTokensPerSecond, float64(int(perSecond*10))/10))
	}
	return attrs
}

func appendCount(attrs []slog.Attr, key string, n int) []slog.Attr {
	if n == 0 {
		return attrs
	}
	return append(attrs, slog.Int(key, n))
}

func modelLabel(model string) string {
	if model == "" {
		return OtherModel
	}
	return model
}
