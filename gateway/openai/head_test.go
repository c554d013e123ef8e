package openai

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestParseHead(t *testing.T) {
	t.Parallel()
	const msgs = `"messages":[{"role":"user","content":"hi"}]`
	chat := func(h Head) Head {
		h.Model = "m"
		if h.N == 0 {
			h.N = 1
		}
		h.Prompts = 1
		if h.PromptBytes == 0 {
			h.PromptBytes = len(`[{"role":"user","content":"hi"}]`)
		}
		return h
	}
	tests := []struct {
		name, in string
		want     Head
	}{
		{"least", `{"model":"m",` + msgs + `}`, chat(Head{})},
		{"stream", `{"model":"m","stream":true,` + msgs + `}`, chat(Head{Stream: true})},
		{"usage", `{"model":"m","stream":true,"stream_options":{"x":1,"include_usage":true},` + msgs + `}`, chat(Head{Stream: true, IncludeUsage: true})},
		{"nulls are absent", `{"model":"m","stream":null,"stream_options":null,"n":null,"max_tokens":null,"max_completion_tokens":null,"service_tier":null,"tools":null,"stop":null,"return_progress":null,` + msgs + `}`, chat(Head{})},
		{"max_tokens", `{"model":"m","max_tokens":7,` + msgs + `}`, chat(Head{MaxTokens: 7})},
		{"both, in this order", `{"model":"m","max_tokens":7,"max_completion_tokens":5,` + msgs + `}`, chat(Head{MaxTokens: 5})},
		{"both, in that order", `{"model":"m","max_completion_tokens":5,"max_tokens":7,` + msgs + `}`, chat(Head{MaxTokens: 5})},
		{"null does not win", `{"model":"m","max_completion_tokens":null,"max_tokens":7,` + msgs + `}`, chat(Head{MaxTokens: 7})},
		{"1.0", `{"model":"m","n":1.0,"max_tokens":3.0,` + msgs + `}`, chat(Head{MaxTokens: 3})},
		{"1e3", `{"model":"m","max_tokens":1e3,` + msgs + `}`, chat(Head{MaxTokens: 1000})},
		{"huge", `{"model":"m","max_tokens":1e400,"n":99999999999999999999,` + msgs + `}`, chat(Head{MaxTokens: math.MaxInt32, N: math.MaxInt32})},
		{"tier", `{"model":"m","service_tier":"flex",` + msgs + `}`, chat(Head{ServiceTier: "flex"})},
		{"progress and timings", `{"model":"m","return_progress":true,"timings_per_token":true,` + msgs + `}`, chat(Head{WantsProgress: true, WantsTimings: true})},
		{"progress of a wrong type is the engine's", `{"model":"m","return_progress":"yes",` + msgs + `}`, chat(Head{})},
		{"escaped names and values", `{"mod\u0065l":"\u006d",` + msgs + `}`, chat(Head{})},
		{"features", `{"model":"m","stop":["x"],"grammar":"root","logprobs":true,"response_format":{"type":"json_object"},"functions":[{}],` + msgs + `}`,
			chat(Head{Features: Features{Stop: true, Grammar: true, Logprobs: true, ResponseFormat: true, Tools: true}})},
		{"vacant features", `{"model":"m","stop":[],"grammar":"","logprobs":false,"response_format":{"type":"text"},"functions":[ ],` + msgs + `}`, chat(Head{})},
		{"tools count", `{"model":"m","tools":[{"a":1}],` + msgs + `}`, chat(Head{PromptBytes: 32 + 9, Features: Features{Tools: true}})},
		{"unknown fields", `{"model":"m","cache_prompt":false,"id_slot":3,"x":{"model":1,"stream":2},` + msgs + `}`, chat(Head{})},
		{"unknown roles, no content, null content", `{"model":"m","messages":[{"role":"wizard"},{"content":null},{"content":7},5,null,{}]}`,
			chat(Head{PromptBytes: len(`[{"role":"wizard"},{"content":null},{"content":7},5,null,{}]`)})},
		{"empty messages", `{"model":"m","messages":[]}`, chat(Head{PromptBytes: 2})},
		{"image", `{"model":"m","messages":[{"content":[{"type":"text","text":"a"},{"image_url":{"url":"data:x"},"type":"image_url"}]}]}`,
			chat(Head{HasImage: true, PromptBytes: len(`[{"content":[{"type":"text","text":"a"},]}]`)})},
		{"audio", `{"model":"m","messages":[{"content":["x",{"type":"input_audio","input_audio":{}}]}]}`,
			chat(Head{HasAudio: true, PromptBytes: len(`[{"content":["x",]}]`)})},
		{"a text about images", `{"model":"m","messages":[{"content":"\"type\":\"image_url\""}]}`,
			chat(Head{PromptBytes: len(`[{"content":"\"type\":\"image_url\""}]`)})},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := ParseHead(ChatCompletions, []byte(tt.in))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(&tt.want, got, cmpopts.IgnoreUnexported(Head{})); diff != "" {
				t.Errorf("head (-want +got):\n%s", diff)
			}
			if string(got.Body()) != tt.in {
				t.Error("the body changed")
			}
		})
	}
}

