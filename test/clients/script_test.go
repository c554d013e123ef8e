package clients_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/ssestream"
)

// script is the script of calls with OpenAI's Go SDK.
type script struct {
	env   environment
	usual openai.Client
}

func runGoScript(ctx context.Context, env environment) []step {
	s := script{env: env}
	s.usual = s.client(env.key)
	var done []step
	for _, call := range []struct {
		name string
		run  func(context.Context) error
	}{
		{"models", s.models},
		{"chat", s.chat},
		{"stream", s.stream},
		{"stream_usage", s.streamUsage},
		{"wait", s.wait},
		{"unauthorized", s.unauthorized},
		{"unknown_model", s.unknownModel},
		{"rate_limit", s.rateLimit},
		{"cancel", s.cancel},
	} {
		begin, result := time.Now(), step{Step: call.name, OK: true}
		if err := call.run(ctx); err != nil {
			result.OK, result.Error = false, err.Error()
		}
		result.MS = time.Since(begin).Milliseconds()
		done = append(done, result)
	}
	return done
}

func (s script) client(key string, options ...option.RequestOption) openai.Client {
	return openai.NewClient(append([]option.RequestOption{option.WithBaseURL(s.env.baseURL), option.WithAPIKey(key)}, options...)...)
}

func (s script) params(prompt string, maxTokens int64) openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{
		Model:     s.env.model,
		Messages:  []openai.ChatCompletionMessageParamUnion{openai.UserMessage(prompt)},
		MaxTokens: openai.Int(maxTokens),
	}
}

const (
	hello = "Say hello."
	long  = "LENGTH=400 Count to 400." // fake phones take it by the word
)

func (s script) models(ctx context.Context) error {
	var listed []string
	pages := s.usual.Models.ListAutoPaging(ctx)
	for pages.Next() {
		listed = append(listed, pages.Current().ID)
	}
	if err := pages.Err(); err != nil {
		return err
	}
	if !slices.Contains(listed, s.env.model) {
		return fmt.Errorf("%s is not among %v", s.env.model, listed)
	}
	model, err := s.usual.Models.Get(ctx, s.env.model)
	if err == nil && model.ID != s.env.model {
		err = fmt.Errorf("retrieved %s", model.ID)
	}
	return err
}

func (s script) chat(ctx context.Context) error {
	answer, err := s.usual.Chat.Completions.New(ctx, s.params(hello, 16))
	if err != nil {
		return err
	}
	if len(answer.Choices) != 1 || answer.Choices[0].Message.Content == "" {
		return fmt.Errorf("choices %+v, want one with content", answer.Choices)
	}
	if err := ended(answer.Choices[0].FinishReason); err != nil {
		return err
	}
	u := answer.Usage
	if u.PromptTokens <= 0 || u.CompletionTokens <= 0 || u.TotalTokens != u.PromptTokens+u.CompletionTokens {
		return fmt.Errorf("usage %d+%d=%d", u.PromptTokens, u.CompletionTokens, u.TotalTokens)
	}
	return nil
}

func ended(finish string) error {
	if finish != "stop" && finish != "length" {
		return fmt.Errorf("finish %q", finish)
	}
	return nil
}

// read reads a stream to its end. It returns the chunks that carry usage.
func read(stream *ssestream.Stream[openai.ChatCompletionChunk]) ([]openai.ChatCompletionChunk, error) {
	defer stream.Close()
	var (
		text   strings.Builder
		finish string
		usages []openai.ChatCompletionChunk
	)
	for stream.Next() {
		chunk := stream.Current()
		if chunk.JSON.Usage.Valid() {
			usages = append(usages, chunk)
		}
		for _, choice := range chunk.Choices {
			text.WriteString(choice.Delta.Content)
			if choice.FinishReason != "" {
				finish = choice.FinishReason
			}
		}
	}
	if err := stream.Err(); err != nil {
		return nil, err
	}
	if text.Len() == 0 {
		return nil, errors.New("empty answer")
	}
	return usages, ended(finish)
}

