package relay

import (
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"phonebank/gateway/openai"
)

// caller is the caller's side: it keeps what was written, and what of it has been flushed.
type caller struct {
	header http.Header

	mu      sync.Mutex // guards all below
	status  int
	written strings.Builder
	flushed int // bytes of written
	gone    bool
}

func newCaller() *caller { return &caller{header: make(http.Header)} }

var errBrokenPipe = errors.New("broken pipe")

func (c *caller) Header() http.Header { return c.header }

func (c *caller) WriteHeader(status int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.status == 0 {
		c.status = status
	}
}

func (c *caller) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone {
		return 0, errBrokenPipe
	}
	return c.written.Write(p)
}

func (c *caller) Flush() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.flushed = c.written.Len()
}

func (c *caller) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gone = true
}

func (c *caller) text() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.written.String()
}

// unflushed is what would still stand in the server's buffer.
func (c *caller) unflushed() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.written.String()[c.flushed:]
}

func head(t testing.TB, body string) *openai.Head {
	t.Helper()
	h, err := openai.ParseHead(openai.ChatCompletions, []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// Requests as callers send them.
const (
	unstreamed  = `{"model":"m","messages":[]}`
	streamed    = `{"model":"m","messages":[],"stream":true}`
	withUsage   = `{"model":"m","messages":[],"stream":true,"stream_options":{"include_usage":true}}`
	withExtras  = `{"model":"m","messages":[],"stream":true,"return_progress":true,"timings_per_token":true}`
	twoChoices  = `{"model":"m","messages":[],"stream":true,"n":2}`
	callersName = "qwen3.5-9b"
)

func newDelivery(t testing.TB, body string) (*Delivery, *caller) {
	t.Helper()
	c := newCaller()
	return NewDelivery(c, head(t, body), callersName, time.Now(), DefaultClocks()), c
}

// Events as llama-server b10587 sends them.
const (
	roleEvent     = `data: {"choices":[{"finish_reason":null,"index":0,"delta":{"role":"assistant","content":null}}],"created":1,"id":"chatcmpl-1","model":"qwen","object":"chat.completion.chunk"}` + "\n\n"
	progressEvent = `data: {"choices":[{"finish_reason":null,"index":0,"delta":{"role":"assistant","content":null}}],"created":1,"id":"chatcmpl-1","model":"qwen","object":"chat.completion.chunk","prompt_progress":{"total":600,"cache":0,"processed":512,"time_ms":9}}` + "\n\n"
	helloEvent    = `data: {"choices":[{"finish_reason":null,"index":0,"delta":{"content":"Hello"}}],"created":1,"id":"chatcmpl-1","model":"qwen","object":"chat.completion.chunk"}` + "\n\n"
	finishEvent   = `data: {"choices":[{"finish_reason":"stop","index":0,"delta":{}}],"created":1,"id":"chatcmpl-1","model":"qwen","object":"chat.completion.chunk"}` + "\n\n"
	usageEvent    = `data: {"choices":[],"created":1,"id":"chatcmpl-1","model":"qwen","object":"chat.completion.chunk","usage":{"completion_tokens":2,"prompt_tokens":7,"total_tokens":9},"timings":{"prompt_n":7,"prompt_ms":70.0,"predicted_n":2,"predicted_ms":100.0}}` + "\n\n"
	doneEvent     = "data: [DONE]\n\n"
	pingEvent     = ":\n\n"
)

// mine is an event with the name the caller used.
func mine(event string) string {
	return strings.Replace(event, `"model":"qwen"`, `"model":"`+callersName+`"`, 1)
}

// pass sends events through a delivery, as an attempt does.
func pass(t testing.TB, d *Delivery, stream string) error {
	t.Helper()
	for ev, err := range openai.Events(strings.NewReader(stream), maxEvent) {
		if err != nil {
			t.Fatal(err)
		}
		if ev.Comment || ev.Done() {
			continue
		}
		c, err := openai.ParseChunk(d.head.Endpoint, ev.Data)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.event(ev, c); err != nil {
			return err
		}
	}
	return nil
}