func TestParseHeadPrompts(t *testing.T) {
	t.Parallel()
	tests := []struct {
		prompt string
		n      string
		want   int
	}{
		{`"Once"`, `1`, 1},
		{`""`, `3`, 3},
		{`["a","b"]`, `1`, 2},
		{`["a","b"]`, `3`, 6},
		{`[1,2,3]`, `2`, 2},
		{`["a",1,"b"]`, `1`, 1},
		{`[[1,2],[3]]`, `1`, 2},
		{`[]`, `1`, 1},
		{`["a","b","c"]`, `1e9`, math.MaxInt32},
	}
	for _, tt := range tests {
		h, err := ParseHead(Completions, []byte(`{"model":"m","prompt":`+tt.prompt+`,"n":`+tt.n+`}`))
		if err != nil {
			t.Errorf("prompt %s: %v", tt.prompt, err)
			continue
		}
		if got := h.Choices(); got != tt.want {
			t.Errorf("prompt %s, n %s: %d choices, want %d", tt.prompt, tt.n, got, tt.want)
		}
		if h.PromptBytes != len(tt.prompt) {
			t.Errorf("prompt %s: %d bytes", tt.prompt, h.PromptBytes)
		}
	}
}

func TestParseHeadErrors(t *testing.T) {
	t.Parallel()
	const msgs = `,"messages":[]}`
	tests := []struct {
		name, in, param string
		says            string
	}{
		{"empty", "", "", "empty"},
		{"space", " \n", "", "empty"},
		{"not JSON", "hello", "", "at byte 0"},
		{"array", "[]", "", "not a JSON object"},
		{"cut", `{"model":"m","messages":[{"role":`, "messages", "at byte 33"},
		{"bad utf-8", "{\"model\":\"m\",\"messages\":[\"\xff\"]}", "messages", "UTF-8"},
		{"lone surrogate", `{"model":"m","messages":["\ud800"]}`, "messages", "surrogate"},
		{"twice", `{"model":"m","model":"n"` + msgs, "model", "twice"},
		{"no model", `{"messages":[]}`, "model", "GET /v1/models"},
		{"null model", `{"model":null` + msgs, "model", "GET /v1/models"},
		{"empty model", `{"model":""` + msgs, "model", "GET /v1/models"},
		{"number as model", `{"model":4` + msgs, "model", "send a string"},
		{"no messages", `{"model":"m"}`, "messages", "Missing required parameter"},
		{"null messages", `{"model":"m","messages":null}`, "messages", "array"},
		{"string messages", `{"model":"m","messages":"hi"}`, "messages", "array"},
		{"prompt instead", `{"model":"m","prompt":"hi"}`, "messages", "Missing required parameter"},
		{"string stream", `{"model":"m","stream":"true"` + msgs, "stream", "true or false"},
		{"number stream", `{"model":"m","stream":1` + msgs, "stream", "true or false"},
		{"stream_options", `{"model":"m","stream_options":true` + msgs, "stream_options", "object"},
		{"include_usage", `{"model":"m","stream_options":{"include_usage":1}` + msgs, "stream_options.include_usage", "true or false"},
		{"include_usage twice", `{"model":"m","stream_options":{"include_usage":true,"include_usage":false}` + msgs, "stream_options", "twice"},
		{"n 0", `{"model":"m","n":0` + msgs, "n", "at least 1"},
		{"n string", `{"model":"m","n":"2"` + msgs, "n", "integer"},
		{"n fraction", `{"model":"m","n":1.5` + msgs, "n", "integer"},
		{"max_tokens 0", `{"model":"m","max_tokens":0` + msgs, "max_tokens", "at least 1"},
		{"max_tokens tiny", `{"model":"m","max_tokens":1e-400` + msgs, "max_tokens", "at least 1"},
		{"max_tokens -1", `{"model":"m","max_tokens":-1` + msgs, "max_tokens", "at least 1"},
		{"max_tokens -huge", `{"model":"m","max_tokens":-1e999` + msgs, "max_tokens", "at least 1"},
		{"max_completion_tokens", `{"model":"m","max_completion_tokens":[]` + msgs, "max_completion_tokens", "integer"},
		{"service_tier", `{"model":"m","service_tier":1` + msgs, "service_tier", "string"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h, err := ParseHead(ChatCompletions, []byte(tt.in))
			e, ok := errors.AsType[*Error](err)
			if !ok {
				t.Fatalf("ParseHead(%q) = %v, %v, want an *Error", tt.in, h, err)
			}
			if h != nil || e.Status != 400 || e.Type != TypeInvalidRequest || e.Param != tt.param {
				t.Errorf("ParseHead(%q) = %v, %d %s param %q, want param %q", tt.in, h, e.Status, e.Type, e.Param, tt.param)
			}
			if !strings.Contains(e.Message, tt.says) {
				t.Errorf("message %q does not say %q", e.Message, tt.says)
			}
		})
	}
	if _, err := ParseHead(Completions, []byte(`{"model":"m","messages":[]}`)); err == nil {
		t.Error("a completion without a prompt was accepted")
	}
	if _, err := ParseHead(Completions, []byte(`{"model":"m","prompt":{}}`)); err == nil {
		t.Error("an object as prompt was accepted")
	}
}

