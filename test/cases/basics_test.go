package cases

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"phonebank/test/fakephone"
	"phonebank/test/harness"
)

func (w *world) get(t *testing.T, method, path, key string) *answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, w.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	a := read(t, resp)
	if a == nil {
		t.FailNow()
	}
	return a
}

func TestModels(t *testing.T) {
	t.Parallel()
	w := start(t, harness.Options{}, quick())
	const model = `{"id":"` + harness.Model + `","object":"model","created":1767225600,"owned_by":"phonebank"}`
	for _, base := range []string{"/v1", ""} {
		if got := w.get(t, http.MethodGet, base+"/models", harness.Key); got.status != http.StatusOK || strings.TrimSpace(string(got.raw)) != `{"object":"list","data":[`+model+`]}` {
			t.Errorf("%s: got list %d %s", base, got.status, got.raw)
		}
		if got := w.get(t, http.MethodGet, base+"/models/"+harness.Model, harness.Key); got.status != http.StatusOK || strings.TrimSpace(string(got.raw)) != model {
			t.Errorf("%s: got model %d %s", base, got.status, got.raw)
		}
		if got := w.get(t, http.MethodGet, base+"/models/gpt-5", harness.Key); got.status != http.StatusNotFound || got.err.code() != "model_not_found" {
			t.Errorf("%s: got unknown model %d %s", base, got.status, got.raw)
		}
		if got := w.get(t, http.MethodGet, base+"/models", ""); got.status != http.StatusUnauthorized {
			t.Errorf("%s: got %d without a key, want 401", base, got.status)
		}
		c := call{path: base + "/chat/completions", body: chatBody("Hello.", 0, 5, false)}
		wantWhole(t, w.ask(t, c), c)
	}
	// A model without any phone for long is not offered.
	setFault(t, w.fleet.Phones[0], fakephone.Fault{Kind: fakephone.Refuse})
	w.waitState(t, w.fleet.Phones[0], "down")
	if got := w.get(t, http.MethodGet, "/v1/models", harness.Key); strings.TrimSpace(string(got.raw)) != `{"object":"list","data":[]}` {
		t.Errorf("got list %s of a fleet that is down", got.raw)
	}
}

// refusal is a request that gets no answer, and what it gets instead.
type refusal struct {
	name   string
	call   call
	status int
	kind   string // error type
	code   string
	param  string
	says   string // in the message
}