func (s script) stream(ctx context.Context) error {
	usages, err := read(s.usual.Chat.Completions.NewStreaming(ctx, s.params(hello, 16)))
	if err == nil && len(usages) > 0 {
		err = errors.New("usage that nobody asked for")
	}
	return err
}

func (s script) streamUsage(ctx context.Context) error {
	params := s.params(hello, 16)
	params.StreamOptions = openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)}
	usages, err := read(s.usual.Chat.Completions.NewStreaming(ctx, params))
	if err != nil {
		return err
	}
	if len(usages) != 1 || len(usages[0].Choices) != 0 || usages[0].Usage.CompletionTokens <= 0 {
		return fmt.Errorf("%d chunks with usage, want one, without choices", len(usages))
	}
	return nil
}

func (s script) wait(ctx context.Context) error {
	prompt := strings.Repeat("word ", s.env.waitWords)
	_, err := read(s.usual.Chat.Completions.NewStreaming(ctx, s.params(prompt, 8)))
	return err
}

// refused checks that err is an API error with a status and a code.
func refused(err error, status int, code string) (*openai.Error, error) {
	fault, ok := errors.AsType[*openai.Error](err)
	if !ok {
		return nil, fmt.Errorf("%w, want an API error", err)
	}
	if fault.StatusCode != status || fault.Code != code {
		return nil, fmt.Errorf("%d %s, want %d %s", fault.StatusCode, fault.Code, status, code)
	}
	return fault, nil
}

func (s script) unauthorized(ctx context.Context) error {
	stranger := s.client("wrong-key")
	_, err := stranger.Chat.Completions.New(ctx, s.params(hello, 1))
	fault, err := refused(err, http.StatusUnauthorized, "invalid_api_key")
	if err == nil && fault.Response.Header.Get("X-Request-Id") == "" {
		err = errors.New("no request id")
	}
	return err
}

func (s script) unknownModel(ctx context.Context) error {
	params := s.params(hello, 1)
	params.Model = "no-such-model"
	_, err := s.usual.Chat.Completions.New(ctx, params)
	_, err = refused(err, http.StatusNotFound, "model_not_found")
	return err
}

func (s script) rateLimit(ctx context.Context) error {
	impatient := s.client(s.env.limitedKey, option.WithMaxRetries(0))
	var limited error
	for range 100 {
		if _, limited = impatient.Chat.Completions.New(ctx, s.params(hello, 1)); limited != nil {
			break
		}
	}
	fault, err := refused(limited, http.StatusTooManyRequests, "rate_limit_exceeded")
	if err != nil {
		return err
	}
	seconds, err := strconv.ParseFloat(fault.Response.Header.Get("Retry-After"), 64)
	if err != nil || seconds <= 0 || seconds > 120 {
		return fmt.Errorf("retry-after %q", fault.Response.Header.Get("Retry-After"))
	}
	begin, patient := time.Now(), s.client(s.env.limitedKey)
	if _, err := patient.Chat.Completions.New(ctx, s.params(hello, 1)); err != nil {
		return err
	}
	if took := time.Since(begin).Seconds(); took < seconds-1 {
		return fmt.Errorf("%.2f s: did not wait the %g s it was told", took, seconds)
	}
	return nil
}

func (s script) cancel(ctx context.Context) error {
	leaving, leave := context.WithCancel(ctx)
	defer leave()
	stream := s.usual.Chat.Completions.NewStreaming(leaving, s.params(long, 400))
	defer stream.Close()
	for stream.Next() {
		if chunk := stream.Current(); len(chunk.Choices) > 0 && chunk.Choices[0].Delta.Content != "" {
			break
		}
	}
	if err := stream.Err(); err != nil {
		return err
	}
	leave()
	return s.chat(ctx)
}
