package demo

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// job is one request of the show, and what came of it.
type job struct {
	name, class, prompt string
	maxTokens           int

	attempts int
	phone    string
}

type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

type request struct {
	Model         string          `json:"model"`
	Messages      []message       `json:"messages"`
	MaxTokens     int             `json:"max_tokens"`
	Stream        bool            `json:"stream"`
	StreamOptions map[string]bool `json:"stream_options"`
}

// chunk is what the show reads of an event.
type chunk struct {
	Choices []struct {
		Delta struct {
			Content string `json:"content"`
		} `json:"delta"`
	} `json:"choices"`
	Usage *struct {
		Prompt     int `json:"prompt_tokens"`
		Completion int `json:"completion_tokens"`
	} `json:"usage"`
	Error *struct {
		Message string `json:"message"`
	} `json:"error"`
}

// perform sends one request, tells what happens, and judges the answer.
func (s *Show) perform(ctx context.Context, j *job) error {
	body, err := json.Marshal(request{
		Model: s.Model, Messages: []message{{"user", j.prompt}}, MaxTokens: j.maxTokens, Stream: true,
		StreamOptions: map[string]bool{"include_usage": true},
	})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.BaseURL+"/chat/completions", bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+s.Key)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("x-phonebank-class", j.class)
	s.say(j.name, fmt.Sprintf("sent, about %d tokens", len(j.prompt)/4))
	sent := time.Now()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("%s: %w", j.name, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
		return fmt.Errorf("%s: status %d: %s", j.name, resp.StatusCode, text)
	}
	j.note("x-phonebank-replica", resp.Header.Get("x-phonebank-replica"))
	j.note("x-phonebank-attempts", resp.Header.Get("x-phonebank-attempts"))
	a, err := s.follow(j, resp.Body, sent)
	if err != nil {
		return fmt.Errorf("%s: %w", j.name, err)
	}
	if want := s.Expect(body); a.text != want {
		return fmt.Errorf("%s: got %q, want %q", j.name, a.text, want)
	}
	s.say(j.name, fmt.Sprintf("done on %s after %d attempt(s): first token %.2fs, %d tokens in, %d out at %.1f tokens/s: %q",
		j.phone, j.attempts, a.first.Seconds(), a.prompt, a.completion, a.speed(), short(a.text)))
	return nil
}

func (j *job) note(name, value string) {
	switch name {
	case "x-phonebank-replica":
		if value != "" {
			j.phone = value
		}
	case "x-phonebank-attempts":
		if n, err := strconv.Atoi(value); err == nil {
			j.attempts = n
		}
	}
}

// answer is what a stream brought.
type answer struct {
	text               string
	first, total       time.Duration
	prompt, completion int
}

// speed is the decode speed in tokens a second.
func (a answer) speed() float64 {
	return float64(max(a.completion-1, 0)) / max((a.total-a.first).Seconds(), 1e-3)
}

// follow reads the stream to [DONE] and tells the gateway's comments on the way.
func (s *Show) follow(j *job, body io.Reader, sent time.Time) (answer, error) {
	var a answer
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if comment, ok := strings.CutPrefix(line, ": "); ok {
			name, value, _ := strings.Cut(comment, ": ")
			j.note(name, value)
			if !strings.HasPrefix(comment, "x-phonebank-") {
				s.say(j.name, comment)
			}
			continue
		}
		data, ok := strings.CutPrefix(line, "data: ")
		if !ok {
			continue
		}
		if data == "[DONE]" {
			a.total = time.Since(sent)
			return a, nil
		}
		var c chunk
		if err := json.Unmarshal([]byte(data), &c); err != nil {
			return a, fmt.Errorf("event: %w", err)
		}
		if c.Error != nil {
			return a, fmt.Errorf("error event: %s", c.Error.Message)
		}
		if c.Usage != nil {
			a.prompt, a.completion = c.Usage.Prompt, c.Usage.Completion
		}
		for _, choice := range c.Choices {
			if choice.Delta.Content != "" && a.first == 0 {
				a.first = time.Since(sent)
			}
			a.text += choice.Delta.Content
		}
	}
	if err := lines.Err(); err != nil {
		return a, err
	}
	return a, io.ErrUnexpectedEOF
}

func short(text string) string {
	if len(text) > 60 {
		return text[:57] + "..."
	}
	return text
}