func refusals() []refusal {
	const invalid = "invalid_request_error"
	body := func(format string, args ...any) string {
		return fmt.Sprintf(`{"model":%q,`+format, append([]any{harness.Model}, args...)...)
	}
	user := func(content string) string { return body(`"messages":[{"role":"user","content":%s}]}`, content) }
	good := user(`"hi"`)
	header := func(name, value string) http.Header { return http.Header{name: {value}} }
	return []refusal{
		{"no key", call{body: good, key: "-"}, 401, invalid, "", "", "provide an API key"},
		{"unknown key", call{body: good, key: "pb-no-such-key-00000000000000"}, 401, invalid, "invalid_api_key", "", "Incorrect API key"},
		{"another scheme", call{body: good, key: "-", header: header("Authorization", "Basic dXNlcjpwYXNz")}, 401, invalid, "invalid_api_key", "", "Incorrect API key"},
		{"two keys", call{body: good, header: header("X-Api-Key", "pb-another-key-000000000000000")}, 401, invalid, "invalid_api_key", "", "Incorrect API key"},
		{"unknown model", call{body: strings.Replace(good, harness.Model, "gpt-5", 1)}, 404, invalid, "model_not_found", "model", "`gpt-5`"},
		{"no model", call{body: `{"messages":[]}`}, 400, invalid, "", "model", "model"},
		{"no messages", call{body: body(`"stream":true}`)}, 400, invalid, "", "messages", "messages"},
		{"no prompt", call{path: "/v1/completions", body: good}, 400, invalid, "", "prompt", "prompt"},
		{"empty body", call{body: ""}, 400, invalid, "", "", "empty"},
		{"not JSON", call{body: `{"model"`}, 400, invalid, "", "", "JSON"},
		{"bad UTF-8", call{body: user("\"\xff\"")}, 400, invalid, "", "messages", "JSON"},
		{"trailing words", call{body: good + "x"}, 400, invalid, "", "", "JSON"},
		{"stream as a string", call{body: body(`"messages":[],"stream":"true"}`)}, 400, invalid, "", "stream", "true or false"},
		{"no tokens at all", call{body: body(`"messages":[],"max_tokens":0}`)}, 400, invalid, "", "max_tokens", "at least 1"},
		{"image", call{body: user(`[{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}]`)}, 400, invalid, "", "messages", "text only"},
		{"audio", call{body: user(`[{"type":"input_audio","input_audio":{"data":"AAAA","format":"wav"}}]`)}, 400, invalid, "", "messages", "text only"},
		{"far too long for the context", call{body: user(`"` + strings.Repeat("word ", 40_000) + `"`)}, 400, invalid, "context_length_exceeded", "messages", "maximum context length is 16384 tokens"},
		{"too long for the phone", call{body: user(`"` + strings.Repeat("word ", 14_000) + `"`)}, 400, invalid, "context_length_exceeded", "messages", "maximum context length is 16384 tokens"},
		{"more choices than slots", call{body: body(`"messages":[{"role":"user","content":"hi"}],"n":9}`)}, 503, "service_unavailable_error", "server_is_overloaded", "", "slots"},
		{"words the engine refuses", call{body: body(`"messages":[{"role":"user"}]}`)}, 400, invalid, "", "", "content"},
		{"compressed", call{body: good, header: header("Content-Encoding", "gzip")}, 415, invalid, "unsupported_content_encoding", "", "uncompressed"},
		{"bad class", call{body: good, header: header("X-Phonebank-Class", "vip")}, 400, invalid, "", "", "x-phonebank-class"},
		{"bad timeout", call{body: good, header: header("X-Phonebank-Timeout", "soon")}, 400, invalid, "", "", "x-phonebank-timeout"},
		{"unknown URL", call{path: "/v1/nothing", body: good}, 404, invalid, "", "", "Invalid URL (POST /v1/nothing)"},
		{"unknown version", call{path: "/v2/chat/completions", body: good}, 404, invalid, "", "", "Invalid URL"},
		{"wrong method", call{path: "/v1/models", body: good}, 405, invalid, "method_not_supported", "", "Not allowed to POST on /v1/models"},
	}
}

// Every refusal is OpenAI's envelope with the status, type and code SDKs branch on, streamed or not, and no phone is asked for what the
// gateway can tell by itself.
func TestRefusals(t *testing.T) {
	t.Parallel()
	w := start(t, harness.Options{}, quick())
	for _, tt := range refusals() {
		for _, stream := range []bool{false, true} {
			c := tt.call
			if stream {
				if !strings.HasSuffix(c.body, "}") || strings.Contains(c.body, `"stream"`) {
					continue
				}
				c.body = strings.TrimSuffix(c.body, "}") + `,"stream":true}`
			}
			t.Run(fmt.Sprintf("%s/stream=%t", tt.name, stream), func(t *testing.T) {
				got := w.ask(t, c)
				param := ""
				if got.err == nil {
					t.Fatalf("got %d %.300s, want an error", got.status, got.raw)
				}
				if got.err.Param != nil {
					param = *got.err.Param
				}
				if got.status != tt.status || got.err.Type != tt.kind || got.err.code() != tt.code || param != tt.param {
					t.Errorf("got %d %s %q at %q, want %d %s %q at %q: %s",
						got.status, got.err.Type, got.err.code(), param, tt.status, tt.kind, tt.code, tt.param, got.err.Message)
				}
				if !strings.Contains(got.err.Message, tt.says) {
					t.Errorf("got message %q, want %q in it", got.err.Message, tt.says)
				}
				if got.header.Get("Content-Type") != "application/json" {
					t.Errorf("got content type %q", got.header.Get("Content-Type"))
				}
				var members map[string]map[string]any
				if err := json.Unmarshal(got.raw, &members); err != nil || len(members) != 1 || len(members["error"]) != 4 {
					t.Errorf("got %s, want an error with its four members", got.raw)
				}
				if tt.status < 404 && !strings.HasPrefix(got.header.Get("x-request-id"), "req_") {
					t.Errorf("got request id %q", got.header.Get("x-request-id"))
				}
			})
		}
	}
	if n := w.fleet.Phones[0].Stats().Requests; n > 4 { // too long for the phone, and words the engine refuses: streamed and not
		t.Errorf("the phone was asked %d times", n)
	}
	for _, word := range []string{"word word", "AAAA", "no-such-key"} {
		for _, l := range w.lines() {
			if strings.Contains(l.Error, word) {
				t.Errorf("the log repeats what was sent: %q", l.Error)
			}
		}
	}
}

