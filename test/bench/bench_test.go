package bench_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"phonebank/test/bench"
)

func upstream(t *testing.T) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(bench.NewUpstream(bench.UpstreamConfig{Model: "m", Tokens: 5}))
	t.Cleanup(server.Close)
	return server
}

func TestRunAgainstUpstream(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name     string
		endpoint bench.Endpoint
		stream   bool
		rate     float64
		fixed    bool
		v1       bool
	}{
		{name: "chat, closed", endpoint: bench.Chat},
		{name: "chat, streamed, closed", endpoint: bench.Chat, stream: true, v1: true},
		{name: "chat, streamed, open, Poisson", endpoint: bench.Chat, stream: true, rate: 2000},
		{name: "completions, open, fixed", endpoint: bench.Completions, rate: 2000, fixed: true},
		{name: "completions, streamed, closed", endpoint: bench.Completions, stream: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			base := upstream(t).URL
			if tt.v1 {
				base += "/v1/"
			}
			var wrong atomic.Int64
			const requests, tokens = 40, 5
			got, err := bench.Run(t.Context(), bench.Config{
				URL: base, Key: "k", Model: "m", Endpoint: tt.endpoint, Stream: tt.stream,
				Rate: tt.rate, Fixed: tt.fixed, Concurrency: 4, Requests: requests, MaxTokens: tokens,
				Verify: func(_, answer string) error {
					if answer != " w0 w1 w2 w3 w4" {
						wrong.Add(1)
						return errors.New("not the answer")
					}
					return nil
				},
			})
			if err != nil {
				t.Fatalf("Run: %v", err)
			}
			if got.OK != requests || got.Requests != requests || wrong.Load() != 0 || len(got.Errors) != 0 {
				t.Errorf("ok %d of %d, wrong %d, errors %v; want all %d right", got.OK, got.Requests, wrong.Load(), got.Errors, requests)
			}
			if want := int64(requests * tokens); got.CompletionTokens != want {
				t.Errorf("completion tokens = %d, want %d", got.CompletionTokens, want)
			}
			if got.Total.Count != requests || got.Lag.Count != requests {
				t.Errorf("total of %d, lag of %d requests, want %d", got.Total.Count, got.Lag.Count, requests)
			}
			wantFirst, wantGaps := int64(0), int64(0)
			if tt.stream {
				wantFirst, wantGaps = requests, requests*(tokens-1)
			}
			if got.TTFT.Count != wantFirst || got.InterToken.Count != wantGaps {
				t.Errorf("first tokens %d, gaps %d, want %d and %d", got.TTFT.Count, got.InterToken.Count, wantFirst, wantGaps)
			}
		})
	}
}

// awaitLeaving returns when the caller of r has gone. A server notices that
// only once it has read the body.
func awaitLeaving(r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	<-r.Context().Done()
}

// Every way an answer can go wrong has its own name in the report.
func TestRunNamesFailures(t *testing.T) {
	t.Parallel()
	const content = `data: {"choices":[{"delta":{"content":"x"},"finish_reason":null}]}` + "\n\n"
	const finish = `data: {"choices":[{"delta":{},"finish_reason":"stop"}]}` + "\n\n"
	write := func(body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(body)) }
	}
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
	}
	tests := []struct {
		name    string
		stream  bool
		handler http.HandlerFunc
		want    string
	}{
		{"own limit", false, status(http.StatusTooManyRequests), "429"},
		{"fleet full", true, status(http.StatusServiceUnavailable), "503"},
		{"not JSON", false, write("<html>"), "malformed"},
		{"no choices", false, write(`{"choices":[]}`), "malformed"},
		{"error inside 200", false, write(`{"error":{"code":"server_error","type":"server_error"}}`), "stream error server_error"},
		{"error event", true, write(content + `data: {"error":{"code":null,"type":"upstream_error"}}` + "\n\n"), "stream error upstream_error"},
		{"numeric error code", true, write(`data: {"error":{"code":500,"type":"server_error"}}` + "\n\n"), "stream error 500"},
		{"end without finish", true, write(content + "data: [DONE]\n\n"), "truncated"},
		{"end without [DONE]", true, write(content + finish), "truncated"},
		{"end inside an event", true, write(content + `data: {"choi`), "truncated"},
		{"event not JSON", true, write("data: nonsense\n\n"), "malformed"},
		{"endless event", true, write("data: " + strings.Repeat("x", 2<<20)), "answer too long"},
		{"cut connection", false, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "connection"},
		{"silence", false, func(_ http.ResponseWriter, r *http.Request) { awaitLeaving(r) }, "timeout"},
		{"wrong answer", true, write(content + finish + "data: [DONE]\n\n"), "wrong"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(tt.handler)
			defer server.Close()
			timeout := 30 * time.Second
			if tt.want == "timeout" {
				timeout = 50 * time.Millisecond
			}
			got, err := bench.Run(t.Context(), bench.Config{
				URL: server.URL, Model: "m", Stream: tt.stream, Requests: 1, Timeout: timeout,
				Verify: func(string, string) error { return errors.New("never right") },
			})
			if err != nil {
				t.Fatalf("Run: %v", err)
			}
			if diff := cmp.Diff(map[string]int64{tt.want: 1}, got.Errors); diff != "" {
				t.Errorf("errors (-want +got):\n%s", diff)
			}
			if got.Total.Count != 0 || got.FailedAfter.Count != 1 {
				t.Errorf("total of %d, failed of %d, want 0 and 1", got.Total.Count, got.FailedAfter.Count)
			}
		})
	}
}

