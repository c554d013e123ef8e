package gateway

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"phonebank/auth"
	"phonebank/balancer"
	"phonebank/gateway/openai"
	"phonebank/gateway/relay"
)

// newGateway is an edge whose room knows no phone and whose shared state is not there.
func newGateway(t testing.TB) *Gateway {
	t.Helper()
	return New(Deps{
		Room:   balancer.NewDispatcher(nil, balancer.Config{Rules: balancer.DefaultRules()}, slog.New(slog.DiscardHandler)),
		Phones: relay.NewDirectory(nil),
		Log:    slog.New(slog.DiscardHandler),
	}, Config{
		Models:   []Model{{ID: "m", Upstream: "qwen", Context: 1000, MaxTokens: 256}, {ID: "boundless", Upstream: "qwen"}},
		Patience: map[balancer.Class]time.Duration{balancer.Chat: time.Minute},
	})
}

func parse(t testing.TB, ep openai.Endpoint, body string) *openai.Head {
	t.Helper()
	h, err := openai.ParseHead(ep, []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestDeadline(t *testing.T) {
	t.Parallel()
	tests := []struct {
		value string
		want  time.Duration // 0: none
		bad   bool
	}{
		{value: ""},
		{value: "  "},
		{value: "30", want: 30 * time.Second},
		{value: "2.5", want: 2500 * time.Millisecond},
		{value: " 10m ", want: 10 * time.Minute},
		{value: "24h", want: 24 * time.Hour},
		{value: "86400", want: 24 * time.Hour},
		{value: "250ms", want: 250 * time.Millisecond},
		{value: "0", bad: true},
		{value: "-1", bad: true},
		{value: "0.0000000001", bad: true},
		{value: "24h1s", bad: true},
		{value: "1e9", bad: true},
		{value: "NaN", bad: true},
		{value: "+Inf", bad: true},
		{value: "-Inf", bad: true},
		{value: "soon", bad: true},
		{value: "10 m", bad: true},
	}
	for _, tt := range tests {
		t.Run(tt.value, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil)
				r.Header.Set("x-phonebank-timeout", tt.value)
				ctx, cancel, err := deadline(r)
				defer cancel()
				if (err != nil) != tt.bad {
					t.Fatalf("got %v, want an error: %t", err, tt.bad)
				}
				if tt.bad {
					var public *openai.Error
					if !errors.As(err, &public) || public.Status != http.StatusBadRequest {
						t.Errorf("got %v, want 400", err)
					}
					return
				}
				at, bounded := ctx.Deadline()
				if bounded != (tt.want > 0) || bounded && time.Until(at) != tt.want {
					t.Fatalf("got %v, want %v", time.Until(at), tt.want)
				}
				if !bounded {
					return
				}
				time.Sleep(tt.want)
				synctest.Wait()
				if cause := context.Cause(ctx); !errors.Is(cause, errDeadline) {
					t.Errorf("got cause %v, want errDeadline", cause)
				}
			})
		})
	}
}

func TestClassOf(t *testing.T) {
	t.Parallel()
	tests := []struct {
		key, wish string
		want      balancer.Class
		bad       bool
	}{
		{key: "chat", want: balancer.Chat},
		{key: "chat", wish: "chat", want: balancer.Chat},
		{key: "chat", wish: "review", want: balancer.Review},
		{key: "guard", wish: "batch", want: balancer.Batch},
		{key: "review", wish: "guard", want: balancer.Review}, // nobody lifts himself up
		{key: "chat", wish: "urgent", bad: true},
		{key: "chat", wish: "GUARD", bad: true},
	}
	for _, tt := range tests {
		t.Run(tt.key+" wishes "+tt.wish, func(t *testing.T) {
			t.Parallel()
			h := make(http.Header)
			if tt.wish != "" {
				h.Set("x-phonebank-class", tt.wish)
			}
			got, err := classOf(auth.Principal{KeyID: "k", Class: tt.key}, h)
			if tt.bad {
				var public *openai.Error
				if !errors.As(err, &public) || public.Status != http.StatusBadRequest {
					t.Errorf("got %v, want 400", err)
				}
				return
			}
			if err != nil || got != tt.want {
				t.Errorf("got %v, %v, want %v", got, err, tt.want)
			}
		})
	}
	if _, err := classOf(auth.Principal{KeyID: "k", Class: "vip"}, nil); err == nil {
		t.Error("a key with a class nobody knows was let in")
	} else if v := judge(err); v.public.Status != http.StatusInternalServerError {
		t.Errorf("got status %d for our own mistake, want 500", v.public.Status)
	}
}

func TestTicket(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	who := auth.Principal{KeyID: "k", Class: "chat"}
	head := parse(t, openai.ChatCompletions, `{"model":"m","messages":[{"role":"user","content":"`+strings.Repeat("x", 364)+`"}],"n":2}`)
	got, model, err := g.ticket(who, head, nil)
	if err != nil {
		t.Fatal(err)
	}
	if model.ID != "m" || got.Key != "k" || got.Model != "m" || got.Class != balancer.Chat || got.Slots != 2 || got.ID == "" {
		t.Errorf("got %+v of model %s", got, model.ID)
	}
	if got.PromptTokens != head.PromptBytes/4+1 || got.OutputTokens != typicalOutput {
		t.Errorf("got %d tokens in, %d out, want a quarter of %d bytes, and %d", got.PromptTokens, got.OutputTokens, head.PromptBytes, typicalOutput)
	}
	if got.Deadline.Sub(got.Arrived) != time.Minute || got.HardEnd != time.Minute+2*time.Hour {
		t.Errorf("got deadline after %v, hard end %v", got.Deadline.Sub(got.Arrived), got.HardEnd)
	}
	patient, _, err := g.ticket(who, head, http.Header{"X-Phonebank-Class": {"batch"}})
	if err != nil || !patient.Deadline.IsZero() || patient.HardEnd != 24*time.Hour {
		t.Errorf("got deadline %v, hard end %v, %v for a class without patience", patient.Deadline, patient.HardEnd, err)
	}
}

