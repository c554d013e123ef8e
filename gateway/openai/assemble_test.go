package openai

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// assemble feeds a recorded stream to an assembler.
func assemble(t *testing.T, ep Endpoint, stream []byte) []byte {
	t.Helper()
	a := NewAssembler(ep, 1<<20)
	for e, err := range Events(bytes.NewReader(stream), 1<<20) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Comment {
			continue
		}
		if err := a.Add(e.Data); err != nil {
			t.Fatal(err)
		}
		clear(e.Data) // the assembler must not keep it
	}
	body, err := a.Body(ChunkEdits{})
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// shape replaces what a random model answers by the type of it, so that two
// answers can be compared member by member.
func shape(path string, v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, x := range v {
			out[k] = shape(path+"."+k, x)
		}
		return out
	case []any:
		out := []any{}
		for _, x := range v {
			out = append(out, shape(path+"[]", x))
		}
		if strings.HasSuffix(path, ".bytes") {
			return "bytes"
		}
		return out
	case string:
		switch path {
		case ".object", ".choices[].finish_reason", ".choices[].message.role", ".system_fingerprint", ".model", ".choices[].message.tool_calls[].type":
			return v
		}
		return "string"
	case json.Number:
		if path == ".choices[].index" {
			return v
		}
		return "number"
	}
	return v
}

func TestAssembleLikeUnstreamed(t *testing.T) {
	t.Parallel()
	tests := []struct {
		stream, unstreamed string
		ep                 Endpoint
		ignore             []string // differ by the request of the recording
	}{
		{"chat-stream-usage.sse", "chat-nonstream.json", ChatCompletions, nil},
		{"chat-stream-nousage.sse", "chat-nonstream.json", ChatCompletions, []string{"usage"}},
		{"chat-stream-eos.sse", "chat-nonstream-eos.json", ChatCompletions, nil},
		{"chat-stream-progress.sse", "chat-nonstream.json", ChatCompletions, nil},
		{"chat-stream-timings_per_token.sse", "chat-nonstream.json", ChatCompletions, []string{"usage"}},
		{"toolcall-stream.sse", "toolcall-nonstream.json", ChatCompletions, nil},
		{"tools-required-stream.sse", "tools-required.json", ChatCompletions, nil},
		{"logprobs-stream.sse", "logprobs.json", ChatCompletions, []string{"usage", "top_logprobs"}},
		{"completions-stream-usage.sse", "completions-nonstream.json", Completions, nil},
		{"n3-stream.sse", "n3.json", ChatCompletions, nil},
	}
	for _, tt := range tests {
		t.Run(tt.stream, func(t *testing.T) {
			t.Parallel()
			got := decodeObject(t, assemble(t, tt.ep, golden(t, tt.stream)))
			want := decodeObject(t, golden(t, tt.unstreamed))
			ignored := cmp.FilterPath(func(p cmp.Path) bool {
				key, ok := p.Last().(cmp.MapIndex)
				return ok && slices.Contains(tt.ignore, key.Key().String())
			}, cmp.Ignore())
			if diff := cmp.Diff(shape("", want), shape("", got), ignored); diff != "" {
				t.Errorf("shape (-unstreamed +assembled):\n%s", diff)
			}
		})
	}
}

// At the end of a sequence the random model says nothing, so here the values
// can be compared too.
func TestAssembleValuesOfEmptyAnswer(t *testing.T) {
	t.Parallel()
	got := decodeObject(t, assemble(t, ChatCompletions, golden(t, "chat-stream-eos.sse")))
	want := decodeObject(t, golden(t, "chat-nonstream-eos.json"))
	for _, m := range []map[string]any{got, want} {
		maps.DeleteFunc(m, func(k string, _ any) bool { return k == "id" || k == "created" || k == "timings" })
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("answer (-unstreamed +assembled):\n%s", diff)
	}
}

