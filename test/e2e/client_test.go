package e2e_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"phonebank/test/fakephone"
	"phonebank/test/harness"
)

// call is one request of an application.
type call struct {
	class     string
	prompt    string
	maxTokens int
	stream    bool
}

// reply is what the application saw.
type reply struct {
	status  int
	text    string
	done    bool   // [DONE], or a whole unstreamed body
	failure string // message of an error event or error body
	header  http.Header
	err     error // of the transport
	sent    time.Time
	took    time.Duration
}

// right reports whether the answer is whole and belongs to its prompt.
func (r reply) right(c call) bool {
	return r.err == nil && r.status == http.StatusOK && r.done && r.failure == "" && r.text == fakephone.Answer(chatPath, c.body())
}

// delivered reports whether content had come before it ended.
func (r reply) delivered() bool { return r.text != "" }

func (r reply) String() string {
	return fmt.Sprintf("status %d, %d bytes of text, done %v, failure %q, error %v, after %v", r.status, len(r.text), r.done, r.failure, r.err, r.took)
}

const chatPath = "/v1/chat/completions"

func (c call) body() []byte {
	type message struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	}
	body, _ := json.Marshal(struct { // strings and numbers always marshal
		Model     string    `json:"model"`
		Messages  []message `json:"messages"`
		MaxTokens int       `json:"max_tokens"`
		Stream    bool      `json:"stream,omitempty"`
	}{harness.Model, []message{{"user", c.prompt}}, c.maxTokens, c.stream})
	return body
}

// client has connections for a thousand callers.
var client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 2000, MaxConnsPerHost: 0}}

// send sends a call and reads the whole reply.
func send(ctx context.Context, base string, c call) reply {
	start := time.Now()
	r := exchange(ctx, base, c)
	r.sent, r.took = start, time.Since(start)
	return r
}

func exchange(ctx context.Context, base string, c call) reply {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+chatPath, bytes.NewReader(c.body()))
	if err != nil {
		return reply{err: err}
	}
	req.Header.Set("Authorization", "Bearer "+harness.Key)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("x-phonebank-class", c.class)
	resp, err := client.Do(req)
	if err != nil {
		return reply{err: err}
	}
	defer resp.Body.Close()
	r := reply{status: resp.StatusCode, header: resp.Header}
	if resp.StatusCode == http.StatusOK && c.stream {
		readEvents(resp.Body, &r)
		return r
	}
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		r.err = err
		return r
	}
	var body struct {
		Choices []struct {
			Message struct {
				Content string `json:"content"`
			} `json:"message"`
		} `json:"choices"`
		Error *struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	if err := json.Unmarshal(raw, &body); err != nil {
		r.err = err
		return r
	}
	if body.Error != nil {
		r.failure = body.Error.Message
	}
	if len(body.Choices) > 0 {
		r.text, r.done = body.Choices[0].Message.Content, true
	}
	return r
}

// readEvents reads a stream as an SDK does.
func readEvents(body io.Reader, r *reply) {
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, 32<<20)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		if data == "[DONE]" {
			r.done = true
			return
		}
		var chunk struct {
			Choices []struct {
				Delta struct {
					Content string `json:"content"`
				} `json:"delta"`
			} `json:"choices"`
			Error *struct {
				Message string `json:"message"`
			} `json:"error"`
		}
		if err := json.Unmarshal([]byte(data), &chunk); err != nil {
			r.err = err
			return
		}
		if chunk.Error != nil {
			r.failure = chunk.Error.Message
		}
		for _, c := range chunk.Choices {
			r.text += c.Delta.Content
		}
	}
	r.err = lines.Err()
	if r.err == nil && r.failure == "" {
		r.err = errors.New("stream ended without [DONE] and without an error event")
	}
}

// mix makes n calls: a quarter reviews of 7,000 tokens, 65 % guards, the rest chat, half of the latter two streamed.
func mix(n int, seed uint64) []call {
	random := rand.New(rand.NewPCG(seed, 1))
	filler := strings.Repeat("The customer paid the invoice late but in full. ", 7000*4/48)
	calls := make([]call, n)
	for i := range calls {
		switch p := random.Float64(); {
		case p < 0.25:
			calls[i] = call{class: "review", prompt: fmt.Sprintf("Case %d. Answer with one line RISK_LEVEL: 1 to 5. %s", i, filler), maxTokens: 32}
		case p < 0.90:
			calls[i] = call{class: "guard", prompt: fmt.Sprintf("Guard %d: is this safe? See you at eight.", i), maxTokens: 64}
		default:
			calls[i] = call{class: "chat", prompt: fmt.Sprintf("Chat %d: tell me about phones. LENGTH=%d", i, 40+random.IntN(80)), maxTokens: 256}
		}
		calls[i].stream = calls[i].class != "review" && random.IntN(2) == 0
	}
	return calls
}