func TestBodiesBeyondTheLimit(t *testing.T) {
	t.Parallel()
	w := start(t, harness.Options{Extra: "limits: {body_bytes: 1MiB}\n"}, quick())
	large := []byte(chatBody("Large.", 400_000, 4, false))
	for _, announced := range []bool{true, false} {
		t.Run(fmt.Sprintf("announced=%t", announced), func(t *testing.T) {
			var body io.Reader = bytes.NewReader(large)
			if !announced {
				body = io.MultiReader(body) // of which net/http does not know the length
			}
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.URL+chatPath, body)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", "Bearer "+harness.Key)
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			got := read(t, resp)
			if got == nil || got.status != http.StatusRequestEntityTooLarge || got.err.code() != "request_too_large" {
				t.Errorf("got %+v, want 413 request_too_large", got)
			}
		})
	}
}

// limitedKey is a key with all three limits.
const limitedKey = "pb-test-key-with-limits-00000001"

// The headers tell exactly what is left, on answers of every kind, and a refusal when to come back.
func TestLimitHeaders(t *testing.T) {
	t.Parallel()
	w := start(t, harness.Options{Keys: "    - {id: limited, key: " + limitedKey + ", class: chat, limits: {requests_per_minute: 3, tokens_per_minute: 600}}"}, quick())
	ask := func(stream bool, limit int) *answer {
		t.Helper()
		return w.ask(t, call{key: limitedKey, body: strings.TrimSuffix(chatBody("Count.", 0, 90, stream), "}") + fmt.Sprintf(`,"max_tokens":%d}`, limit)})
	}
	check := func(a *answer, status int, requests, tokens string) {
		t.Helper()
		if a.status != status {
			t.Fatalf("got %d %s, want %d", a.status, a.raw, status)
		}
		for name, want := range map[string]string{
			"x-ratelimit-limit-requests": "3", "x-ratelimit-limit-tokens": "600",
			"x-ratelimit-remaining-requests": requests, "x-ratelimit-remaining-tokens": tokens,
		} {
			if got := a.header.Get(name); want != "" && got != want {
				t.Errorf("got %s: %s, want %s", name, got, want)
			}
		}
		for _, name := range []string{"x-ratelimit-reset-requests", "x-ratelimit-reset-tokens"} {
			if d, err := time.ParseDuration(a.header.Get(name)); err != nil || d < 0 || d > 61*time.Second {
				t.Errorf("got %s: %q", name, a.header.Get(name))
			}
		}
	}
	reserved := func(bodyLimit int) string { // about a quarter of the messages' bytes, and the answer's bound
		head := len(`[{"content":"Count. LENGTH=90","role":"user"}]`)/4 + 1
		return fmt.Sprint(600 - head - bodyLimit)
	}
	check(ask(true, 100), http.StatusOK, "2", reserved(100))
	check(ask(false, 50), http.StatusOK, "1", "")

	more := ask(false, 580)
	check(more, http.StatusTooManyRequests, "1", "")
	if more.err.Type != "tokens" || more.err.code() != "rate_limit_exceeded" {
		t.Errorf("got %s", more.raw)
	}
	wantRetryAfter(t, more, time.Minute)

	check(ask(false, 10), http.StatusOK, "0", "")
	refused := ask(true, 10)
	check(refused, http.StatusTooManyRequests, "0", "")
	if refused.err.Type != "requests" || refused.err.code() != "rate_limit_exceeded" {
		t.Errorf("got %s", refused.raw)
	}
	wantRetryAfter(t, refused, 20*time.Second)

	never := ask(false, 601)
	check(never, http.StatusTooManyRequests, "", "")
	if never.header.Get("x-should-retry") != "false" || never.header.Get("Retry-After") != "" {
		t.Errorf("got headers %v for a request that can never be admitted", never.header)
	}
}