func TestAssembleValues(t *testing.T) {
	t.Parallel()
	tests := []struct {
		stream string
		ep     Endpoint
		want   string
	}{
		{"chat-stream-usage.sse", ChatCompletions, `[{"finish_reason":"length","index":0,"message":{"role":"assistant","content":" theirquireposeright"}}]`},
		{"toolcall-stream.sse", ChatCompletions, `[{"finish_reason":"length","index":0,"message":{"role":"assistant","content":"","tool_calls":[` +
			`{"type":"function","function":{"name":"get_weather","arguments":"{\"city\":\n\n     \" THE@Mea\"\n\n}"},"id":"XwbK9VzqKuKmglzvVYNBxgfLjUYEeOhT"},` +
			`{"type":"function","function":{"name":"get_weather","arguments":"{"},"id":"pt2kL1guKv6b7D24tnO1fNl2pRVUB0Bt"}]}}]`},
		{"completions-stream-usage.sse", Completions, `[{"text":"tributoress\ntwork","index":0,"logprobs":null,"finish_reason":"length"}]`},
		{"n3-stream.sse", ChatCompletions, `[{"finish_reason":"length","index":0,"message":{"role":"assistant","content":" theirpose permit7"}},` +
			`{"finish_reason":"length","index":1,"message":{"role":"assistant","content":" k THE@ a"}},` +
			`{"finish_reason":"length","index":2,"message":{"role":"assistant","content":" theirop prpose"}}]`},
	}
	for _, tt := range tests {
		o, err := parseLax(assemble(t, tt.ep, golden(t, tt.stream)), nil)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(strings.ReplaceAll(tt.want, "\n", `\n`), string(o.raw(o.find("choices")))); diff != "" {
			t.Errorf("%s: choices (-want +got):\n%s", tt.stream, diff)
		}
	}
	o, _ := parseLax(assemble(t, ChatCompletions, golden(t, "n3-stream.sse")), nil)
	want := `{"completion_tokens":12,"prompt_tokens":17,"total_tokens":29,"prompt_tokens_details":{"cached_tokens":16}}`
	if got := string(o.raw(o.find("usage"))); got != want {
		t.Errorf("usage of three choices = %s, want %s", got, want)
	}
}

