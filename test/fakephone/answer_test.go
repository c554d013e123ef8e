package fakephone

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
)

const completions = "/v1/completions"

// quote is text as a JSON string.
func quote(text string) string {
	b, _ := json.Marshal(text)
	return string(b)
}

func user(text, more string) string {
	return `{"messages":[{"role":"user","content":` + quote(text) + `}` + more + `]`
}

func TestPromptHash(t *testing.T) {
	t.Parallel()
	base := PromptHash(chat, []byte(user("Say hi", "")+"}"))
	if !regexp.MustCompile(`^[0-9a-f]{12}$`).MatchString(base) {
		t.Fatalf("hash %q, want 12 hexadecimal digits", base)
	}
	tests := []struct {
		name, endpoint, body string
		same                 bool
	}{
		{"other fields and spaces", chat, `{ "stream" : true, "messages": [ {"content":"Say hi", "role":"user"} ], "max_tokens":7}`, true},
		{"escaped text", chat, `{"messages":[{"role":"user","content":"S\u0061y hi"}]}`, true},
		{"text in parts", chat, `{"messages":[{"role":"user","content":[{"type":"text","text":"Say "},{"type":"text","text":"hi"}]}]}`, true},
		{"trailing assistant message", chat, user("Say hi", `,{"role":"assistant","content":"[ab"}`) + "}", true},
		{"other text", chat, user("Say ho", "") + "}", false},
		{"other role", chat, `{"messages":[{"role":"system","content":"Say hi"}]}`, false},
		{"earlier assistant message", chat, `{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"},{"role":"user","content":"Say hi"}]}`, false},
		{"tool call", chat, `{"messages":[{"role":"user","content":"Say hi","tool_calls":[{"id":"1"}]}]}`, false},
	}
	for _, tt := range tests {
		if got := PromptHash(tt.endpoint, []byte(tt.body)); (got == base) != tt.same || got == "" {
			t.Errorf("%s: hash %q, base %q, want same %t", tt.name, got, base, tt.same)
		}
	}
	for _, bad := range []string{``, `[]`, `{`, `{"messages":"x"}`, `{"model":"m"}`} {
		if got := PromptHash(chat, []byte(bad)); got != "" {
			t.Errorf("hash of %q is %q, want none", bad, got)
		}
	}
}

func TestAnswerNamesItsPrompt(t *testing.T) {
	t.Parallel()
	review := []byte(user("Review this. Answer RISK_LEVEL: <1-5>", "") + "}")
	if got, want := Answer(chat, review), "^RISK_LEVEL: [1-5] \\["+PromptHash(chat, review)+"\\]$"; !regexp.MustCompile(want).MatchString(got) {
		t.Errorf("review: %q, want %s", got, want)
	}
	for i := range 200 {
		body := []byte(user(fmt.Sprint("question ", i), "") + "}")
		got := Answer(chat, body)
		if !strings.HasPrefix(got, "["+PromptHash(chat, body)+"] ") {
			t.Fatalf("answer %q does not name its prompt", got)
		}
		if n := len(chatPromptOf(body).pieces(0)); n < minAnswerTokens || n > maxAnswerTokens {
			t.Errorf("answer of %d tokens, want 8 to 40", n)
		}
	}
	for length, want := range map[string]int{"LENGTH=200": 200, "LENGTH=5 LENGTH=77": 77, "LENGTH=1": 4, "RISK_LEVEL LENGTH=50": 50, "LENGTH=99999999999999999999": maxLength} {
		if got := len(chatPromptOf([]byte(user(length, "") + "}")).pieces(0)); got != want {
			t.Errorf("%s: %d tokens, want %d", length, got, want)
		}
	}
	if got := Answers(chat, []byte(user("x", "")+`,"n":3}`)); len(got) != 3 || got[0] == got[1] || got[0] != Answer(chat, []byte(user("x", "")+"}")) {
		t.Errorf("three choices: %q", got)
	}
}

func chatPromptOf(body []byte) prompt { return promptsOf(chat, body)[0] }