// Comments and events cut anywhere must not change what is read.
func TestRunReadsCommentsAndSplitEvents(t *testing.T) {
	t.Parallel()
	body := ": waiting, position 3\n: prefill 40 %\n" +
		`data: {"choices":[{"delta":{"content":"héllo"},"finish_reason":null}],"usage":null}` + "\n\n:\n\n" +
		`data: {"choices":[{"delta":{"content":" 🐦"},"finish_reason":"stop"}]}` + "\n\n" +
		`data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}` + "\n\ndata: [DONE]\n\n"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for i := range len(body) {
			_, _ = w.Write([]byte(body[i : i+1]))
			_ = http.NewResponseController(w).Flush()
		}
	}))
	defer server.Close()
	got, err := bench.Run(t.Context(), bench.Config{
		URL: server.URL, Model: "m", Stream: true, Requests: 1,
		Verify: func(_, answer string) error {
			if answer != "héllo 🐦" {
				return fmt.Errorf("got %q", answer)
			}
			return nil
		},
	})
	if err != nil || got.OK != 1 {
		t.Fatalf("Run = %d ok, errors %v, %v; want one right answer", got.OK, got.Errors, err)
	}
	if got.PromptTokens != 3 || got.CompletionTokens != 2 {
		t.Errorf("usage = %d+%d, want 3+2", got.PromptTokens, got.CompletionTokens)
	}
}

// stall is a transport that answers one request at a time: the first after a
// long stall, all others at once.
type stall struct {
	turn   chan struct{}
	first  atomic.Bool
	length time.Duration
}

func (s *stall) RoundTrip(*http.Request) (*http.Response, error) {
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	if !s.first.Swap(true) {
		time.Sleep(s.length)
	}
	w := httptest.NewRecorder()
	_, _ = w.WriteString(`{"choices":[{"message":{"content":"x"},"finish_reason":"stop"}]}`)
	return w.Result(), nil
}

// A server that stalls for a second must show in the latencies of all that was
// due meanwhile, even when only one request may be in flight.
func TestOpenLoopOmitsNothing(t *testing.T) {
	t.Parallel()
	for _, inFlight := range []int{1, 1000} {
		t.Run(fmt.Sprintf("%d in flight", inFlight), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				got, err := bench.Run(t.Context(), bench.Config{
					URL: "http://phone.test", Model: "m", Rate: 100, Fixed: true, Concurrency: inFlight, Duration: 2 * time.Second,
					Client: &http.Client{Transport: &stall{turn: make(chan struct{}, 1), length: time.Second}},
				})
				if err != nil {
					t.Fatalf("Run: %v", err)
				}
				if got.OK != 200 {
					t.Errorf("ok = %d, want 200: every request that was due", got.OK)
				}
				// 100 of 200 were due during the stall and waited 500 ms on average.
				if got.Total.Mean < 240 || got.Total.Mean > 260 {
					t.Errorf("mean = %.0f ms, want about 250: the stall is shared by all that were due", got.Total.Mean)
				}
				if got.Total.Max < 990 {
					t.Errorf("max = %.0f ms, want about 1000", got.Total.Max)
				}
			})
		})
	}
}