// A hostile body must not be repeated in the error.
func TestParseHeadErrorsKeepSecrets(t *testing.T) {
	t.Parallel()
	_, err := ParseHead(ChatCompletions, []byte(`{"model":"m","messages":[{"content":"my secret" oops`))
	e, ok := errors.AsType[*Error](err)
	if !ok || strings.Contains(e.Message, "secret") || strings.Contains(e.Error(), "secret") {
		t.Errorf("error %q repeats the body", e.Message)
	}
}

func FuzzHead(f *testing.F) {
	for _, s := range []string{
		`{"model":"m","messages":[{"role":"user","content":[{"type":"image_url"}]}],"n":2,"max_tokens":1e3}`,
		`{"model":"m","prompt":["a",[1,2]],"stream":true,"stream_options":{"include_usage":true}}`,
		`{"model":"m","messages":[],"stop":"x","response_format":{"type":"text"},"tools":[{}]}`,
		`{"model":"\ud83d\ude00","messages":[null,1,"x",{"content":[1,{"type":5}]}]}`,
	} {
		f.Add([]byte(s), true)
		f.Add([]byte(s), false)
	}
	f.Fuzz(func(t *testing.T, body []byte, chat bool) {
		ep := Completions
		if chat {
			ep = ChatCompletions
		}
		h, err := ParseHead(ep, body)
		if err != nil {
			e, ok := errors.AsType[*Error](err)
			if !ok || e.Status != 400 || e.Message == "" {
				t.Fatalf("error %#v", err)
			}
			decodeObject(t, e.Body())
			return
		}
		m := decodeObject(t, body)
		if m["model"] != h.Model || h.N < 1 || h.Prompts < 1 || h.MaxTokens < 0 || h.PromptBytes < 0 || h.PromptBytes > len(body) {
			t.Fatalf("head %+v of %q", h, body)
		}
		if s, _ := m["stream"].(bool); s != h.Stream {
			t.Fatalf("stream = %t of %q", h.Stream, body)
		}
	})
}
