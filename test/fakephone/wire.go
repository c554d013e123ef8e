package fakephone

import (
	"bytes"
	"encoding/json"
	"math"
	"net/http"
	"strconv"
	"time"
)

// apiError is an error in llama-server's shape.
type apiError struct {
	status        int
	kind, message string
	// middleware errors (key, loading, unknown path) have their fields in another order
	middleware bool
	// promptTokens and context are set when the prompt does not fit
	promptTokens, context int
}

func (e *apiError) body() []byte {
	type inner struct {
		Code         int    `json:"code"`
		Message      string `json:"message"`
		Type         string `json:"type"`
		PromptTokens int    `json:"n_prompt_tokens,omitempty"`
		Context      int    `json:"n_ctx,omitempty"`
	}
	type middleware struct {
		Message string `json:"message"`
		Type    string `json:"type"`
		Code    int    `json:"code"`
	}
	if e.middleware {
		return encode(struct {
			Error middleware `json:"error"`
		}{middleware{e.message, e.kind, e.status}})
	}
	return encode(struct {
		Error inner `json:"error"`
	}{inner{e.status, e.message, e.kind, e.promptTokens, e.context}})
}

func errLoading() *apiError {
	return &apiError{status: http.StatusServiceUnavailable, kind: "unavailable_error", message: "Loading model", middleware: true}
}

func errKey() *apiError {
	return &apiError{status: http.StatusUnauthorized, kind: "authentication_error", message: "Invalid API Key", middleware: true}
}

func errNotFound() *apiError {
	return &apiError{status: http.StatusNotFound, kind: "not_found_error", message: "File Not Found", middleware: true}
}

func errUnsupported(message string) *apiError {
	return &apiError{status: http.StatusNotImplemented, kind: "not_supported_error", message: message}
}

// number is a float that, like llama-server's, always shows a fraction.
type number float64

// MarshalJSON implements [json.Marshaler].
func (n number) MarshalJSON() ([]byte, error) {
	f := float64(n)
	if math.IsNaN(f) || math.IsInf(f, 0) {
		f = 0
	}
	b := strconv.AppendFloat(nil, f, 'f', -1, 64)
	if !bytes.ContainsRune(b, '.') {
		b = append(b, ".0"...)
	}
	return b, nil
}

type usage struct {
	CompletionTokens int `json:"completion_tokens"`
	PromptTokens     int `json:"prompt_tokens"`
	TotalTokens      int `json:"total_tokens"`
	Details          struct {
		CachedTokens int `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
}

type timings struct {
	CacheN              int    `json:"cache_n"`
	PromptN             int    `json:"prompt_n"`
	PromptMS            number `json:"prompt_ms"`
	PromptPerTokenMS    number `json:"prompt_per_token_ms"`
	PromptPerSecond     number `json:"prompt_per_second"`
	PredictedN          int    `json:"predicted_n"`
	PredictedMS         number `json:"predicted_ms"`
	PredictedPerTokenMS number `json:"predicted_per_token_ms"`
	PredictedPerSecond  number `json:"predicted_per_second"`
}

// newTimings computes llama-server's figures; the first token belongs to the prompt's time.
func newTimings(promptN int, prompt time.Duration, predictedN int, predicted time.Duration) timings {
	t := timings{PromptN: promptN, PromptMS: milliseconds(prompt), PredictedN: predictedN, PredictedMS: 0.001}
	t.PromptPerTokenMS = t.PromptMS / number(promptN)
	t.PromptPerSecond = 1000 / t.PromptPerTokenMS
	if predictedN > 1 {
		t.PredictedMS = max(0.001, milliseconds(predicted))
		t.PredictedPerTokenMS = t.PredictedMS / number(predictedN-1)
		t.PredictedPerSecond = 1000 / t.PredictedPerTokenMS
	}
	return t
}

func milliseconds(d time.Duration) number { return number(d.Microseconds()) / 1000 }

type progress struct {
	Total     int   `json:"total"`
	Cache     int   `json:"cache"`
	Processed int   `json:"processed"`
	TimeMS    int64 `json:"time_ms"`
}

type chatChunk struct {
	Choices     []chunkChoice `json:"choices"`
	Created     int64         `json:"created"`
	ID          string        `json:"id"`
	Model       string        `json:"model"`
	Fingerprint string        `json:"system_fingerprint"`
	Object      string        `json:"object"`
	Usage       *usage        `json:"usage,omitempty"`
	Timings     *timings      `json:"timings,omitempty"`
	Progress    *progress     `json:"prompt_progress,omitempty"`
}

type chunkChoice struct {
	FinishReason *string         `json:"finish_reason"`
	Index        int             `json:"index"`
	Delta        json.RawMessage `json:"delta"`
}

type chatAnswer struct {
	Choices     []answerChoice `json:"choices"`
	Created     int64          `json:"created"`
	Model       string         `json:"model"`
	Fingerprint string         `json:"system_fingerprint"`
	Object      string         `json:"object"`
	Usage       usage          `json:"usage"`
	ID          string         `json:"id"`
	Timings     timings        `json:"timings"`
}

type answerChoice struct {
	FinishReason string        `json:"finish_reason"`
	Index        int           `json:"index"`
	Message      answerMessage `json:"message"`
}

type answerMessage struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// textChunk is an event of a completion stream and, with usage and timings, the whole of an answer that is not streamed.
type textChunk struct {
	Choices     []textChoice `json:"choices"`
	Created     int64        `json:"created"`
	Model       string       `json:"model"`
	Fingerprint string       `json:"system_fingerprint"`
	Object      string       `json:"object"`
	Usage       *usage       `json:"usage,omitempty"`
	ID          string       `json:"id"`
	Timings     *timings     `json:"timings,omitempty"`
	Progress    *progress    `json:"prompt_progress,omitempty"`
}

type textChoice struct {
	Text         string    `json:"text"`
	Index        int       `json:"index"`
	Logprobs     *struct{} `json:"logprobs"`
	FinishReason *string   `json:"finish_reason"`
}

// encode is [json.Marshal] that leaves <, > and & as they are. The types of this file always encode.
func encode(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if e.Encode(v) != nil {
		return nil
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