func TestPoissonArrivalsKeepTheRate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := &http.Client{Transport: &stall{turn: make(chan struct{}, 1)}}
		got, err := bench.Run(t.Context(), bench.Config{
			URL: "http://phone.test", Model: "m", Rate: 100, Duration: 100 * time.Second, Client: client, Seed: 7,
		})
		if err != nil {
			t.Fatalf("Run: %v", err)
		}
		// 10,000 expected, standard deviation 100.
		if got.OK < 9600 || got.OK > 10400 {
			t.Errorf("ok = %d, want about 10000", got.OK)
		}
	})
}

func TestRunStopsWithItsContext(t *testing.T) {
	t.Parallel()
	for _, rate := range []float64{0, 500} {
		t.Run(fmt.Sprintf("rate %g", rate), func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancelCause(t.Context())
			cause := errors.New("enough")
			server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				cancel(cause)
				awaitLeaving(r)
			}))
			defer server.Close()
			got, err := bench.Run(ctx, bench.Config{URL: server.URL, Model: "m", Rate: rate, Duration: time.Hour})
			if !errors.Is(err, cause) {
				t.Errorf("err = %v, want the cause", err)
			}
			if got.Errors["cancelled"] == 0 || got.OK != 0 {
				t.Errorf("report = %d ok, errors %v; want only cancelled", got.OK, got.Errors)
			}
		})
	}
}

func TestConfigValidate(t *testing.T) {
	t.Parallel()
	err := bench.Config{URL: "ftp://x", Endpoint: "embeddings", Rate: -1}.Validate()
	if err == nil {
		t.Fatal("Validate = nil, want every fault")
	}
	for _, want := range []string{"url:", "model:", "endpoint:", "duration, requests:", "rate:"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("Validate = %q, want it to name %q", err, want)
		}
	}
}

func TestWriteTable(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	r := bench.Report{
		Model: "m", Endpoint: bench.Chat, Stream: true, Mode: "open", TargetRate: 20, Concurrency: 100,
		ElapsedS: 10, Requests: 203, OK: 200, RPS: 20, Errors: map[string]int64{"503": 2, "429": 1},
		TTFT: bench.Quantiles{Count: 200, Mean: 1.5, P50: 1.25, Max: 9},
	}
	if err := r.WriteTable(&out); err != nil {
		t.Fatalf("WriteTable: %v", err)
	}
	for _, want := range []string{"20 arrivals/s", "failed: 429", "failed: 503", "first token", "1.25"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("table lacks %q:\n%s", want, &out)
		}
	}
	if strings.Contains(out.String(), "between tokens") {
		t.Errorf("table shows a row without measurements:\n%s", &out)
	}
}

func TestUpstreamServesTLS(t *testing.T) {
	t.Parallel()
	certificate, err := bench.SelfSigned()
	if err != nil {
		t.Fatalf("SelfSigned: %v", err)
	}
	l := httptest.NewUnstartedServer(nil).Listener
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- bench.NewUpstream(bench.UpstreamConfig{}).Serve(ctx, l, certificate) }()

	got, err := bench.Run(t.Context(), bench.Config{
		URL: "https://" + l.Addr().String(), Model: "bench", Stream: true, Requests: 3, Insecure: true,
	})
	if err != nil || got.OK != 3 {
		t.Errorf("Run = %d ok, errors %v, %v; want 3 ok", got.OK, got.Errors, err)
	}
	stop()
	if err := <-served; err != nil {
		t.Errorf("Serve = %v after its context ended, want nil", err)
	}
}

func TestUpstreamAnswersProbes(t *testing.T) {
	t.Parallel()
	server := upstream(t)
	for path, want := range map[string]string{
		"/health":    `"ok"`,
		"/v1/models": `"id":"m"`,
		"/props":     `"total_slots":512`,
		"/slots":     `"is_processing":false`,
	} {
		resp, err := server.Client().Get(server.URL + path)
		if err != nil {
			t.Fatalf("GET %s: %v", path, err)
		}
		var body bytes.Buffer
		_, err = body.ReadFrom(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(body.String(), want) {
			t.Errorf("GET %s = %d %.200s, %v; want 200 with %s", path, resp.StatusCode, body.String(), err, want)
		}
	}
}

func BenchmarkUpstreamStream(b *testing.B) {
	u := bench.NewUpstream(bench.UpstreamConfig{})
	body := `{"model":"bench","messages":[{"role":"user","content":"hi"}],"stream":true}`
	b.ReportAllocs()
	for b.Loop() {
		r := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(body))
		u.ServeHTTP(httptest.NewRecorder(), r)
	}
}
