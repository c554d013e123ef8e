package fakephone

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// like is a phone set up as the recorded server was.
func like() Config {
	return Config{Profile: quick(), Model: "phone-model", Key: "sk-phone-1", Context: 4096}
}

// serveRecorded returns a phone over pipes with a listener for raw connections.
func serveRecorded(t *testing.T, cfg Config) (*Phone, *MemListener) {
	t.Helper()
	p, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	l := NewMemListener()
	served := make(chan error, 1)
	go func() { served <- p.Serve(l) }()
	t.Cleanup(func() {
		_ = p.Close()
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return p, l
}

// TestGolden replays recorded requests and compares status, headers, HTTP chunks, keys and their order with the recorded answer.
func TestGolden(t *testing.T) {
	t.Parallel()
	type setup struct {
		name  string
		cfg   func(*Config)
		fault Fault
		body  string // where the transcript's is shortened
	}
	slots4 := func(c *Config) { c.Slots = 4 }
	loading := func(c *Config) { c.Load = time.Hour }
	long := strings.Repeat("word ", 640)
	tests := []setup{
		{name: "chat-stream-nousage"}, {name: "chat-stream-usage"}, {name: "chat-stream-timings_per_token"},
		{name: "chat-nonstream"}, {name: "max-both"}, {name: "unknown-model"}, {name: "err-bad-role"}, {name: "err-empty-messages"},
		{name: "chat-stream-progress", cfg: func(c *Config) { c.Batch = 220 },
			body: `{"messages":[{"role":"user","content":"` + long + `"}],"max_tokens":2,"stream":true,"return_progress":true,"stream_options":{"include_usage":true}}`},
		{name: "chat-stream-eos", fault: Fault{Kind: EmptyAnswer}}, {name: "chat-nonstream-eos", fault: Fault{Kind: EmptyAnswer}},
		{name: "max_tokens-0"}, {name: "max_tokens-0-stream"},
		{name: "q-continue_final-true"}, {name: "prefill-stream"},
		{name: "completions-nonstream"}, {name: "completions-stream-usage"}, {name: "completions-two-prompts", cfg: slots4},
		{name: "completions-token-ids"}, {name: "n3", cfg: slots4},
		{name: "n2-parallel1"}, {name: "n5-too-many", cfg: slots4}, {name: "prefill-two-assistants"},
		{name: "err-bad-json"}, {name: "err-empty-body"}, {name: "err-no-messages"}, {name: "err-messages-string"}, {name: "err-no-content"},
		{name: "err-body-array"}, {name: "err-image-no-mmproj"}, {name: "err-content-part-unknown"}, {name: "err-max_tokens-negative"},
		{name: "err-type-max_tokens-string"},
		{name: "err-unknown-path"}, {name: "err-unknown-path-nokey"}, {name: "err-wrong-method"}, {name: "root"},
		{name: "err-nokey"}, {name: "err-wrongkey"}, {name: "key-without-bearer"}, {name: "key-basic-and-xapikey"}, {name: "models-nokey"},
		{name: "health-ready"}, {name: "health-v1"}, {name: "origin-echo"}, {name: "models"}, {name: "models-plain"},
		{name: "slots-idle-fresh"}, {name: "slots-fail_on_no_slot-idle"}, {name: "embeddings-not-enabled"},
		{name: "loading_health_nokey", cfg: loading}, {name: "loading_v1_chat_completions", cfg: loading},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			recorded := readTranscript(t, tt.name)
			if tt.body != "" {
				recorded.body = []byte(tt.body)
			}
			synctest.Test(t, func(t *testing.T) {
				cfg := like()
				if tt.cfg != nil {
					tt.cfg(&cfg)
				}
				p, l := serveRecorded(t, cfg)
				if tt.fault.Kind != "" {
					if err := p.SetFault(tt.fault); err != nil {
						t.Fatal(err)
					}
				}
				want, got := parseAnswer(t, recorded.response), parseAnswer(t, replay(t, l, recorded))
				if got.status != want.status {
					t.Errorf("status %q, want %q", got.status, want.status)
				}
				if diff := cmp.Diff(want.header, got.header); diff != "" {
					t.Errorf("headers (-recorded +got):\n%s", diff)
				}
				if diff := cmp.Diff(want.skeletons(t), got.skeletons(t)); diff != "" {
					t.Errorf("body (-recorded +got):\n%s", diff)
				}
			})
		})
	}
}

