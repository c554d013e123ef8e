package cases

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"phonebank/test/fakephone"
	"phonebank/test/harness"
)

// scripted is a phone whose answers are written down: what a fake phone, which behaves like a real engine, cannot say.
type scripted struct {
	*httptest.Server

	mu      sync.Mutex                  // guards answers
	answers map[string]http.HandlerFunc // by the first word of the prompt
}

// scriptedID is the scripted phone's name.
const scriptedID = "scripted"

// on says how to answer prompts that begin with the word topic.
func (s *scripted) on(topic string, answer http.HandlerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers[topic] = answer
}

func (s *scripted) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"status":"ok","model_alias":"qwen"}`)
		return
	}
	body, _ := io.ReadAll(r.Body)
	var req struct {
		Messages []struct {
			Content string `json:"content"`
		} `json:"messages"`
	}
	if json.Unmarshal(body, &req) != nil || len(req.Messages) == 0 {
		http.Error(w, "no prompt", http.StatusTeapot)
		return
	}
	topic, _, _ := strings.Cut(req.Messages[0].Content, " ")
	s.mu.Lock()
	answer := s.answers[topic]
	s.mu.Unlock()
	if answer == nil {
		http.Error(w, "no such topic", http.StatusTeapot)
		return
	}
	answer(w, r)
}

// scriptedWorld is a gateway with one scripted phone, which is always preferred, and perhaps ordinary ones. yaml is added to its line.
func scriptedWorld(t *testing.T, o harness.Options, yaml string, profiles ...fakephone.Profile) (*world, *scripted) {
	t.Helper()
	s := &scripted{answers: make(map[string]http.HandlerFunc)}
	s.Server = httptest.NewUnstartedServer(s)
	s.EnableHTTP2 = true // the gateway must not take the offer
	s.StartTLS()
	t.Cleanup(s.Close)
	ca := filepath.Join(t.TempDir(), "scripted.crt")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	if err := os.WriteFile(ca, text, 0o600); err != nil {
		t.Fatal(err)
	}
	fleet := harness.StartFleet(t, len(profiles), speed, func(i int, c *fakephone.Config) { c.Profile = profiles[i] })
	o.Extra = fmt.Sprintf("  - {id: %s, url: %q, model: %s, engine: llama.cpp, slots: 32, key: scripted-key, tls: {ca: %q}, prior: {prefill_tps: 1e6, decode_tps: 1e5}%s}\n%s",
		scriptedID, s.URL, harness.Model, ca, yaml, o.Extra)
	w := &world{Gateway: harness.StartGateway(t, fleet.Config(o)), fleet: fleet}
	w.waitReady(t, scriptedID)
	for _, p := range fleet.Phones {
		w.waitState(t, p, "ready")
	}
	return w, s
}

// topic is a request for a topic of a scripted phone, with further fields.
func topic(name string, stream bool, fields ...string) call {
	var more strings.Builder
	for _, f := range fields {
		more.WriteString("," + f)
	}
	return call{body: fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":%q}],"stream":%t%s}`, harness.Model, name, stream, more.String())}
}

// Fields of a topic's request.
const wantUsage = `"stream_options":{"include_usage":true}`

// Events of a scripted phone, in llama-server's form.
const (
	roleEvent   = `data: {"choices":[{"finish_reason":null,"index":0,"delta":{"role":"assistant","content":null}}],"id":"chatcmpl-1","object":"chat.completion.chunk"}` + "\n\n"
	finishEvent = `data: {"choices":[{"finish_reason":"stop","index":0,"delta":{}}],"id":"chatcmpl-1","object":"chat.completion.chunk"}` + "\n\n"
	usageEvent  = `data: {"choices":[],"id":"chatcmpl-1","object":"chat.completion.chunk","usage":{"completion_tokens":5,"prompt_tokens":7,"total_tokens":12}}` + "\n\n"
	doneEvent   = "data: [DONE]\n\n"
)

// says is an event with content.
func says(text string) string {
	return fmt.Sprintf(`data: {"choices":[{"finish_reason":null,"index":0,"delta":{"content":"%s"}}],"id":"chatcmpl-1","object":"chat.completion.chunk"}`+"\n\n", text)
}

// writes answers with a stream, each part in a write of its own.
func writes(parts ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, p := range parts {
			_, _ = io.WriteString(w, p)
			_ = http.NewResponseController(w).Flush()
		}
	}
}

// bytewise answers with a stream of one byte in each write.
func bytewise(text string) http.HandlerFunc {
	parts := make([]string, len(text))
	for i := range parts {
		parts[i] = text[i : i+1]
	}
	return writes(parts...)
}
