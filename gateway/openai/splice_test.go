package openai

import (
	"bytes"
	"encoding/json"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func mustHead(tb testing.TB, body string) *Head {
	tb.Helper()
	h, err := ParseHead(ChatCompletions, []byte(body))
	if err != nil {
		tb.Fatal(err)
	}
	return h
}

func TestSplice(t *testing.T) {
	t.Parallel()
	raw := func(s string) json.RawMessage { return json.RawMessage(s) }
	thinking := []Field{{"chat_template_kwargs", raw(`{"enable_thinking":false,"depth":2}`)}}
	tests := []struct {
		name  string
		in    string
		edits Edits
		want  string
	}{
		{"nothing", `{"model":"m" , "messages":[]}`, Edits{}, `{"model":"m" , "messages":[]}`},
		{"model", `{ "temperature": 1.0, "model" : "alias", "messages":[] }`, Edits{Model: "qwen"}, `{ "temperature": 1.0, "model" : "qwen", "messages":[] }`},
		{"model with quotes", `{"model":"a","messages":[]}`, Edits{Model: "q\"\\\n\x01é"}, `{"model":"q\"\\\n\u0001é","messages":[]}`},
		{"numbers and unknown fields survive", `{"seed":12345678901234567890,"t":1.50e+0,"model":"a","messages":[],"x":{"y":[1,  2]}}`,
			Edits{Model: "b", Set: []Field{{"stream", raw("true")}}},
			`{"seed":12345678901234567890,"t":1.50e+0,"model":"b","messages":[],"x":{"y":[1,  2]},"stream":true}`},
		{"set replaces in place", `{"stream":false,"model":"a","messages":[]}`, Edits{Set: []Field{{"stream", raw("true")}}}, `{"stream":true,"model":"a","messages":[]}`},
		{"default not set", `{"model":"a","messages":[]}`, Edits{Defaults: []Field{{"max_tokens", raw("64")}}}, `{"model":"a","messages":[],"max_tokens":64}`},
		{"default set", `{"model":"a","messages":[],"max_tokens":5}`, Edits{Defaults: []Field{{"max_tokens", raw("64")}}}, `{"model":"a","messages":[],"max_tokens":5}`},
		{"default null counts as set", `{"model":"a","messages":[],"max_tokens":null,"chat_template_kwargs":null}`,
			Edits{Defaults: append([]Field{{"max_tokens", raw("64")}}, thinking...)}, `{"model":"a","messages":[],"max_tokens":null,"chat_template_kwargs":null}`},
		{"default object added", `{"model":"a","messages":[]}`, Edits{Defaults: thinking}, `{"model":"a","messages":[],"chat_template_kwargs":{"enable_thinking":false,"depth":2}}`},
		{"default object merged", `{"model":"a","chat_template_kwargs":{ "depth" : 1 },"messages":[]}`, Edits{Defaults: thinking},
			`{"model":"a","chat_template_kwargs":{ "depth" : 1,"enable_thinking":false },"messages":[]}`},
		{"default object merged into empty", `{"model":"a","chat_template_kwargs":{ },"messages":[]}`, Edits{Defaults: thinking},
			`{"model":"a","chat_template_kwargs":{"enable_thinking":false,"depth":2 },"messages":[]}`},
		{"merge is one level deep", `{"model":"a","k":{"in":{"x":1}},"messages":[]}`, Edits{Defaults: []Field{{"k", raw(`{"in":{"y":2},"z":3}`)}}},
			`{"model":"a","k":{"in":{"x":1},"z":3},"messages":[]}`},
		{"default object against a string", `{"model":"a","messages":[],"chat_template_kwargs":"x"}`, Edits{Defaults: thinking}, `{"model":"a","messages":[],"chat_template_kwargs":"x"}`},
		{"drop first", `{ "id_slot" : 3 , "model":"a","messages":[]}`, Edits{Drop: []string{"id_slot"}}, `{ "model":"a","messages":[]}`},
		{"drop middle", `{"model":"a", "id_slot":3, "messages":[]}`, Edits{Drop: []string{"id_slot"}}, `{"model":"a", "messages":[]}`},
		{"drop last", `{"model":"a","messages":[], "id_slot":3 }`, Edits{Drop: []string{"id_slot"}}, `{"model":"a","messages":[] }`},
		{"drop hidden by an escape", `{"model":"a","id\u005fslot":3,"messages":[]}`, Edits{Drop: []string{"id_slot"}}, `{"model":"a","messages":[]}`},
		{"drop all but set", `{"model":"a","messages":[]}`, Edits{Drop: []string{"model", "messages"}, Set: []Field{{"x", raw("1")}}}, `{"x":1}`},
		{"drop and default", `{"model":"a","messages":[],"k":{"x":1}}`, Edits{Drop: []string{"k"}, Defaults: []Field{{"k", raw(`{"y":2}`)}}}, `{"model":"a","messages":[],"k":{"y":2}}`},
		{"set wins over default and drop", `{"model":"a","messages":[],"k":1}`,
			Edits{Drop: []string{"k"}, Defaults: []Field{{"k", raw("2")}}, Set: []Field{{"k", raw("3")}, {"k", raw("4")}}}, `{"model":"a","messages":[],"k":4}`},
		{"empty raw is null", `{"model":"a","messages":[]}`, Edits{Set: []Field{{"k", nil}}}, `{"model":"a","messages":[],"k":null}`},
		{"usage added", `{"model":"a","messages":[]}`, Edits{IncludeUsage: true}, `{"model":"a","messages":[],"stream_options":{"include_usage":true}}`},
		{"usage for null", `{"model":"a","stream_options":null,"messages":[]}`, Edits{IncludeUsage: true}, `{"model":"a","stream_options":{"include_usage":true},"messages":[]}`},
		{"usage replaced", `{"model":"a","stream_options":{"x":1, "include_usage" : false, "y":2},"messages":[]}`, Edits{IncludeUsage: true},
			`{"model":"a","stream_options":{"x":1, "include_usage" : true, "y":2},"messages":[]}`},
		{"usage joins", `{"model":"a","stream_options":{"x":1},"messages":[]}`, Edits{IncludeUsage: true},
			`{"model":"a","stream_options":{"x":1,"include_usage":true},"messages":[]}`},
		{"usage over a set", `{"model":"a","stream_options":{"x":1},"messages":[]}`,
			Edits{IncludeUsage: true, Set: []Field{{"stream_options", raw(`{"z":1,"include_usage":false}`)}}},
			`{"model":"a","stream_options":{"z":1,"include_usage":true},"messages":[]}`},
		{"usage over a default, absent", `{"model":"a","messages":[]}`,
			Edits{IncludeUsage: true, Defaults: []Field{{"stream_options", raw(`{"z":1}`)}}},
			`{"model":"a","messages":[],"stream_options":{"z":1,"include_usage":true}}`},
		{"usage over a default, given", `{"model":"a","stream_options":{"x":1},"messages":[]}`,
			Edits{IncludeUsage: true, Defaults: []Field{{"stream_options", raw(`{"z":1,"include_usage":false}`)}}},
			`{"model":"a","stream_options":{"x":1,"z":1,"include_usage":true},"messages":[]}`},
		{"usage over a drop", `{"model":"a","stream_options":{"x":1},"messages":[]}`,
			Edits{IncludeUsage: true, Drop: []string{"stream_options"}},
			`{"model":"a","stream_options":{"include_usage":true},"messages":[]}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := mustHead(t, tt.in)
			got := h.Splice(tt.edits)
			if diff := cmp.Diff(tt.want, string(got)); diff != "" {
				t.Errorf("splice (-want +got):\n%s", diff)
			}
			if string(h.Body()) != tt.in {
				t.Errorf("splice changed the body to %s", h.Body())
			}
			decodeObject(t, got)
		})
	}
}

func FuzzSplice(f *testing.F) {
	for _, s := range []string{
		`{"model":"m","messages":[]}`,
		` { "id_slot":1 , "model" : "m", "messages":[], "stream_options":{"x":1} , "k":{"a":1,"a":2}, "stream":false } `,
		`{"k":{},"stream_options":null,"max_tokens":3,"model":"m","messages":[1],"id\u005fslot":5}`,
	} {
		f.Add([]byte(s), "qwen", []byte(`{"a":1,"b":[2]}`), "id_slot", true)
		f.Add([]byte(s), "", []byte(`7`), "k", false)
	}
	f.Fuzz(func(t *testing.T, body []byte, model string, value []byte, name string, usage bool) {
		h, err := ParseHead(ChatCompletions, body)
		if err != nil || !json.Valid(value) || tooDeep(value) || !utf8.ValidString(name) {
			return
		}
		e := Edits{Model: model, IncludeUsage: usage, Drop: []string{"id_slot", name},
			Defaults: []Field{{"k", value}}, Set: []Field{{"stream", json.RawMessage("true")}, {"z" + name, value}}}
		out := h.Splice(e)
		got, err2 := parseLax(out, nil)
		if err2 != nil || !json.Valid(out) {
			t.Fatalf("splice of %q is invalid: %q (%v)", body, out, err2)
		}
		touched := map[string]bool{"k": true, "stream": true, "z" + name: true, "id_slot": true, name: true}
		touched["model"] = touched["model"] || model != ""
		touched["stream_options"] = touched["stream_options"] || usage
		kept := 0
		for i := range h.object.members {
			m := &h.object.members[i]
			if touched[string(m.key)] {
				continue
			}
			kept++
			g := got.find(string(m.key))
			if g == nil || !bytes.Equal(got.data[g.at:g.end], body[m.at:m.end]) {
				t.Fatalf("member %q of %q did not survive in %q", m.key, body, out)
			}
		}
		for i := range got.members {
			for j := range i {
				if bytes.Equal(got.members[i].key, got.members[j].key) {
					t.Fatalf("member %q twice in %q", got.members[i].key, out)
				}
			}
			if !touched[string(got.members[i].key)] {
				kept--
			}
		}
		if kept != 0 {
			t.Fatalf("%d members lost or invented between %q and %q", kept, body, out)
		}
		if m := got.find("id_slot"); m != nil && "z"+name != "id_slot" && name != "id_slot" {
			t.Fatalf("id_slot survived in %q", out)
		}
	})
}
