package gateway

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"phonebank/auth/limit"
	"phonebank/balancer"
	"phonebank/gateway/account"
	"phonebank/gateway/openai"
	"phonebank/gateway/relay"
	"phonebank/health"
)

func TestPlanBody(t *testing.T) {
	t.Parallel()
	model := &Model{ID: "m", Upstream: "qwen", MaxTokens: 256, Defaults: []openai.Field{{Name: "temperature", Raw: []byte("0.2")}}}
	const upstream = `,"stream":true,"return_progress":true,"sse_ping_interval":5,"stream_options":{"include_usage":true}`
	tests := []struct {
		name, body string
		engine     balancer.Engine
		want       string
	}{
		{"what the engine needs", `{"model":"m","messages":[]}`, balancer.LlamaCpp,
			`{"model":"qwen","messages":[],"temperature":0.2,"max_tokens":256` + upstream + `}`},
		{"what the caller gave stays", `{"model":"m","messages":[ ], "max_tokens": 7,"temperature":0 , "seed":12345678901234567890,"unknown":{"a":1.0}}`, balancer.LlamaCpp,
			`{"model":"qwen","messages":[ ], "max_tokens": 7,"temperature":0 , "seed":12345678901234567890,"unknown":{"a":1.0}` + upstream + `}`},
		{"the other bound counts too", `{"model":"m","messages":[],"max_completion_tokens":7,"temperature":1}`, balancer.LlamaCpp,
			`{"model":"qwen","messages":[],"max_completion_tokens":7,"temperature":1` + upstream + `}`},
		{"a null bound is none", `{"model":"m","messages":[],"max_tokens":null,"temperature":1}`, balancer.LlamaCpp,
			`{"model":"qwen","messages":[],"max_tokens":256,"temperature":1` + upstream + `}`},
		{"switches that are the gateway's", `{"id_slot":3,"model":"m","messages":[],"stream":false,"temperature":1,"return_progress":false,"sse_ping_interval":60,"stream_options":{"include_usage":false,"x":1}}`, balancer.MNN,
			`{"model":"qwen","messages":[],"stream":true,"temperature":1,"return_progress":true,"sse_ping_interval":5,"stream_options":{"include_usage":true,"x":1},"max_tokens":256}`},
		{"another engine, unstreamed", `{"model":"m","messages":[],"temperature":1,"max_tokens":7}`, balancer.OpenAI,
			`{"model":"qwen","messages":[],"temperature":1,"max_tokens":7}`},
		{"another engine, streamed", `{"model":"m","messages":[],"temperature":1,"max_tokens":7,"stream":true}`, balancer.OpenAI,
			`{"model":"qwen","messages":[],"temperature":1,"max_tokens":7,"stream":true,"stream_options":{"include_usage":true}}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := plan{head: parse(t, openai.ChatCompletions, tt.body), model: model}
			got := p.body(&relay.Endpoint{Model: "qwen", Engine: tt.engine})
			if diff := cmp.Diff(tt.want, string(got)); diff != "" {
				t.Errorf("body (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFree(t *testing.T) {
	t.Parallel()
	charged := map[relay.Kind]bool{relay.Stalled: true, relay.Broken: true, relay.Nonsense: true, relay.Truncated: true, relay.Unclear: true, relay.Silent: true, relay.Offline: true}
	for _, k := range []relay.Kind{relay.Busy, relay.Misconfigured, relay.Stalled, relay.Broken, relay.Nonsense, relay.Truncated, relay.Unclear, relay.Silent, relay.Offline} {
		if got := free(relay.Result{Kind: k}); got != !charged[k] {
			t.Errorf("free(%v) = %t, want %t", k, got, !charged[k])
		}
		if !free(relay.Result{Kind: k, Lost: true}) {
			t.Errorf("a phone that was lost (%v) costs an attempt", k)
		}
	}
}

func TestBreakerError(t *testing.T) {
	t.Parallel()
	cause := errors.New("cause")
	for _, k := range relay.Kinds() {
		r := relay.Result{Kind: k, Err: cause}
		got := breakerError(r, evidenceOf(r))
		var want error
		switch k {
		case relay.Done:
			want = nil
		case relay.Busy, relay.Caller, relay.Cancelled, relay.Unclear:
			want = health.ErrNeutral
		default:
			want = cause
		}
		if !errors.Is(got, want) {
			t.Errorf("%v: got %v, want %v", k, got, want)
		}
	}
	if got := breakerError(relay.Result{Kind: relay.Broken}, health.Evidence{Kind: health.Broken}); got == nil {
		t.Error("a failure without a cause counts as a success")
	}
}

func TestSettlement(t *testing.T) {
	t.Parallel()
	ticket := balancer.Ticket{PromptTokens: 100}
	counted := openai.Usage{PromptTokens: 90, CompletionTokens: 10}
	partial := openai.Usage{CompletionTokens: 4} // counted by us
	failed := func(k relay.Kind, u openai.Usage, delivered bool) run {
		last := relay.Result{Kind: k, Usage: u, Delivered: delivered}
		return run{last: last, err: &attemptError{last: last}}
	}
	tests := []struct {
		name string
		run  run
		want balancer.Settlement
	}{
		{"answered", run{last: relay.Result{Usage: counted}, worked: true}, balancer.Settlement{Tokens: 100}},
		{"answered, not counted", run{last: relay.Result{Usage: partial}, worked: true}, balancer.Settlement{Tokens: 104}},
		{"caller left in the queue", run{err: errCallerGone}, balancer.Settlement{}},
		{"caller left in the prefill", run{err: errCallerGone, worked: true}, balancer.Settlement{Tokens: 100}},
		{"caller left in the answer", run{err: errCallerGone, last: relay.Result{Usage: partial}, worked: true}, balancer.Settlement{Tokens: 104}},
		{"deadline in the answer", run{err: errDeadline, last: relay.Result{Usage: partial}, worked: true}, balancer.Settlement{Tokens: 104}},
		{"phone lost in the answer", func() run { r := failed(relay.Offline, partial, true); r.worked = true; return r }(), balancer.Settlement{Tokens: 104}},
		{"phones failed", failed(relay.Broken, openai.Usage{}, false), balancer.Settlement{Failed: true}},
		{"no phone", run{err: balancer.ErrNoReplica}, balancer.Settlement{Failed: true}},
		{"patience", run{err: balancer.ErrPatience}, balancer.Settlement{Failed: true}},
		{"our bug", run{err: errors.New("x")}, balancer.Settlement{Failed: true}},
		{"bad request", func() run {
			last := relay.Result{Kind: relay.Caller, Public: openai.InvalidRequest("", "no")}
			return run{last: last, err: &attemptError{last: last}, worked: true}
		}(), balancer.Settlement{}},
		{"limited", run{err: &limit.Exceeded{}}, balancer.Settlement{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := tt.run.settlement(ticket); got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

func TestRecord(t *testing.T) {
	t.Parallel()
	start := time.Now().Add(-10 * time.Second)
	ok := run{
		replica: "phone-2", attempts: 2, queued: time.Second, began: start.Add(4 * time.Second), failed: []relay.Kind{relay.Offline},
		last: relay.Result{FirstToken: 3 * time.Second, Usage: openai.Usage{PromptTokens: 7, CompletionTokens: 2, CachedTokens: 1}},
	}
	got := ok.record(account.Record{RequestID: "r"}, start)
	if got.Total < 10*time.Second {
		t.Errorf("got total %v, want 10 s or more", got.Total)
	}
	got.Total = 0
	want := account.Record{
		RequestID: "r", Status: http.StatusOK, Outcome: account.OK, PromptTokens: 7, CompletionTokens: 2, CachedTokens: 1,
		Attempts: 2, Replica: "phone-2", Kinds: []string{"offline"}, Queue: time.Second, FirstToken: 7 * time.Second,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("record (-want +got):\n%s", diff)
	}

	gone := run{err: errCallerGone}.record(account.Record{}, start)
	if gone.Status != statusClientClosed || gone.Outcome != account.Cancelled || gone.FirstToken != 0 {
		t.Errorf("got %+v, want 499, cancelled, no first token", gone)
	}
	failed := run{err: &attemptError{last: relay.Result{Kind: relay.Broken}}}.record(account.Record{}, start)
	if failed.Status != http.StatusBadGateway || failed.ErrorCode != "bad_gateway" || failed.Outcome != account.UpstreamError || failed.Err == nil {
		t.Errorf("got %+v, want 502 bad_gateway", failed)
	}
}
