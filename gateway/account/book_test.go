package account

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
)

// desk is a book whose output can be read.
type desk struct {
	*Book
	lines   lockedBuffer
	handler http.Handler
}

type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) text() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// newDesk scrapes through the exporter that package telemetry uses.
func newDesk(t *testing.T, fleet func() Fleet) *desk {
	t.Helper()
	registry := prometheus.NewRegistry()
	exporter, err := otelprometheus.New(otelprometheus.WithRegisterer(registry), otelprometheus.WithoutScopeInfo())
	if err != nil {
		t.Fatal(err)
	}
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter), sdkmetric.WithCardinalityLimit(50_000))
	d := &desk{handler: promhttp.HandlerFor(registry, promhttp.HandlerOpts{})}
	d.Book, err = New(provider.Meter("test"), slog.New(slog.NewJSONHandler(&d.lines, nil)), fleet)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func (d *desk) scrape(t *testing.T) string {
	t.Helper()
	w := httptest.NewRecorder()
	d.handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
	if w.Code != http.StatusOK {
		t.Fatalf("scrape: got %d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

func wantSeries(t *testing.T, scrape string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(scrape, "\n"+w+"\n") {
			t.Errorf("no %q in the scrape", w)
		}
	}
}

func good() Record {
	return Record{
		RequestID: "req-1", KeyID: "shop", Model: "qwen", Route: "/v1/chat/completions", Class: "review", Stream: true,
		Status: 200, Outcome: OK, PromptTokens: 7000, CachedTokens: 100, CompletionTokens: 11, EstimatedPrompt: 6800,
		Attempts: 2, Replica: "phone-2", Kinds: []string{"offline"},
		Queue: 1500 * time.Millisecond, FirstToken: 40 * time.Second, Total: 42 * time.Second,
	}
}

func TestFinishCounts(t *testing.T) {
	t.Parallel()
	d := newDesk(t, nil)
	d.Finish(t.Context(), good())
	wantSeries(t, d.scrape(t),
		`phonebank_requests_total{class="review",model="qwen",outcome="ok",route="/v1/chat/completions"} 1`,
		`phonebank_attempts_total{kind="done"} 1`,
		`phonebank_attempts_total{kind="offline"} 1`,
		`phonebank_request_duration_seconds_bucket{class="review",model="qwen",route="/v1/chat/completions",le="30"} 0`,
		`phonebank_request_duration_seconds_bucket{class="review",model="qwen",route="/v1/chat/completions",le="45"} 1`,
		`phonebank_request_duration_seconds_bucket{class="review",model="qwen",route="/v1/chat/completions",le="600"} 1`,
		`phonebank_time_to_first_token_seconds_sum{class="review",model="qwen",route="/v1/chat/completions"} 40`,
		`phonebank_queue_wait_seconds_sum{class="review",model="qwen"} 1.5`,
		`phonebank_tokens_total{direction="input",model="qwen"} 7000`,
		`phonebank_tokens_total{direction="cached",model="qwen"} 100`,
		`phonebank_tokens_total{direction="output",model="qwen"} 11`,
	)
}

func TestFinishWritesOneLine(t *testing.T) {
	t.Parallel()
	d := newDesk(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // the caller has gone; the line is written all the same
	d.Finish(ctx, good())
	text := d.lines.text()
	if n := strings.Count(text, "\n"); n != 1 {
		t.Fatalf("got %d lines, want 1:\n%s", n, text)
	}
	var got map[string]any
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		t.Fatal(err)
	}
	delete(got, "time")
	want := map[string]any{
		"level": "INFO", "msg": "request",
		"request_id": "req-1", "key_id": "shop", "model": "qwen", "route": "/v1/chat/completions", "class": "review", "stream": true,
		"status": 200.0, "outcome": "ok", "total_ms": 42000.0, "replica": "phone-2", "failed_attempts": "offline", "attempts": 2.0,
		"tokens_in_estimated": 6800.0, "tokens_in": 7000.0, "tokens_cached": 100.0, "tokens_out": 11.0,
		"queue_wait_ms": 1500.0, "ttft_ms": 40000.0, "tokens_out_per_second": 5.0,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("line (-want +got):\n%s", diff)
	}
}

func TestEveryOutcomeHasALevelAndACount(t *testing.T) {
	t.Parallel()
	want := map[Outcome]string{
		OK: "INFO", Cancelled: "INFO", Truncated: "WARN", RefusedLimit: "WARN", RefusedFull: "WARN", NoReplica: "WARN", Timeout: "WARN",
		UpstreamError: "WARN", Unavailable: "WARN", BadRequest: "WARN", Unauthorized: "WARN", Internal: "ERROR",
	}
	for _, o := range Outcomes() {
		d := newDesk(t, nil)
		d.Finish(t.Context(), Record{Outcome: o, Route: "/v1/models", ErrorCode: "some_code", Err: errors.New("cause")})
		line := d.lines.text()
		for _, part := range []string{`"level":"` + want[o] + `"`, `"error_code":"some_code"`, `"error":"cause"`, `"model":"other"`} {
			if !strings.Contains(line, part) {
				t.Errorf("%s: no %s in %s", o, part, line)
			}
		}
		scrape := d.scrape(t)
		wantSeries(t, scrape, `phonebank_requests_total{class="none",model="other",outcome="`+string(o)+`",route="/v1/models"} 1`)
		if got := strings.Contains(scrape, "phonebank_request_duration_seconds_count"); got != o.worked() {
			t.Errorf("%s: got a duration: %v, want %v", o, got, o.worked())
		}
	}
}

// 2,000 requests with names, ids and keys of their own leave a handful of series, and nothing of a caller.
func TestMetricsStaySmallAndAnonymous(t *testing.T) {
	t.Parallel()
	d := newDesk(t, nil)
	for i := range 2_000 {
		d.Finish(t.Context(), Record{
			RequestID: fmt.Sprint("req-", i), KeyID: fmt.Sprint("tenant-", i), Model: "", Route: "/v1/chat/completions",
			Outcome: BadRequest, Status: 404, ErrorCode: "model_not_found", Err: fmt.Errorf("cause %d", i),
		})
	}
	scrape := d.scrape(t)
	if n := strings.Count(scrape, "\nphonebank_"); n > 10 {
		t.Errorf("got %d series, want at most 10", n)
	}
	for _, secret := range []string{"tenant-", "req-", "cause"} {
		if strings.Contains(scrape, secret) {
			t.Errorf("the scrape tells %q", secret)
		}
	}
}

func TestRedisCalls(t *testing.T) {
	t.Parallel()
	d := newDesk(t, nil)
	d.RedisCall("admit", 300*time.Microsecond, nil)
	d.RedisCall("admit", 250*time.Millisecond, errors.New("away"))
	wantSeries(t, d.scrape(t),
		`phonebank_redis_call_seconds_bucket{result="ok",script="admit",le="0.0005"} 1`,
		`phonebank_redis_call_seconds_count{result="error",script="admit"} 1`,
	)
}

func TestFinishIsSafeForConcurrentUse(t *testing.T) {
	t.Parallel()
	d := newDesk(t, func() Fleet { return Fleet{RedisUp: true} })
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				d.Finish(context.Background(), good())
			}
		})
	}
	for range 5 {
		d.scrape(t)
	}
	wg.Wait()
	wantSeries(t, d.scrape(t), `phonebank_requests_total{class="review",model="qwen",outcome="ok",route="/v1/chat/completions"} 400`)
	if n := strings.Count(d.lines.text(), "\n"); n != 400 {
		t.Errorf("got %d lines, want 400", n)
	}
}

func BenchmarkFinish(b *testing.B) {
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader()))
	book, err := New(provider.Meter("bench"), slog.New(slog.DiscardHandler), nil)
	if err != nil {
		b.Fatal(err)
	}
	r := good()
	b.ReportAllocs()
	for b.Loop() {
		book.Finish(b.Context(), r)
	}
}
