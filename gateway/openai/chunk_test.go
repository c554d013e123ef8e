package openai

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseChunk(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, in string
		want     Chunk
	}{
		{"role", `{"choices":[{"finish_reason":null,"index":0,"delta":{"role":"assistant","content":null}}]}`, Chunk{Choices: 1}},
		{"empty content", `{"choices":[{"index":0,"delta":{"content":""}}]}`, Chunk{Choices: 1}},
		{"content", `{"choices":[{"index":0,"delta":{"content":"h\u00e9\n"}}]}`, Chunk{Choices: 1, Content: true, Text: 4}},
		{"reasoning", `{"choices":[{"index":0,"delta":{"reasoning_content":"abc"}}]}`, Chunk{Choices: 1, Content: true, Text: 3}},
		{"refusal", `{"choices":[{"index":0,"delta":{"refusal":"no","content":null}}]}`, Chunk{Choices: 1, Content: true, Text: 2}},
		{"audio", `{"choices":[{"index":0,"delta":{"audio":{"data":"x"}}}]}`, Chunk{Choices: 1, Content: true}},
		{"tool call header", `{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"x","function":{"name":"f","arguments":""}}]}}]}`, Chunk{Choices: 1, Content: true}},
		{"tool call piece", `{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\""}}]}}]}`, Chunk{Choices: 1, Content: true, Text: 2}},
		{"no tool calls", `{"choices":[{"index":0,"delta":{"tool_calls":[]}}]}`, Chunk{Choices: 1}},
		{"function call", `{"choices":[{"index":0,"delta":{"function_call":{"name":"f","arguments":"ab"}}}]}`, Chunk{Choices: 1, Content: true, Text: 2}},
		{"finish", `{"choices":[{"finish_reason":"stop","index":2,"delta":{}}]}`, Chunk{Choices: 1, Finished: true, FinishedSet: 1 << 2}},
		{"finish of several", `{"choices":[{"finish_reason":"stop","index":0},{"index":1},{"delta":{},"index":5,"finish_reason":"length"}]}`, Chunk{Choices: 3, Finished: true, FinishedSet: 1 | 1<<5}},
		{"empty finish of mnncli", `{"choices":[{"finish_reason":"","index":0,"delta":{"content":"a"}}]}`, Chunk{Choices: 1, Content: true, Text: 1}},
		{"no index of MNN", `{"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}`, Chunk{Choices: 1, Content: true, Text: 1, Finished: true, FinishedSet: 1}},
		{"odd indexes", `{"choices":[{"index":64,"finish_reason":"stop"},{"index":-1,"finish_reason":"stop"},{"index":1e99,"finish_reason":"stop"}]}`, Chunk{Choices: 3, Finished: true}},
		{"usage only", `{"choices":[],"usage":{"completion_tokens":4,"prompt_tokens":17,"total_tokens":21,"prompt_tokens_details":{"cached_tokens":16}}}`,
			Chunk{Usage: &Usage{PromptTokens: 17, CompletionTokens: 4, TotalTokens: 21, CachedTokens: 16}}},
		{"choices missing", `{"usage":{"completion_tokens":4}}`, Chunk{Usage: &Usage{CompletionTokens: 4}}},
		{"choices null", `{"choices":null,"usage":null,"timings":null,"prompt_progress":null,"error":null}`, Chunk{}},
		{"wrong types", `{"choices":[1,null,"x",[],{"index":"0","delta":"x","finish_reason":5}],"usage":5,"timings":[],"prompt_progress":"x"}`, Chunk{Choices: 5}},
		{"usage of wrong types", `{"choices":[],"usage":{"prompt_tokens":"5","completion_tokens":null,"total_tokens":1e99,"prompt_tokens_details":null}}`, Chunk{Usage: &Usage{TotalTokens: 1<<31 - 1}}},
		{"timings", `{"choices":[],"timings":{"cache_n":16,"prompt_n":1,"prompt_ms":0.373,"predicted_n":4,"predicted_ms":2.085}}`,
			Chunk{Timings: &Timings{CacheN: 16, PromptN: 1, PromptMS: 0.373, PredictedN: 4, PredictedMS: 2.085}}},
		{"progress", `{"choices":[{"delta":{"role":"assistant","content":null}}],"prompt_progress":{"total":2714,"cache":6,"processed":2054,"time_ms":7181}}`,
			Chunk{Choices: 1, Progress: &Progress{Total: 2714, Cache: 6, Processed: 2054, TimeMS: 7181}}},
		{"error", `{"error":{"code":500,"message":"Context size has been exceeded.","type":"server_error"}}`,
			Chunk{Err: &UpstreamError{Code: 500, Message: "Context size has been exceeded.", Type: "server_error"}}},
		{"error beside choices", `{"choices":[],"error":"boom"}`, Chunk{Err: &UpstreamError{Message: "boom"}}},
		{"vacant error", `{"choices":[{"delta":{"content":"a"}}],"error":{}}`, Chunk{Choices: 1, Content: true, Text: 1}},
		{"flat error", `{"object":"error","message":"boom","code":400,"type":"x"}`, Chunk{Err: &UpstreamError{Code: 400, Message: "boom", Type: "x"}}},
		{"detail", `{"detail":"boom"}`, Chunk{Err: &UpstreamError{Message: "boom"}}},
		{"unstreamed answer", `{"choices":[{"finish_reason":"stop","index":0,"message":{"role":"assistant","content":"hi"}}],"usage":{"completion_tokens":1}}`,
			Chunk{Choices: 1, Content: true, Text: 2, Finished: true, FinishedSet: 1, Usage: &Usage{CompletionTokens: 1}}},
		{"half a character", "{\"choices\":[{\"delta\":{\"content\":\"\xe4\xb8\"}}]}", Chunk{Choices: 1, Content: true, Text: 2}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := ParseChunk(ChatCompletions, []byte(tt.in))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("chunk (-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseChunkCompletions(t *testing.T) {
	t.Parallel()
	got, err := ParseChunk(Completions, []byte(`{"choices":[{"text":"ab","index":1,"logprobs":null,"finish_reason":"length"}]}`))
	want := Chunk{Choices: 1, Content: true, Text: 2, Finished: true, FinishedSet: 2}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("error %v, chunk (-want +got):\n%s", err, diff)
	}
}

func TestParseChunkErrors(t *testing.T) {
	t.Parallel()
	for _, in := range []string{"", "[DONE]", "[]", `"x"`, `{"choices":[{"delta":{"content":"cu`, `{} {}`, "<html>"} {
		if c, err := ParseChunk(ChatCompletions, []byte(in)); err == nil {
			t.Errorf("ParseChunk(%q) = %+v, want an error", in, c)
		}
	}
}

func TestParseChunkGoldens(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name       string
		ep         Endpoint
		finished   uint64
		completion int
		progress   int
		failed     bool
	}{
		{"chat-stream-usage.sse", ChatCompletions, 1, 4, 0, false},
		{"chat-stream-nousage.sse", ChatCompletions, 1, 0, 0, false},
		{"completions-stream-usage.sse", Completions, 1, 4, 0, false},
		{"n3-stream.sse", ChatCompletions, 7, 12, 0, false},
		{"sse-ping-progress.sse", ChatCompletions, 1, 0, 3, false},
		{"kv-unified-overflow-0.sse", ChatCompletions, 0, 0, 0, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var sum UsageSum
			var finished uint64
			progress, failed, done := 0, false, false
			for e, err := range Events(bytes.NewReader(golden(t, tt.name)), 1<<20) {
				if err != nil {
					t.Fatal(err)
				}
				if e.Comment {
					continue
				}
				if done = done || e.Done(); done {
					continue
				}
				c, err := ParseChunk(tt.ep, e.Data)
				if err != nil {
					t.Fatal(err)
				}
				sum.Add(&c)
				finished |= c.FinishedSet
				failed = failed || c.Err != nil
				if c.Progress != nil {
					progress++
				}
			}
			total, _ := sum.Total()
			if finished != tt.finished || total.CompletionTokens != tt.completion || progress != tt.progress || failed != tt.failed || done == tt.failed {
				t.Errorf("finished %b, usage %+v, %d progress chunks, failed %t, done %t", finished, total, progress, failed, done)
			}
		})
	}
}