func TestAssembleDeltas(t *testing.T) {
	t.Parallel()
	chat := func(delta string) string { return `{"choices":[{"index":0,"delta":` + delta + `}]}` }
	const end = `{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`
	const head, tail = `{"choices":[{"finish_reason":"stop","index":0,"message":`, `}],"object":"chat.completion"}`
	tests := []struct {
		name   string
		chunks []string
		want   string
	}{
		{"nothing", []string{end}, head + `{"role":"assistant","content":""}` + tail},
		{"reasoning", []string{chat(`{"role":"assistant","reasoning_content":"a"}`), chat(`{"reasoning_content":"b"}`), chat(`{"content":"c"}`), end},
			head + `{"role":"assistant","content":"c","reasoning_content":"ab"}` + tail},
		{"refusal", []string{chat(`{"refusal":null}`), chat(`{"refusal":"n"}`), chat(`{"refusal":"o"}`), end}, head + `{"role":"assistant","content":"","refusal":"no"}` + tail},
		{"null refusal", []string{chat(`{"refusal":null,"content":"x"}`), end}, head + `{"role":"assistant","content":"x","refusal":null}` + tail},
		{"split surrogates", []string{chat(`{"content":"\ud83d"}`), chat(`{"content":"\ude00"}`), end}, head + `{"role":"assistant","content":"\ud83d\ude00"}` + tail},
		{"split utf-8", []string{chat("{\"content\":\"\xe4\xb8\"}"), chat("{\"content\":\"\x96\"}"), end}, head + `{"role":"assistant","content":"世"}` + tail},
		{"lost half", []string{chat("{\"content\":\"\xe4\xb8\"}"), end}, head + "{\"role\":\"assistant\",\"content\":\"\uFFFD\"}" + tail},
		{"unknown delta members", []string{chat(`{"x":1,"y":{"z":1.0}}`), chat(`{"x":2,"y":null}`), end}, head + `{"role":"assistant","content":"","x":2,"y":{"z":1.0}}` + tail},
		{"two calls, interleaved, id first only", []string{
			chat(`{"tool_calls":[{"index":1,"id":"b","type":"function","function":{"name":"g","arguments":""}}]}`),
			chat(`{"tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"f","arguments":"{"}},{"index":1,"function":{"arguments":"[1"}}]}`),
			chat(`{"tool_calls":[{"index":0,"function":{"arguments":"}"}}]}`),
			chat(`{"tool_calls":[{"index":1,"id":"","function":{"name":"g","arguments":"]"}}]}`), end},
			head + `{"role":"assistant","content":"","tool_calls":[{"type":"function","function":{"name":"f","arguments":"{}"},"id":"a"},{"type":"function","function":{"name":"g","arguments":"[1]"},"id":"b"}]}` + tail},
		{"calls without index", []string{
			chat(`{"tool_calls":[{"id":"a","function":{"name":"f","arguments":"{"}}]}`), chat(`{"tool_calls":[{"function":{"arguments":"}"}}]}`),
			chat(`{"tool_calls":[{"id":"b","function":{"name":"f","arguments":"{}"}}]}`), end},
			head + `{"role":"assistant","content":"","tool_calls":[{"type":"function","function":{"name":"f","arguments":"{}"},"id":"a"},{"type":"function","function":{"name":"f","arguments":"{}"},"id":"b"}]}` + tail},
		{"split name", []string{chat(`{"tool_calls":[{"index":0,"function":{"name":"get_"}}]}`), chat(`{"tool_calls":[{"index":0,"function":{"name":"weather","arguments":"{}"}}]}`), end},
			head + `{"role":"assistant","content":"","tool_calls":[{"type":"function","function":{"name":"get_weather","arguments":"{}"}}]}` + tail},
		{"old function call", []string{chat(`{"function_call":{"name":"f"}}`), chat(`{"function_call":{"arguments":"{}"}}`), end},
			head + `{"role":"assistant","content":"","function_call":{"name":"f","arguments":"{}"}}` + tail},
		{"no index, empty finish", []string{`{"choices":[{"delta":{"content":"a"},"finish_reason":""}]}`, `{"choices":[{"delta":{"content":"b"},"finish_reason":"stop"}]}`},
			head + `{"role":"assistant","content":"ab"}` + tail},
		{"logprobs", []string{`{"choices":[{"index":0,"delta":{},"logprobs":{"content":[{"a":1}],"refusal":null}}]}`, `{"choices":[{"index":0,"delta":{},"logprobs":{"content":[]}}]}`,
			`{"choices":[{"index":0,"delta":{},"logprobs":{"content":[{"a":2},{"a":3}]}}]}`, `{"choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}]}`},
			head + `{"role":"assistant","content":""},"logprobs":{"content":[{"a":1},{"a":2},{"a":3}],"refusal":null}` + tail},
		{"other members", []string{`{"a":1,"choices":[{"index":0,"delta":{},"stop_reason":null}],"prompt_progress":{},"object":"x"}`, `{"a":2,"choices":[{"index":0,"delta":{},"stop_reason":7,"finish_reason":"stop"}]}`},
			`{"choices":[{"finish_reason":"stop","index":0,"message":{"role":"assistant","content":""},"stop_reason":7}],"object":"chat.completion","a":2}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			a := NewAssembler(ChatCompletions, 1<<20)
			for _, c := range append(tt.chunks, "[DONE]") {
				if err := a.Add([]byte(c)); err != nil {
					t.Fatal(err)
				}
			}
			got, err := a.Body(ChunkEdits{})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, string(got)); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
			decodeObject(t, got)
		})
	}
}

func TestAssembleEdits(t *testing.T) {
	t.Parallel()
	a := NewAssembler(Completions, 1<<20)
	a.Usage.Prompts = 2
	for _, c := range []string{
		`{"id":"x","created":1,"model":"m","choices":[{"text":"a","index":0,"finish_reason":"stop"}],"usage":{"prompt_tokens":5,"completion_tokens":1,"total_tokens":6}}`,
		`{"id":"x","created":1,"model":"m","choices":[{"text":"b","index":1,"finish_reason":"stop"}],"usage":{"prompt_tokens":7,"completion_tokens":1,"total_tokens":8},"timings":{}}`,
	} {
		if err := a.Add([]byte(c)); err != nil {
			t.Fatal(err)
		}
	}
	got, err := a.Body(ChunkEdits{Model: "alias", ID: "y", Created: 2, DropTimings: true})
	want := `{"choices":[{"text":"a","index":0,"finish_reason":"stop"},{"text":"b","index":1,"finish_reason":"stop"}],"object":"text_completion","id":"y","created":2,"model":"alias",` +
		`"usage":{"prompt_tokens":12,"completion_tokens":2,"total_tokens":14}}`
	if diff := cmp.Diff(want, string(got)); err != nil || diff != "" {
		t.Errorf("error %v, answer (-want +got):\n%s", err, diff)
	}
}

func TestAssembleFailures(t *testing.T) {
	t.Parallel()
	a := NewAssembler(ChatCompletions, 1<<20)
	if _, err := a.Body(ChunkEdits{}); !errors.Is(err, ErrUnfinished) {
		t.Errorf("no chunk: error %v", err)
	}
	for _, c := range []string{`{"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}]}`, `{"choices":[{"index":1,"delta":{"content":"b"}}]}`} {
		if err := a.Add([]byte(c)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := a.Body(ChunkEdits{}); !errors.Is(err, ErrUnfinished) {
		t.Errorf("a choice is not finished: error %v", err)
	}
	if err := a.Add([]byte(`{"error":{"code":500,"message":"x","type":"server_error"}}`)); err == nil {
		t.Error("an error event was taken")
	} else if e, ok := errors.AsType[*UpstreamError](err); !ok || e.Code != 500 {
		t.Errorf("error event: %v", err)
	}
	if err := a.Add([]byte(`{"choices":`)); err == nil {
		t.Error("cut JSON was taken")
	}
}

func TestAssembleBounded(t *testing.T) {
	t.Parallel()
	chunks := map[string]func(i int) string{
		"content":   func(int) string { return `{"choices":[{"index":0,"delta":{"content":"0123456789"}}]}` },
		"choices":   func(i int) string { return fmt.Sprintf(`{"choices":[{"index":%d}]}`, i) },
		"calls":     func(i int) string { return fmt.Sprintf(`{"choices":[{"delta":{"tool_calls":[{"index":%d}]}}]}`, i) },
		"arguments": func(int) string { return `{"choices":[{"delta":{"tool_calls":[{"function":{"arguments":"abc"}}]}}]}` },
		"members":   func(i int) string { return fmt.Sprintf(`{"x%d":1}`, i) },
		"logprobs":  func(int) string { return `{"choices":[{"logprobs":{"content":[1,2,3]}}]}` },
	}
	for name, chunk := range chunks {
		a := NewAssembler(ChatCompletions, 10_000)
		var err error
		n := 0
		for ; err == nil && n < 10_000; n++ {
			err = a.Add([]byte(chunk(n)))
		}
		if !errors.Is(err, ErrAnswerTooLarge) || n < 10 {
			t.Errorf("%s: error %v after %d chunks", name, err, n)
		}
	}
}

// FuzzAssemble cuts an answer into deltas anywhere and puts it together again.
func FuzzAssemble(f *testing.F) {
	f.Add("hello world", "thinking", `{"city":"Paris"}`, []byte{3, 1, 4, 1, 5})
	f.Add("世界 😀 \"quoted\" \\ \n", "", "", []byte{1})
	f.Add("", "é", "{", []byte{0, 0, 255})
	f.Fuzz(func(t *testing.T, content, reasoning, arguments string, cuts []byte) {
		a := NewAssembler(ChatCompletions, 1<<20)
		next := 0
		// pieces yields s in escaped form, cut at bytes of the escaped form
		// that are no place inside an escape.
		pieces := func(s string, emit func(string)) {
			runes := []rune(s)
			for len(runes) > 0 {
				n := 1
				if len(cuts) > 0 {
					n += int(cuts[next%len(cuts)]) % 7
					next++
				}
				n = min(n, len(runes))
				emit(string(appendQuoted(nil, string(runes[:n]))))
				runes = runes[n:]
			}
		}
		add := func(format, piece string) {
			chunk := fmt.Sprintf(`{"id":"i","choices":[{"index":0,"delta":`+format+`,"finish_reason":null}]}`, piece)
			if err := a.Add([]byte(chunk)); err != nil {
				t.Fatalf("%q: %v", chunk, err)
			}
		}
		add(`{"role":%s,"content":null}`, `"assistant"`)
		pieces(reasoning, func(p string) { add(`{"reasoning_content":%s}`, p) })
		pieces(content, func(p string) { add(`{"content":%s}`, p) })
		add(`{"tool_calls":[{"index":0,"id":"c","type":"function","function":{"name":%s,"arguments":""}}]}`, `"f"`)
		pieces(arguments, func(p string) { add(`{"tool_calls":[{"index":0,"function":{"arguments":%s}}]}`, p) })
		if err := a.Add([]byte(`{"id":"i","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`)); err != nil {
			t.Fatal(err)
		}
		body, err := a.Body(ChunkEdits{})
		if err != nil {
			t.Fatal(err)
		}
		var got struct {
			Choices []struct {
				Message struct {
					Content   string
					Reasoning string `json:"reasoning_content"`
					ToolCalls []struct {
						ID       string
						Function struct{ Name, Arguments string }
					} `json:"tool_calls"`
				}
			}
		}
		if err := json.Unmarshal(body, &got); err != nil {
			t.Fatalf("%v in %q", err, body)
		}
		m := got.Choices[0].Message
		valid := func(s string) string { return string([]rune(s)) }
		if m.Content != valid(content) || m.Reasoning != valid(reasoning) || len(m.ToolCalls) != 1 || m.ToolCalls[0].Function.Arguments != valid(arguments) {
			t.Fatalf("assembled %+v of %q, %q, %q", m, content, reasoning, arguments)
		}
	})
}

// FuzzChunk feeds anything: nothing may crash, and edits keep JSON JSON.
func FuzzChunk(f *testing.F) {
	for _, name := range goldens(f, ".sse") {
		for e, err := range Events(bytes.NewReader(golden(f, name)), 1<<20) {
			if err != nil {
				f.Fatal(err)
			}
			f.Add(bytes.Clone(e.Data))
		}
	}
	f.Add([]byte(`{"choices":[{"logprobs":{"content":[1],"x":[ ]},"delta":{"tool_calls":[{"function":{"name":"a"}},5]}}],"usage":{"a":1}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, ep := range []Endpoint{ChatCompletions, Completions} {
			c, err := ParseChunk(ep, data)
			out := AppendChunk(nil, data, ChunkEdits{Model: "m", Usage: &Usage{}, DropTimings: true})
			if err != nil {
				if !bytes.Equal(out, data) {
					t.Fatalf("not JSON, but edited: %q -> %q", data, out)
				}
				continue
			}
			if !json.Valid(out) {
				t.Fatalf("edits made invalid JSON of %q: %q", data, out)
			}
			if c.Text < 0 || c.Finished != (c.FinishedSet != 0) && c.FinishedSet != 0 {
				t.Fatalf("chunk %+v", c)
			}
			a := NewAssembler(ep, 1<<16)
			if err := errors.Join(a.Add(data), a.Add(data)); err != nil {
				continue
			}
			if body, err := a.Body(ChunkEdits{}); err == nil && !json.Valid(body) {
				t.Fatalf("assembled invalid JSON of %q: %q", data, body)
			}
		}
		_ = ParseUpstreamError(500, data)
	})
}