// TestContinuation cuts an answer after every byte and lets a phone go on from there, as a gateway does on another phone.
func TestContinuation(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, c := inMemory(t, Config{Profile: quick(), Speed: 1000})
		for _, text := range []string{"tell me something", "what RISK_LEVEL?"} {
			plain := user(text, "")
			want := Answer(chat, []byte(plain+"}"))
			for cut := range len(want) + 1 {
				trailing := user(text, `,{"role":"assistant","content":`+quote(want[:cut])+`}`)
				if got := Answer(chat, []byte(trailing+"}")); got != want {
					t.Fatalf("Answer of a continued prompt = %q, want %q", got, want)
				}
				cont := `,"continue_final_message":true,"add_generation_prompt":false`
				checkText(t, c, chat, trailing+cont+`,"stream":true}`, want[cut:])
				checkText(t, c, chat, trailing+`,"stream":true}`, want) // the prefix is repeated
				var whole chatAnswer
				_, b := c.whole(t, chat, trailing+cont+"}")
				if err := json.Unmarshal(b, &whole); err != nil || whole.Choices[0].Message.Content != want || whole.Choices[0].FinishReason != "stop" {
					t.Errorf("not streamed, cut at %d: %s, want %q", cut, b, want)
				}
			}
			ask := func(prompt string) string { return `{"stream":true,"prompt":` + quote(prompt) + "}" }
			wantText := Answer(completions, []byte(ask(text)))
			for cut := 5; cut <= len(wantText); cut++ {
				checkText(t, c, completions, ask(text+wantText[:cut]), wantText[cut:])
			}
		}
	})
}

func checkText(t *testing.T, c client, path, body, want string) {
	t.Helper()
	events, err := c.stream(t, path, body)
	if err != nil {
		t.Fatal(err)
	}
	if got := texts(events); got != want || !done(events) || finishReason(events) != "stop" {
		t.Errorf("%s: got %q, done %t, finish %q, want %q", body, got, done(events), finishReason(events), want)
	}
}

func TestPrefixOfNoAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, c := inMemory(t, Config{Profile: quick()})
		body := user("x", `,{"role":"assistant","content":"The answer is "}`) + `,"stream":true}`
		checkText(t, c, chat, body, "The answer is "+Answer(chat, []byte(body)))
	})
}

func TestTokenLimits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, c := inMemory(t, Config{Profile: quick(), Context: 128, Slots: 2})
		tests := []struct {
			name, fields, reason string
			tokens               int
		}{
			{"natural end, the end token counts", ``, "stop", 31},
			{"max_tokens", `,"max_tokens":12`, "length", 12},
			{"exactly the words", `,"max_tokens":30`, "length", 30},
			{"max_completion_tokens wins", `,"max_tokens":12,"max_completion_tokens":9`, "length", 9},
			{"unlimited", `,"max_tokens":-1`, "stop", 31},
			{"null", `,"max_tokens":null`, "stop", 31},
			{"two choices count as one", `,"max_tokens":5,"n":2`, "length", 5},
		}
		for _, tt := range tests {
			_, b := c.whole(t, chat, user("LENGTH=30", "")+tt.fields+"}")
			var a chatAnswer
			if err := json.Unmarshal(b, &a); err != nil {
				t.Fatal(err)
			}
			if got := a.Choices[0].FinishReason; got != tt.reason || a.Usage.CompletionTokens != tt.tokens {
				t.Errorf("%s: %s after %d, want %s after %d", tt.name, got, a.Usage.CompletionTokens, tt.reason, tt.tokens)
			}
		}
		_, b := c.whole(t, chat, user("LENGTH=500", "")+"}")
		var a chatAnswer
		if err := json.Unmarshal(b, &a); err != nil {
			t.Fatal(err)
		}
		if a.Usage.TotalTokens != 128 || a.Choices[0].FinishReason != "length" {
			t.Errorf("context full: %d tokens, %s; want 128, length", a.Usage.TotalTokens, a.Choices[0].FinishReason)
		}
	})
}

func TestProfiles(t *testing.T) {
	t.Parallel()
	all := Profiles()
	if len(all) != 10 {
		t.Fatalf("%d profiles, want 10", len(all))
	}
	for _, p := range all {
		if p.Slots < 1 || p.PrefillShortTPS <= 0 || p.DecodeTPS <= 0 || p.Model == "" || p.RTTMS <= 0 || p.MTBOS <= 0 {
			t.Errorf("%s: incomplete: %+v", p.Name, p)
		}
		if got, ok := ProfileByName(p.Name); !ok || got != p {
			t.Errorf("ProfileByName(%q) = %+v, %t", p.Name, got, ok)
		}
	}
	if _, ok := ProfileByName("none"); ok {
		t.Error("ProfileByName found a profile that is not there")
	}
}

func TestConfigValidate(t *testing.T) {
	t.Parallel()
	for _, c := range []Config{{Speed: -1}, {Slots: -1}, {Slots: 5000}, {Context: -1}, {Batch: -1}, {Load: -1}, {CertPEM: []byte("x")}, {Profile: Profile{Name: "empty"}}} {
		if _, err := New(c); err == nil {
			t.Errorf("New(%+v): no error", c)
		}
	}
	p, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	if c := p.Config(); c.Slots != 1 || c.Context != 8192 || c.Batch != 512 || c.Speed != 1 || c.Model != "qwen3.5-9b" || c.Build != "b10587-3f545becc" {
		t.Errorf("defaults = %+v", c)
	}
}