func wantRetryAfter(t *testing.T, a *answer, most time.Duration) {
	t.Helper()
	seconds, err := time.ParseDuration(a.header.Get("Retry-After") + "s")
	if err != nil || seconds <= 0 || seconds > most {
		t.Errorf("got Retry-After %q, want 1 s to %v", a.header.Get("Retry-After"), most)
	}
	millis, err := time.ParseDuration(a.header.Get("Retry-After-Ms") + "ms")
	if err != nil || millis > seconds || seconds-millis > time.Second {
		t.Errorf("got Retry-After-Ms %q beside %v", a.header.Get("Retry-After-Ms"), seconds)
	}
}

// A key without limits gets no headers about them, since "unlimited" has no spelling.
func TestNoLimitsNoHeaders(t *testing.T) {
	t.Parallel()
	w := start(t, harness.Options{}, quick())
	c := call{body: chatBody("Free.", 0, 5, true)}
	got := w.ask(t, c)
	wantWhole(t, got, c)
	for name := range got.header {
		if strings.HasPrefix(name, "X-Ratelimit") {
			t.Errorf("got %s", name)
		}
	}
	for _, name := range []string{"x-request-id", "openai-processing-ms", "x-phonebank-replica", "x-phonebank-attempts", "x-phonebank-queue-ms"} {
		if got.header.Get(name) == "" {
			t.Errorf("%s is missing from a stream's headers", name)
		}
	}
}

func TestConcurrencyLimit(t *testing.T) {
	t.Parallel()
	w := start(t, harness.Options{Keys: oneKeyYAML}, slow())
	resp := w.open(t, t.Context(), call{key: oneKey, body: chatBody("Long.", 0, 60, true)})
	defer resp.Body.Close()
	refused := w.ask(t, call{key: oneKey, body: chatBody("Second.", 0, 4, false)})
	if refused.status != http.StatusTooManyRequests || refused.err.Type != "requests" || refused.header.Get("Retry-After") != "1" {
		t.Errorf("got %d %s, Retry-After %q", refused.status, refused.raw, refused.header.Get("Retry-After"))
	}
	if got := read(t, resp); got == nil || !got.done {
		t.Error("the first request was not answered")
	}
	// The slot and the key are free before the end of the answer can be read.
	if got := w.ask(t, call{key: oneKey, body: chatBody("Third.", 0, 4, false)}); got.status != http.StatusOK {
		t.Errorf("got %d %s right after the first answer", got.status, got.raw)
	}
}

// An answer that the gateway has assembled is the one the engine gives to those who do not stream.
func TestUnstreamedAnswerIsTheEnginesOwn(t *testing.T) {
	t.Parallel()
	w := start(t, harness.Options{}, fakephone.Profile{Name: "two", Slots: 2, PrefillShortTPS: 1000, DecodeTPS: 100})
	phone := w.fleet.Phones[0]
	tests := []struct{ name, path, body string }{
		{"chat", chatPath, chatBody("Compare.", 20, 10, false)},
		{"chat, cut short", chatPath, strings.TrimSuffix(chatBody("Compare.", 20, 10, false), "}") + `,"max_tokens":4}`},
		{"chat, two choices", chatPath, strings.TrimSuffix(chatBody("Compare.", 20, 10, false), "}") + `,"n":2}`},
		{"completion", "/v1/completions", fmt.Sprintf(`{"model":%q,"prompt":"Once upon a time LENGTH=8"}`, harness.Model)},
		{"two prompts", "/v1/completions", fmt.Sprintf(`{"model":%q,"prompt":["Once LENGTH=6","Twice LENGTH=7"]}`, harness.Model)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := w.ask(t, call{path: tt.path, body: tt.body})
			if got.status != http.StatusOK {
				t.Fatalf("got %d %s", got.status, got.raw)
			}
			own := direct(t, phone, tt.path, tt.body)
			own["model"] = harness.Model
			sum := decode(t, got.raw)
			if strings.Contains(tt.name, "two") { // the engine counts one choice only
				sum["usage"], own["usage"] = nil, nil
			}
			for _, name := range []string{"id", "created", "timings"} {
				if _, ok := sum[name]; !ok && name != "timings" {
					t.Errorf("%s is missing", name)
				}
				delete(sum, name)
				delete(own, name)
			}
			if diff := cmp.Diff(own, sum); diff != "" {
				t.Errorf("answer (-engine's +gateway's):\n%s", diff)
			}
		})
	}
}