// TestGoldenInterleaved compares the events of each choice of a stream with n=3; how they interleave is the scheduler's.
func TestGoldenInterleaved(t *testing.T) {
	t.Parallel()
	recorded := readTranscript(t, "n3-stream")
	synctest.Test(t, func(t *testing.T) {
		cfg := like()
		cfg.Slots = 4
		_, l := serveRecorded(t, cfg)
		ofChoice := func(a answer, i int) (all []string) {
			for _, doc := range slices.Concat(a.skeletons(t)...) {
				if strings.Contains(doc, fmt.Sprintf("index:%d,", i)) {
					all = append(all, doc)
				}
			}
			return all
		}
		want, got := parseAnswer(t, recorded.response), parseAnswer(t, replay(t, l, recorded))
		for i := range 3 {
			if diff := cmp.Diff(ofChoice(want, i), ofChoice(got, i)); diff != "" {
				t.Errorf("choice %d (-recorded +got):\n%s", i, diff)
			}
		}
		count := func(a answer, part string) int {
			n := 0
			for _, doc := range slices.Concat(a.skeletons(t)...) {
				n += strings.Count(doc, part)
			}
			return n
		}
		for _, part := range []string{"choices:[]", "completion_tokens:4", "[DONE]"} {
			if g, w := count(got, part), count(want, part); g != w {
				t.Errorf("%q: %d times, recorded %d", part, g, w)
			}
		}
	})
}

// TestGoldenSubset checks that what the phone shows of a large document is there in the recorded one, with the same type.
func TestGoldenSubset(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"props", "slots-busy-decode"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			recorded := readTranscript(t, name)
			synctest.Test(t, func(t *testing.T) {
				p, l := serveRecorded(t, like())
				c := client{httpClient(l), "http://phone"}
				if name != "props" {
					go func() { _, _ = c.keyed("sk-phone-1").post(t.Context(), chat, ask(100, `,"max_tokens":40`)) }()
					pass(1100 * time.Millisecond) // in the bubble: the slot decodes
				}
				got := parseAnswer(t, replay(t, l, recorded)).chunks[0][0]
				_ = p.Close()
				var g, w any
				if err := json.Unmarshal([]byte(got), &g); err != nil {
					t.Fatal(err)
				}
				if err := json.Unmarshal([]byte(parseAnswer(t, recorded.response).chunks[0][0]), &w); err != nil {
					t.Fatal(err)
				}
				subset(t, "", g, w)
			})
		})
	}
}

func subset(t *testing.T, path string, got, want any) {
	t.Helper()
	switch g := got.(type) {
	case map[string]any:
		w, ok := want.(map[string]any)
		if !ok {
			t.Errorf("%s: an object, recorded %T", path, want)
			return
		}
		for k, v := range g {
			if _, ok := w[k]; !ok {
				t.Errorf("%s.%s: not recorded", path, k)
				continue
			}
			subset(t, path+"."+k, v, w[k])
		}
	case []any:
		if w, ok := want.([]any); ok && len(w) > 0 && len(g) > 0 {
			subset(t, path+"[]", g[0], w[0])
		}
	default:
		if fmt.Sprintf("%T", got) != fmt.Sprintf("%T", want) {
			t.Errorf("%s: %T, recorded %T", path, got, want)
		}
	}
}

func TestGoldenMetrics(t *testing.T) {
	t.Parallel()
	recorded := readTranscript(t, "metrics-busy")
	synctest.Test(t, func(t *testing.T) {
		_, l := serveRecorded(t, like())
		got := parseAnswer(t, replay(t, l, recorded))
		want := parseAnswer(t, recorded.response)
		if diff := cmp.Diff(want.header, got.header); diff != "" {
			t.Errorf("headers (-recorded +got):\n%s", diff)
		}
		known := make(map[string]bool)
		for line := range strings.Lines(want.chunks[0][0]) {
			known[strings.TrimRight(trimValue(line), "\n")] = true
		}
		for line := range strings.Lines(got.chunks[0][0]) {
			if !known[strings.TrimRight(trimValue(line), "\n")] {
				t.Errorf("not recorded: %s", line)
			}
		}
	})
}

func trimValue(line string) string {
	if strings.HasPrefix(line, "#") {
		return line
	}
	name, _, _ := strings.Cut(line, " ")
	return name
}

func TestContextExceeded(t *testing.T) {
	t.Parallel()
	recorded := readTranscript(t, "err-ctx-exceeded-stream")
	synctest.Test(t, func(t *testing.T) {
		p, l := serveRecorded(t, like())
		recorded.body = []byte(ask(5000, `,"stream":true`))
		got := parseAnswer(t, replay(t, l, recorded))
		want := parseAnswer(t, recorded.response)
		if got.status != want.status {
			t.Errorf("status %q, want %q", got.status, want.status)
		}
		if diff := cmp.Diff(want.header, got.header); diff != "" {
			t.Errorf("headers (-recorded +got):\n%s", diff)
		}
		const body = `{"error":{"code":400,"message":"request (5000 tokens) exceeds the available context size (4096 tokens), try increasing it","type":"exceed_context_size_error","n_prompt_tokens":5000,"n_ctx":4096}}`
		if got.chunks[0][0] != body {
			t.Errorf("got  %s\nwant %s", got.chunks[0][0], body)
		}
		if s := p.Stats(); s.Active != 0 || s.Completed != 1 {
			t.Errorf("stats = %+v, want the slot free", s)
		}
	})
}