func TestAppendChunk(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		in    string
		edits ChunkEdits
		want  string
	}{
		{"nothing", `{"model" : "a", "usage":null }`, ChunkEdits{}, `{"model" : "a", "usage":null }`},
		{"model", `{"choices":[{"delta":{"model":"x"}}], "model" : "a" }`, ChunkEdits{Model: "b"}, `{"choices":[{"delta":{"model":"x"}}], "model" : "b" }`},
		{"id and created", `{"id":"x","created":1}`, ChunkEdits{ID: "y", Created: 9}, `{"id":"y","created":9}`},
		{"adds nothing", `{"a":1}`, ChunkEdits{Model: "b", ID: "y", Created: 9, DropUsage: true}, `{"a":1}`},
		{"drop", `{"usage":{"a":1},"choices":[],"timings":{"x":{}},"b":1.0,"prompt_progress":{}}`,
			ChunkEdits{DropUsage: true, DropTimings: true, DropProgress: true}, `{"choices":[],"b":1.0}`},
		{"drop all", `{"usage":null}`, ChunkEdits{DropUsage: true}, `{}`},
		{"usage counts", `{"usage":{"completion_tokens":4,"x":{"y":1}, "prompt_tokens":17}}`, ChunkEdits{Usage: &Usage{PromptTokens: 1, CompletionTokens: 2, TotalTokens: 3}},
			`{"usage":{"completion_tokens":2,"x":{"y":1}, "prompt_tokens":1,"total_tokens":3}}`},
		{"usage null stays", `{"usage":null,"a":1}`, ChunkEdits{Usage: &Usage{}}, `{"usage":null,"a":1}`},
		{"empty", `{ }`, ChunkEdits{Model: "b"}, `{ }`},
		{"not JSON", `oops {`, ChunkEdits{Model: "b"}, `oops {`},
		{"many members", `{"1":0,"2":0,"3":0,"4":0,"5":0,"6":0,"7":0,"8":0,"9":0,"10":0,"11":0,"12":0,"13":0,"14":0,"15":0,"16":0,"17":0,"18":0,"19":0,"20":0,"21":0,"22":0,"23":0,"24":0,"model":"a"}`,
			ChunkEdits{Model: "b"}, `{"1":0,"2":0,"3":0,"4":0,"5":0,"6":0,"7":0,"8":0,"9":0,"10":0,"11":0,"12":0,"13":0,"14":0,"15":0,"16":0,"17":0,"18":0,"19":0,"20":0,"21":0,"22":0,"23":0,"24":0,"model":"b"}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := AppendChunk([]byte("data: "), []byte(tt.in), tt.edits)
			if diff := cmp.Diff("data: "+tt.want, string(got)); diff != "" {
				t.Errorf("chunk (-want +got):\n%s", diff)
			}
		})
	}
}

func TestUsageSum(t *testing.T) {
	t.Parallel()
	usage := func(prompt, completion int) *Usage {
		return &Usage{PromptTokens: prompt, CompletionTokens: completion, TotalTokens: prompt + completion}
	}
	finish := func(i int, u *Usage) Chunk {
		return Chunk{Choices: 1, Finished: true, FinishedSet: 1 << i, Usage: u}
	}
	tests := []struct {
		name    string
		prompts int
		chunks  []Chunk
		want    Usage
		none    bool
	}{
		{"none", 0, []Chunk{finish(0, nil)}, Usage{}, true},
		{"one at the end", 0, []Chunk{finish(0, nil), {Usage: usage(5, 7)}}, *usage(5, 7), false},
		{"on the last chunk", 0, []Chunk{finish(0, usage(5, 7))}, *usage(5, 7), false},
		{"llama-server, n=3", 0, []Chunk{finish(1, nil), {Usage: usage(17, 4)}, finish(2, nil), {Usage: usage(17, 3)}, finish(0, nil), {Usage: usage(17, 2)}}, *usage(17, 9), false},
		{"llama-server, two prompts", 2, []Chunk{finish(0, usage(5, 4)), finish(1, usage(7, 4))}, *usage(12, 8), false},
		{"llama-server, two prompts twice", 2, []Chunk{finish(0, usage(5, 4)), finish(1, usage(5, 4)), finish(2, usage(7, 4)), finish(3, usage(7, 4))}, *usage(12, 16), false},
		{"OpenAI, n=3", 0, []Chunk{finish(0, nil), finish(1, nil), finish(2, nil), {Usage: usage(17, 12)}}, *usage(17, 12), false},
		{"running counts and a total", 0, []Chunk{{Choices: 1, Usage: usage(5, 1)}, {Choices: 1, Usage: usage(5, 2)}, finish(0, usage(5, 3)), {Usage: usage(5, 3)}}, *usage(5, 3), false},
		{"running counts of a cut stream", 0, []Chunk{{Choices: 1, Usage: usage(5, 1)}, {Choices: 1, Usage: usage(5, 2)}}, *usage(5, 2), false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			sum := UsageSum{Prompts: tt.prompts}
			for i := range tt.chunks {
				sum.Add(&tt.chunks[i])
			}
			got, ok := sum.Total()
			if ok == tt.none || got != tt.want {
				t.Errorf("total %+v, %t, want %+v", got, ok, tt.want)
			}
		})
	}
}
