package gateway

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"phonebank/balancer"
	"phonebank/gateway/openai"
	"phonebank/gateway/relay"
	"phonebank/health"
)

func TestEvidenceOf(t *testing.T) {
	t.Parallel()
	want := map[relay.Kind]health.Kind{
		relay.Done: health.Served, relay.Offline: health.Offline, relay.Silent: health.Silent, relay.Broken: health.Broken, relay.Busy: health.Busy,
		relay.Misconfigured: health.Misconfigured, relay.Unclear: health.Unclear, relay.Stalled: health.Broken, relay.Truncated: health.Broken,
		relay.Nonsense: health.Broken, relay.Caller: health.None, relay.Cancelled: health.None,
	}
	for _, k := range relay.Kinds() {
		kind, ok := want[k]
		if !ok {
			t.Errorf("kind %v is not thought of", k)
		}
		e := evidenceOf(relay.Result{Kind: k, Wait: time.Second})
		if e.Kind != kind || e.LeaveAlone != time.Second {
			t.Errorf("%v: got %v, leave alone %v, want %v, 1s", k, e.Kind, e.LeaveAlone, kind)
		}
		if (e.Reason == "") != (k == relay.Done) {
			t.Errorf("%v: got reason %q", k, e.Reason)
		}
	}
}

func TestSamplesOf(t *testing.T) {
	t.Parallel()
	const s = time.Second
	good := balancer.Sample{Kind: balancer.FailureSample, Seconds: 1}
	prefill := func(n, seconds float64) balancer.Sample {
		return balancer.Sample{Kind: balancer.PrefillSample, Bucket: balancer.PrefillBucket(int(n)), Amount: n, Seconds: seconds}
	}
	decode := func(n, seconds float64) balancer.Sample {
		return balancer.Sample{Kind: balancer.DecodeSample, Amount: n, Seconds: seconds}
	}
	overhead := func(seconds float64) balancer.Sample {
		return balancer.Sample{Kind: balancer.OverheadSample, Amount: 1, Seconds: seconds}
	}
	tests := []struct {
		name string
		r    relay.Result
		want []balancer.Sample
	}{
		{"timed by the phone", relay.Result{FirstToken: 10 * s, Total: 20 * s, Timings: openai.Timings{PromptN: 400, PromptMS: 9500}, Usage: openai.Usage{PromptTokens: 500, CachedTokens: 100, CompletionTokens: 51}},
			[]balancer.Sample{good, prefill(400, 9.5), overhead(0.5), decode(50, 10)}},
		{"a phone that claims to have been slower than it was", relay.Result{FirstToken: 10 * s, Total: 20 * s, Timings: openai.Timings{PromptN: 400, PromptMS: 60000}},
			[]balancer.Sample{good, prefill(400, 10)}},
		{"timed by us", relay.Result{FirstToken: 10 * s, Total: 20 * s, Usage: openai.Usage{PromptTokens: 500, CachedTokens: 100, CompletionTokens: 51}},
			[]balancer.Sample{good, prefill(400, 10), decode(50, 10)}},
		{"all cached", relay.Result{FirstToken: s, Total: 2 * s, Usage: openai.Usage{PromptTokens: 100, CachedTokens: 100, CompletionTokens: 1}},
			[]balancer.Sample{good, overhead(1)}},
		{"no token", relay.Result{Total: s}, []balancer.Sample{good}},
		{"failed", relay.Result{Kind: relay.Stalled, FirstToken: s, Total: 9 * s}, []balancer.Sample{{Kind: balancer.FailureSample, Amount: 1, Seconds: 1}}},
		{"lost", relay.Result{Kind: relay.Offline, Lost: true}, []balancer.Sample{{Kind: balancer.FailureSample, Amount: 1, Seconds: 1}}},
		{"busy", relay.Result{Kind: relay.Busy}, []balancer.Sample{{Kind: balancer.FailureSample, Amount: 1, Seconds: 1}}},
		{"cancelled", relay.Result{Kind: relay.Cancelled, FirstToken: s, Total: 2 * s}, nil},
		{"bad request", relay.Result{Kind: relay.Caller}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tt.want, samplesOf(balancer.Lease{}, tt.r), cmpopts.EquateApprox(1e-9, 0)); diff != "" {
				t.Errorf("samples (-want +got):\n%s", diff)
			}
		})
	}
	shared := samplesOf(balancer.Lease{Busy: 3}, tests[0].r)
	if got := shared[len(shared)-1]; got.Kind != balancer.DecodeSample || got.Bucket != balancer.DecodeBucket(3) {
		t.Errorf("with three slots at work: got %+v, want a decode sample of that bucket", got)
	}
}

