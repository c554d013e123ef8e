package account

import (
	"errors"
	"fmt"

	"go.opentelemetry.io/otel/metric"
)

// Metric names as the OpenTelemetry API wants them. The Prometheus exporter turns dots into underscores and adds units and _total.
const (
	metricRequests   = "phonebank.requests"            // {model, class, route, outcome}
	metricAttempts   = "phonebank.attempts"            // {kind}
	metricDuration   = "phonebank.request.duration"    // {model, class, route}
	metricFirstToken = "phonebank.time_to_first_token" // {model, class, route}
	metricQueueWait  = "phonebank.queue.wait"          // {model, class}
	metricTokens     = "phonebank.tokens"              // {model, direction}
	metricRedisCall  = "phonebank.redis.call"          // {script, result}

	metricState    = "phonebank.replica.state"             // {replica, model, state}
	metricDepth    = "phonebank.replica.depth"             // {replica, model}
	metricSlots    = "phonebank.replica.slots"             // {replica, model}
	metricSpeed    = "phonebank.replica.tokens_per_second" // {replica, model, phase}
	metricQueue    = "phonebank.queue.length"              // {model}
	metricOwn      = "phonebank.gateway.requests"          // {phase}
	metricRedisUp  = "phonebank.redis.up"
	metricSnapshot = "phonebank.fleet.age"
)

// OtherModel is the model label of requests that named no configured model.
const OtherModel = "other"

// phoneSeconds are buckets for what waits for phones: a guard's second and a review's ten minutes.
func phoneSeconds() metric.HistogramOption {
	return metric.WithExplicitBucketBoundaries(0.1, 0.25, 0.5, 1, 2, 3.5, 5, 7.5, 10, 15, 20, 30, 45, 60, 90, 120, 180, 300, 450, 600)
}

// callSeconds are buckets for one round trip to the shared state, whose deadline is 0.25 s.
func callSeconds() metric.HistogramOption {
	return metric.WithExplicitBucketBoundaries(0.00025, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5)
}

// instruments are what Finish and RedisCall write to.
type instruments struct {
	requests, attempts, tokens metric.Int64Counter
	duration, first, queueWait metric.Float64Histogram
	redisCall                  metric.Float64Histogram
}

func newInstruments(m metric.Meter) (instruments, error) {
	var (
		in   instruments
		errs [7]error
	)
	in.requests, errs[0] = m.Int64Counter(metricRequests, metric.WithDescription("Finished requests."))
	in.attempts, errs[1] = m.Int64Counter(metricAttempts, metric.WithDescription("Attempts on phones, by how they ended."))
	in.tokens, errs[2] = m.Int64Counter(metricTokens,
		metric.WithDescription("Tokens of finished requests: input, cached (of the input) and output."))
	in.duration, errs[3] = m.Float64Histogram(metricDuration, metric.WithUnit("s"), phoneSeconds(),
		metric.WithDescription("Arrival to the end of the answer, of requests that were accepted and not cancelled."))
	in.first, errs[4] = m.Float64Histogram(metricFirstToken, metric.WithUnit("s"), phoneSeconds(),
		metric.WithDescription("Arrival to the first token, queue and failed attempts included."))
	in.queueWait, errs[5] = m.Float64Histogram(metricQueueWait, metric.WithUnit("s"), phoneSeconds(),
		metric.WithDescription("Time spent waiting for a phone, of requests that were accepted and not cancelled."))
	in.redisCall, errs[6] = m.Float64Histogram(metricRedisCall, metric.WithUnit("s"), callSeconds(),
		metric.WithDescription("Round trips to the shared state."))
	if err := errors.Join(errs[:]...); err != nil {
		return instruments{}, fmt.Errorf("make instruments: %w", err)
	}
	return in, nil
}