func TestTicketRefuses(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	long := strings.Repeat("x", 8100) // twice what the context holds: no ratio of bytes to tokens makes it fit
	tests := []struct {
		name, body  string
		status      int
		code, param string
	}{
		{"unknown model", `{"model":"gpt-5","messages":[]}`, 404, openai.CodeModelNotFound, "model"},
		{"image", `{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:,"}}]}]}`, 400, "", "messages"},
		{"audio", `{"model":"m","messages":[{"role":"user","content":[{"type":"input_audio","input_audio":{"data":""}}]}]}`, 400, "", "messages"},
		{"too long", `{"model":"m","messages":[{"role":"user","content":"` + long + `"}]}`, 400, openai.CodeContextExceeded, "messages"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, _, err := g.ticket(auth.Principal{Class: "chat"}, parse(t, openai.ChatCompletions, tt.body), nil)
			var public *openai.Error
			if !errors.As(err, &public) || public.Status != tt.status || public.Code != tt.code || public.Param != tt.param {
				t.Errorf("got %v, want %d %s at %s", err, tt.status, tt.code, tt.param)
			}
		})
	}
	if _, _, err := g.ticket(auth.Principal{Class: "chat"}, parse(t, openai.ChatCompletions, `{"model":"boundless","messages":[{"role":"user","content":"`+long+`"}]}`), nil); err != nil {
		t.Errorf("got %v for a model without a known context", err)
	}
}

func TestMaxTokens(t *testing.T) {
	t.Parallel()
	tests := []struct {
		body  string
		model Model
		want  int
	}{
		{`{"model":"m","messages":[]}`, Model{MaxTokens: 256}, 256},
		{`{"model":"m","messages":[]}`, Model{}, 1},
		{`{"model":"m","messages":[],"max_tokens":5}`, Model{MaxTokens: 256}, 5},
		{`{"model":"m","messages":[],"max_tokens":5,"max_completion_tokens":7}`, Model{MaxTokens: 256}, 7},
		{`{"model":"m","messages":[],"max_tokens":5000}`, Model{MaxTokens: 256}, 5000},
	}
	for _, tt := range tests {
		if got := maxTokens(parse(t, openai.ChatCompletions, tt.body), &tt.model); got != tt.want {
			t.Errorf("maxTokens(%s, %d) = %d, want %d", tt.body, tt.model.MaxTokens, got, tt.want)
		}
	}
}

// drip is a body that is sent too slowly.
type drip struct{}

func (drip) Read([]byte) (int, error) { return 0, context.DeadlineExceeded }

func TestReadBody(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name     string
		body     io.Reader
		length   int64 // announced; -1: not
		encoding string
		status   int // 0: read
	}{
		{name: "whole", body: strings.NewReader("0123456789"), length: 10},
		{name: "whole, length not announced", body: strings.NewReader("0123456789"), length: -1},
		{name: "byte by byte", body: iotest.OneByteReader(strings.NewReader("0123456789")), length: -1},
		{name: "empty", body: strings.NewReader(""), length: 0},
		{name: "plain by name", body: strings.NewReader("0123456789"), length: 10, encoding: "identity"},
		{name: "too large", body: strings.NewReader("0123456789x"), length: 11, status: http.StatusRequestEntityTooLarge},
		{name: "too large, length not announced", body: strings.NewReader("0123456789x"), length: -1, status: http.StatusRequestEntityTooLarge},
		{name: "compressed", body: strings.NewReader("\x1f\x8b"), length: 2, encoding: "gzip", status: http.StatusUnsupportedMediaType},
		{name: "shorter than announced", body: iotest.DataErrReader(iotest.ErrReader(io.ErrUnexpectedEOF)), length: 10, status: http.StatusBadRequest},
		{name: "too slow", body: drip{}, length: 10, status: http.StatusRequestTimeout},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", tt.body)
			r.ContentLength = tt.length
			if tt.encoding != "" {
				r.Header.Set("Content-Encoding", tt.encoding)
			}
			got, err := readBody(httptest.NewRecorder(), r, 10, time.Minute)
			if tt.status == 0 {
				if err != nil || len(got) != 10 && tt.length != 0 {
					t.Errorf("got %q, %v", got, err)
				}
				return
			}
			var public *openai.Error
			if !errors.As(err, &public) || public.Status != tt.status || public.Message == "" {
				t.Errorf("got %v, want status %d", err, tt.status)
			}
		})
	}
}

func TestConfigDefaults(t *testing.T) {
	t.Parallel()
	c := Config{}.withDefaults()
	if c.Body != 10<<20 || c.BodyTime != 2*time.Minute || c.CommitAfter != 10*time.Second || c.CommentGap != 10*time.Second || c.CancelBound != time.Second {
		t.Errorf("got %+v", c)
	}
	given := Config{Body: 1, BodyTime: 2, CommitAfter: 3, CommentGap: 4, CancelBound: 5}.withDefaults()
	if given.Body != 1 || given.BodyTime != 2 || given.CommitAfter != 3 || given.CommentGap != 4 || given.CancelBound != 5 {
		t.Errorf("got %+v, want what was given", given)
	}
}