// direct asks a phone itself.
func direct(t *testing.T, phone *fakephone.Phone, path, body string) map[string]any {
	t.Helper()
	rec := &recorder{header: make(http.Header)}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+harness.PhoneKey)
	phone.Handler().ServeHTTP(rec, req)
	return decode(t, rec.body.Bytes())
}

type recorder struct {
	header http.Header
	body   bytes.Buffer
}

func (r *recorder) Header() http.Header         { return r.header }
func (r *recorder) WriteHeader(int)             {}
func (r *recorder) Write(p []byte) (int, error) { return r.body.Write(p) }

func decode(t *testing.T, raw []byte) map[string]any {
	t.Helper()
	var v map[string]any
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatalf("%v: %.300s", err, raw)
	}
	return v
}

// What the caller sent reaches the phone byte for byte, but for the closed list of edits.
func TestRequestReachesThePhoneAsSent(t *testing.T) {
	t.Parallel()
	w := start(t, harness.Options{}, quick())
	const edits = `,"return_progress":true,"sse_ping_interval":5,"stream_options":{"include_usage":true}`
	tests := []struct{ name, sent, want string }{
		{
			"unknown fields, spaces, order and numbers stay",
			`{ "seed" : 12345678901234567890, "model" : "` + harness.Model + `","min_p":1.00e-2 ,"messages":[ {"role":"user","content":"caf\u00e9 \ud83d\ude42 é🙂"} ],"x":{"b":1,"a":[ ]},"max_tokens":8,"stream":true}`,
			`{ "seed" : 12345678901234567890, "model" : "qwen","min_p":1.00e-2 ,"messages":[ {"role":"user","content":"caf\u00e9 \ud83d\ude42 é🙂"} ],"x":{"b":1,"a":[ ]},"max_tokens":8,"stream":true` + edits + `}`,
		},
		{
			"a bound is set where there is none, and the slot is not the caller's",
			`{"model":"` + harness.Model + `","id_slot":0,"messages":[{"role":"user","content":"LENGTH=4"}]}`,
			`{"model":"qwen","messages":[{"role":"user","content":"LENGTH=4"}],"max_tokens":256,"stream":true` + edits + `}`,
		},
		{
			"switches of the stream are the gateway's",
			`{"model":"` + harness.Model + `","stream":false,"stream_options":{"x":1},"return_progress":false,"messages":[{"role":"user","content":"LENGTH=4"}],"max_completion_tokens":9}`,
			`{"model":"qwen","stream":true,"stream_options":{"x":1,"include_usage":true},"return_progress":true,"messages":[{"role":"user","content":"LENGTH=4"}],"max_completion_tokens":9,"sse_ping_interval":5}`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := w.ask(t, call{body: tt.sent}); got.status != http.StatusOK {
				t.Fatalf("got %d %s", got.status, got.raw)
			}
			if diff := cmp.Diff(tt.want, string(w.fleet.Phones[0].Stats().LastBody)); diff != "" {
				t.Errorf("body at the phone (-want +got):\n%s", diff)
			}
		})
	}
}

// The caller's own deadline ends a request wherever it is, and is told apart from our failures.
func TestDeadlineOfTheCaller(t *testing.T) {
	t.Parallel()
	w := start(t, harness.Options{}, slow())
	for _, stream := range []bool{false, true} {
		got := w.ask(t, call{body: chatBody("Slowly.", 8000, 200, stream), header: http.Header{"X-Phonebank-Timeout": {"300ms"}}})
		if got.status != http.StatusGatewayTimeout || got.err.code() != "deadline_exceeded" {
			t.Errorf("got %d %s, want 504 deadline_exceeded", got.status, got.raw)
		}
		record := w.record(t, got.header.Get("x-request-id"))
		if record.Outcome != "timeout" || record.FailedAttempts != "cancelled" {
			t.Errorf("got %+v", record)
		}
		w.waitIdle(t, patient)
	}
	if r := w.replica(t, w.fleet.Phones[0].Config().ID); r.State != "ready" {
		t.Errorf("the phone is %s (%s) for its callers' impatience", r.State, r.Reason)
	}
}
