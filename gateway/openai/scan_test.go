package openai

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestParseStrictValid(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, in string }{
		{"empty object", `{}`},
		{"space everywhere", " \r\n\t{ \"a\" : [ 1 , { } ] , \"b\" : null } \n"},
		{"numbers", `{"a":-0,"b":0.5,"c":1e9,"d":-1.25E-3,"e":123456789012345678901234567890}`},
		{"escapes", `{"a":"\"\\\/\b\f\n\r\t\u00e9\u0000"}`},
		{"surrogate pair", `{"a":"\ud83d\uDE00"}`},
		{"raw utf-8", `{"a":"héllo 世界 😀"}`},
		{"same key in different objects", `{"a":{"a":1},"b":{"a":2}}`},
		{"nested duplicates", `{"a":{"b":1,"b":2}}`},
		{"deepest", `{"a":` + strings.Repeat("[", maxDepth-1) + strings.Repeat("]", maxDepth-1) + `}`},
		{"long string with a late escape", `{"a":"` + strings.Repeat("x", 100) + `\n` + strings.Repeat("y", 7) + `"}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if _, err := parseStrict([]byte(tt.in)); err != nil {
				t.Errorf("parseStrict(%q) = %v, want no error", tt.in, err)
			}
		})
	}
}

func TestParseStrictInvalid(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, in string
		offset   int
		param    string
	}{
		{"empty", ``, 0, ""},
		{"array", `[1]`, 0, ""},
		{"string", `"x"`, 0, ""},
		{"word", `hello`, 0, ""},
		{"cut object", `{"a":1`, 6, ""},
		{"cut value", `{"a":`, 5, "a"},
		{"cut string", `{"a":"xyz`, 9, "a"},
		{"cut escape", `{"a":"xyz\`, 10, "a"},
		{"trailing comma", `{"a":1,}`, 7, ""},
		{"no comma", `{"a":1 "b":2}`, 7, ""},
		{"no colon", `{"a" 1}`, 5, ""},
		{"bare key", `{a:1}`, 1, ""},
		{"single quotes", `{'a':1}`, 1, ""},
		{"trailing data", `{"a":1} x`, 8, ""},
		{"two objects", `{}{}`, 2, ""},
		{"leading zero", `{"a":01}`, 6, ""},
		{"plus", `{"a":+1}`, 5, "a"},
		{"lone minus", `{"a":-}`, 6, "a"},
		{"no digits after point", `{"a":1.}`, 7, "a"},
		{"no digits in exponent", `{"a":1e+}`, 8, "a"},
		{"NaN", `{"a":NaN}`, 5, "a"},
		{"True", `{"a":True}`, 5, "a"},
		{"tru", `{"a":tru}`, 5, "a"},
		{"control character", "{\"a\":\"x\ny\"}", 7, "a"},
		{"NUL in a string", "{\"a\":\"x\x00y\"}", 7, "a"},
		{"NUL outside", "{\"a\":\x00}", 5, "a"},
		{"NUL behind", "{}\x00", 2, ""},
		{"bad escape", `{"a":"\x"}`, 6, "a"},
		{"bad hex", `{"a":"\u12g4"}`, 6, "a"},
		{"lone high surrogate", `{"a":"\ud83d"}`, 6, "a"},
		{"lone low surrogate", `{"a":"\ude00"}`, 6, "a"},
		{"high high", `{"a":"\ud83d\ud83d"}`, 6, "a"},
		{"bad utf-8", "{\"a\":\"xyz\xff\"}", 9, "a"},
		{"overlong utf-8", "{\"a\":\"\xc0\xaf\"}", 6, "a"},
		{"surrogate as utf-8", "{\"a\":\"\xed\xa0\x80\"}", 6, "a"},
		{"bad utf-8 in a key", "{\"\xff\":1}", 2, ""},
		{"duplicate", `{"a":1,"b":2,"a":3}`, 13, "a"},
		{"duplicate by escape", `{"model":1,"mod\u0065l":3}`, 11, "model"},
		{"too deep", `{"a":` + strings.Repeat("[", maxDepth) + strings.Repeat("]", maxDepth) + `}`, 5 + maxDepth - 1, "a"},
		{"byte order mark", "\xef\xbb\xbf{}", 0, ""},
		{"comment", `{/**/}`, 1, ""},
		{"inside messages", `{"model":"m","messages":[{"role":}]}`, 33, "messages"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := parseStrict([]byte(tt.in))
			if err == nil {
				t.Fatalf("parseStrict(%q) = no error", tt.in)
			}
			if err.Offset != tt.offset || err.Param != tt.param {
				t.Errorf("parseStrict(%q) = offset %d param %q (%s), want %d %q", tt.in, err.Offset, err.Param, err.Reason, tt.offset, tt.param)
			}
		})
	}
}

func TestParseStrictManyMembers(t *testing.T) {
	t.Parallel()
	build := func(n int, last string) []byte {
		b := []byte("{")
		for i := range n {
			b = append(b, `"k`...)
			b = append(b, strings.Repeat("x", i)...)
			b = append(b, `":1,`...)
		}
		return append(append(b, last...), '}')
	}
	if _, err := parseStrict(build(100, `"a":1`)); err != nil {
		t.Errorf("100 members: %v", err)
	}
	if _, err := parseStrict(build(100, `"kxxx":1`)); err == nil {
		t.Error("a duplicate among 100 members was accepted")
	}
	if _, err := parseStrict(build(100, `"`+"k"+strings.Repeat("x", 99)+`":1`)); err == nil {
		t.Error("a duplicate of the last of 100 members was accepted")
	}
	if _, err := parseStrict(build(maxMembers, `"a":1`)); err == nil {
		t.Errorf("%d members were accepted", maxMembers+1)
	}
}

func TestParseLaxAcceptsBrokenText(t *testing.T) {
	t.Parallel()
	for _, in := range []string{"{\"a\":\"\xff\"}", `{"a":"\ud83d"}`, `{"a":1,"a":2}`} {
		o, err := parseLax([]byte(in), nil)
		if err != nil {
			t.Errorf("parseLax(%q) = %v", in, err)
		}
		if len(o.members) == 0 {
			t.Errorf("parseLax(%q) found no members", in)
		}
	}
}

func TestUnquote(t *testing.T) {
	t.Parallel()
	tests := []struct{ in, want string }{
		{`""`, ""},
		{`"abc"`, "abc"},
		{`"a\"b\\c\/d"`, `a"b\c/d`},
		{`"\b\f\n\r\t"`, "\b\f\n\r\t"},
		{`"\u00e9\u4E16x"`, "é世x"},
		{`"\ud83d\ude00!"`, "😀!"},
		{`"\ud83d!"`, "\uFFFD!"},
		{`"\ud83d\n"`, "\uFFFD\n"},
	}
	for _, tt := range tests {
		if got := string(unquote([]byte(tt.in))); got != tt.want {
			t.Errorf("unquote(%s) = %q, want %q", tt.in, got, tt.want)
		}
		if got := unquotedLen([]byte(tt.in)); got != len(tt.want) {
			t.Errorf("unquotedLen(%s) = %d, want %d", tt.in, got, len(tt.want))
		}
	}
}

func FuzzScan(f *testing.F) {
	for _, s := range []string{`{"a":[1,-2.5e3,"x\u00e9",{"b":null}],"c":true}`, `{"a":"\ud83d\ude00"}`, "{\"a\":\"\xff\"}", `{"a":"0123456789\n"}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		o, err := parseStrict(data)
		lax, laxErr := parseLax(data, nil)
		if err == nil && laxErr != nil {
			t.Fatalf("strict accepts what lax refuses: %v", laxErr)
		}
		if laxErr == nil != json.Valid(data) && !tooDeep(data) && bytes.HasPrefix(bytes.TrimSpace(data), []byte("{")) {
			t.Fatalf("lax: %v, json.Valid: %t", laxErr, json.Valid(data))
		}
		if err != nil {
			if err.Offset < 0 || err.Offset > len(data) {
				t.Fatalf("offset %d of %d bytes", err.Offset, len(data))
			}
			return
		}
		if !json.Valid(data) || !utf8.Valid(data) {
			t.Fatal("strict accepts invalid JSON or UTF-8")
		}
		if len(o.members) != len(lax.members) {
			t.Fatalf("strict found %d members, lax %d", len(o.members), len(lax.members))
		}
		var want map[string]json.RawMessage
		if err := json.Unmarshal(data, &want); err != nil {
			t.Fatal(err)
		}
		for i := range o.members {
			m := &o.members[i]
			if got := o.raw(m); !bytes.Equal(got, want[string(m.key)]) {
				t.Fatalf("member %q = %q, want %q", m.key, got, want[string(m.key)])
			}
			var s string
			if m.kind == kindString && (json.Unmarshal(o.raw(m), &s) != nil || s != string(unquote(o.raw(m)))) {
				t.Fatalf("unquote(%q) = %q, want %q", o.raw(m), unquote(o.raw(m)), s)
			}
			if m.kind == kindString && unquotedLen(o.raw(m)) != len(s) {
				t.Fatalf("unquotedLen(%q) = %d, want %d", o.raw(m), unquotedLen(o.raw(m)), len(s))
			}
		}
	})
}

// tooDeep is a generous guess: nesting is the one thing json.Valid allows more of.
func tooDeep(data []byte) bool {
	return bytes.Count(data, []byte("["))+bytes.Count(data, []byte("{")) > maxDepth
}
