package bench

import (
	"math"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Quantiles of one measured time, in milliseconds. All are zero when Count is.
type Quantiles struct {
	Count int64   `json:"count"`
	Mean  float64 `json:"mean_ms"`
	P50   float64 `json:"p50_ms"`
	P90   float64 `json:"p90_ms"`
	P95   float64 `json:"p95_ms"`
	P99   float64 `json:"p99_ms"`
	P999  float64 `json:"p999_ms"`
	Max   float64 `json:"max_ms"`
}

// Report is what a run measured. Times cover answered requests only; failures
// are counted, and their times kept apart in FailedAfter, because a fast
// refusal would flatter the rest.
type Report struct {
	URL         string   `json:"url"`
	Model       string   `json:"model"`
	Endpoint    Endpoint `json:"endpoint"`
	Stream      bool     `json:"stream"`
	Mode        string   `json:"mode"`                    // "open" or "closed"
	TargetRate  float64  `json:"target_rate,omitempty"`   // arrivals a second, open loop
	Concurrency int      `json:"concurrency"`             // callers, or most in flight
	Prompt      int      `json:"prompt_tokens,omitempty"` // asked for, a request
	MaxTokens   int      `json:"max_tokens,omitempty"`    // asked for, a request

	ElapsedS float64          `json:"elapsed_s"`
	Requests int64            `json:"requests"` // ended
	OK       int64            `json:"ok"`
	Errors   map[string]int64 `json:"errors"` // by status or kind of failure
	RPS      float64          `json:"rps"`    // OK a second

	PromptTokens        int64   `json:"usage_prompt_tokens"`     // as the server counted them
	CompletionTokens    int64   `json:"usage_completion_tokens"` // as the server counted them, or events without its word
	PromptTokensPerS    float64 `json:"prompt_tokens_per_s"`
	CompletionTokensPer float64 `json:"completion_tokens_per_s"`

	TTFT        Quantiles `json:"ttft"`         // due to first content; streams only
	InterToken  Quantiles `json:"inter_token"`  // between content events; streams only
	Total       Quantiles `json:"total"`        // due to end
	FailedAfter Quantiles `json:"failed_after"` // due to failure
	Lag         Quantiles `json:"lag"`          // due to sent: the generator's own lateness
}

const (
	histogramMax    = time.Hour
	histogramDigits = 3 // significant figures
)

// tally gathers results from all callers.
type tally struct {
	mu       sync.Mutex // guards everything below
	ok       int64
	errors   map[string]int64
	prompt   int64
	complete int64

	ttft, gap, total, failedAfter, lag *hdrhistogram.Histogram // of microseconds
}

func newTally() *tally {
	h := func() *hdrhistogram.Histogram {
		return hdrhistogram.New(1, histogramMax.Microseconds(), histogramDigits)
	}
	return &tally{errors: map[string]int64{}, ttft: h(), gap: h(), total: h(), failedAfter: h(), lag: h()}
}

// record clamps to the histogram's range, so that it cannot fail.
func record(h *hdrhistogram.Histogram, d time.Duration) {
	_ = h.RecordValue(min(max(d.Microseconds(), 1), histogramMax.Microseconds()))
}

func (t *tally) failed(kind string, lag, after time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.errors[kind]++
	record(t.lag, lag)
	record(t.failedAfter, after)
}

func (t *tally) succeeded(a answer, due time.Time, lag time.Duration, end time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ok++
	t.prompt += a.usage.PromptTokens
	if a.usage.CompletionTokens > 0 {
		t.complete += a.usage.CompletionTokens
	} else {
		t.complete += int64(len(a.pieces))
	}
	record(t.lag, lag)
	record(t.total, end.Sub(due))
	for i, at := range a.pieces {
		if i == 0 {
			record(t.ttft, at.Sub(due))
			continue
		}
		record(t.gap, at.Sub(a.pieces[i-1]))
	}
}

func (t *tally) report(cfg Config, elapsed time.Duration) Report {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := Report{
		URL: cfg.URL, Model: cfg.Model, Endpoint: cfg.Endpoint, Stream: cfg.Stream, Mode: "closed",
		Concurrency: cfg.Concurrency, Prompt: cfg.PromptTokens, MaxTokens: cfg.MaxTokens,
		ElapsedS: elapsed.Seconds(), Requests: t.ok, OK: t.ok, Errors: t.errors,
		PromptTokens: t.prompt, CompletionTokens: t.complete,
		TTFT: quantiles(t.ttft), InterToken: quantiles(t.gap), Total: quantiles(t.total),
		FailedAfter: quantiles(t.failedAfter), Lag: quantiles(t.lag),
	}
	if cfg.Rate > 0 {
		r.Mode, r.TargetRate = "open", cfg.Rate
	}
	for _, n := range t.errors {
		r.Requests += n
	}
	if s := elapsed.Seconds(); s > 0 {
		r.RPS = float64(r.OK) / s
		r.PromptTokensPerS = float64(t.prompt) / s
		r.CompletionTokensPer = float64(t.complete) / s
	}
	return r
}

func quantiles(h *hdrhistogram.Histogram) Quantiles {
	if h.TotalCount() == 0 {
		return Quantiles{}
	}
	ms := func(us float64) float64 { return math.Round(us) / 1000 }
	at := func(q float64) float64 { return ms(float64(h.ValueAtQuantile(q))) }
	return Quantiles{
		Count: h.TotalCount(), Mean: ms(h.Mean()), Max: ms(float64(h.Max())),
		P50: at(50), P90: at(90), P95: at(95), P99: at(99), P999: at(99.9),
	}
}