func TestAftermath(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	g.Phones = relay.NewDirectory(map[balancer.ReplicaID]*relay.Endpoint{
		"llama": {URL: mustURL(t, "https://llama"), Engine: balancer.LlamaCpp}, "mnn": {URL: mustURL(t, "https://mnn"), Engine: balancer.MNN},
	})
	tests := []struct {
		name    string
		lease   balancer.Lease
		r       relay.Result
		failed  bool
		cooling time.Duration
	}{
		{"answered", balancer.Lease{Replica: "llama"}, relay.Result{Kind: relay.Done, Phase: relay.Decoding}, false, 0},
		{"caller left in the answer", balancer.Lease{Replica: "llama"}, relay.Result{Kind: relay.Cancelled, Phase: relay.Decoding}, false, time.Second},
		{"caller left before the phone heard of it", balancer.Lease{Replica: "llama"}, relay.Result{Kind: relay.Cancelled}, false, 0},
		{"hung handshake", balancer.Lease{Replica: "llama"}, relay.Result{Kind: relay.Silent}, true, 0},
		{"silent", balancer.Lease{Replica: "llama"}, relay.Result{Kind: relay.Silent, Phase: relay.Waiting}, true, time.Second},
		{"stalled", balancer.Lease{Replica: "llama"}, relay.Result{Kind: relay.Stalled, Phase: relay.Decoding}, true, time.Second},
		{"gone", balancer.Lease{Replica: "llama"}, relay.Result{Kind: relay.Offline, Phase: relay.Decoding}, true, 0},
		{"busy", balancer.Lease{Replica: "llama"}, relay.Result{Kind: relay.Busy, Phase: relay.Prefill}, true, 0},
		{"kept away by the breaker", balancer.Lease{Replica: "llama"}, relay.Result{Kind: relay.Busy, Err: health.ErrTripped, Lost: true}, true, restingPause},
		{"bad request", balancer.Lease{Replica: "llama"}, relay.Result{Kind: relay.Caller, Phase: relay.Prefill}, false, 0},
		{"cancelled where nobody notices", balancer.Lease{Replica: "mnn", Predicted: time.Minute}, relay.Result{Kind: relay.Cancelled, Phase: relay.Decoding, Total: 20 * time.Second}, false, 40 * time.Second},
		{"the same, late", balancer.Lease{Replica: "mnn", Predicted: time.Minute}, relay.Result{Kind: relay.Cancelled, Phase: relay.Decoding, Total: time.Hour}, false, time.Second},
		{"the same, endless", balancer.Lease{Replica: "mnn", Predicted: time.Hour}, relay.Result{Kind: relay.Cancelled, Phase: relay.Decoding}, false, 10 * time.Minute},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := g.aftermath(tt.lease, tt.r)
			if got.Failed != tt.failed || got.Cooling != tt.cooling {
				t.Errorf("got failed %t, cooling %v, want %t, %v", got.Failed, got.Cooling, tt.failed, tt.cooling)
			}
			if diff := cmp.Diff(samplesOf(tt.lease, tt.r), got.Samples); diff != "" && !errors.Is(tt.r.Err, health.ErrTripped) {
				t.Errorf("samples (-want +got):\n%s", diff)
			}
		})
	}
}

// A cancelled prefill holds its slot for one logical batch more, at that phone's speed.
func TestCoolingOfAPrefill(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	view := func(id balancer.ReplicaID, tps float64) balancer.View {
		return balancer.View{Replica: balancer.Replica{ID: id, Model: "m", Slots: 1, Prior: balancer.Speeds{Prefill: tps, Decode: 8}}}
	}
	g.Room = roomOf(t, view("fast", 512), view("slow", 51.2), view("hopeless", 1))
	for id, want := range map[balancer.ReplicaID]time.Duration{"fast": 2 * time.Second, "slow": 11 * time.Second, "hopeless": 2 * time.Minute, "unknown": time.Second} {
		got := g.aftermath(balancer.Lease{Replica: id}, relay.Result{Kind: relay.Cancelled, Phase: relay.Prefill})
		if got.Cooling != want {
			t.Errorf("%s: got cooling %v, want %v", id, got.Cooling, want)
		}
	}
}

// The caller hears when the first of the phones that asked to be left alone may be asked again.
func TestWithRetry(t *testing.T) {
	t.Parallel()
	view := func(id balancer.ReplicaID, s balancer.State, alone time.Duration) balancer.View {
		return balancer.View{Replica: balancer.Replica{ID: id, Model: "m", Slots: 1}, State: s, LeaveAlone: roomTime.Add(alone)}
	}
	other := view("other", balancer.Ready, 3*time.Second)
	other.Model = "n"
	tests := []struct {
		name  string
		views []balancer.View
		want  time.Duration // 0: nothing to add
	}{
		{"none", nil, 0},
		{"down", []balancer.View{view("a", balancer.Down, 40*time.Second)}, 0},
		{"one", []balancer.View{view("a", balancer.Ready, 40*time.Second)}, 40 * time.Second},
		{"the first of many", []balancer.View{view("a", balancer.Ready, 40*time.Second), view("b", balancer.Suspect, 30*time.Second), view("c", balancer.Down, 5*time.Second), other}, 30 * time.Second},
		{"free already", []balancer.View{view("a", balancer.Ready, -time.Second)}, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t)
			g.Room = roomOf(t, tt.views...)
			err := g.withRetry(balancer.ErrNoReplica, balancer.Ticket{Model: "m", PromptTokens: 10, OutputTokens: 10, Slots: 1})
			var retry *retryError
			if errors.As(err, &retry) != (tt.want > 0) || !errors.Is(err, balancer.ErrNoReplica) {
				t.Fatalf("got %v, want a wait: %t", err, tt.want > 0)
			}
			const late = 5 * time.Second // of a loaded machine
			if tt.want > 0 && (retry.after > tt.want || retry.after < tt.want-late) {
				t.Errorf("got %v, want %v", retry.after, tt.want)
			}
		})
	}
	if err := newGateway(t).withRetry(errDeadline, balancer.Ticket{Model: "m"}); !errors.Is(err, errDeadline) {
		t.Errorf("got %v, want other errors as they are", err)
	}
}
