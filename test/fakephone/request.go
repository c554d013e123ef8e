package fakephone

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"
)

// requestFields are the fields of a request the phone reads; it ignores all others, as llama-server does.
type requestFields struct {
	Messages            json.RawMessage `json:"messages"`
	Prompt              json.RawMessage `json:"prompt"`
	Tools               json.RawMessage `json:"tools"`
	Stream              bool            `json:"stream"`
	N                   json.RawMessage `json:"n"`
	MaxTokens           json.RawMessage `json:"max_tokens"`
	MaxCompletionTokens json.RawMessage `json:"max_completion_tokens"`
	ReturnProgress      bool            `json:"return_progress"`
	TimingsPerToken     bool            `json:"timings_per_token"`
	PingInterval        *int            `json:"sse_ping_interval"`
	ContinueFinal       bool            `json:"continue_final_message"`
	GenerationPrompt    *bool           `json:"add_generation_prompt"`
	StreamOptions       *struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
}

type chatMessage struct {
	Role       string          `json:"role"`
	Content    json.RawMessage `json:"content"`
	Name       string          `json:"name"`
	ToolCalls  json.RawMessage `json:"tool_calls"`
	ToolCallID string          `json:"tool_call_id"`
}

// canonicalMessage is what a prompt's hash covers of a message.
type canonicalMessage struct {
	Role       string          `json:"role"`
	Content    string          `json:"content"`
	Name       string          `json:"name,omitempty"`
	ToolCalls  json.RawMessage `json:"tool_calls,omitempty"`
	ToolCallID string          `json:"tool_call_id,omitempty"`
}

type contentPart struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

func (m chatMessage) canonical() canonicalMessage {
	return canonicalMessage{Role: m.Role, Content: m.text(), Name: m.Name, ToolCalls: m.ToolCalls, ToolCallID: m.ToolCallID}
}

// text returns the message's text, its parts joined.
func (m chatMessage) text() string {
	var s string
	if json.Unmarshal(m.Content, &s) == nil {
		return s
	}
	var parts []contentPart
	_ = json.Unmarshal(m.Content, &parts) // neither string nor parts: no text
	var b strings.Builder
	for _, p := range parts {
		b.WriteString(p.Text)
	}
	return b.String()
}

// request is a checked request.
type request struct {
	chat         bool
	prompts      []prompt
	promptTokens int
	n            int // choices of each prompt
	limit        int // tokens of each choice; negative: none
	stream       bool
	progress     bool
	includeUsage bool
	perToken     bool
	repeatPrefix bool
	ping         time.Duration // of life; 0 or less: none
}

func (r *request) choices() int { return r.n * len(r.prompts) }

// prompt returns the prompt of a choice and the choice's number among those of the prompt.
func (r *request) prompt(choice int) (p prompt, i int) { return r.prompts[choice/r.n], choice % r.n }

// parseRequest checks a body in llama-server's order and with its words.
func parseRequest(chat bool, body []byte, cfg Config) (*request, *apiError) {
	var fields requestFields
	if e := checkJSON(body); e != nil {
		return nil, e
	}
	if !decodeObject(body, &fields) {
		fields = requestFields{} // an array or a string has no fields
	}
	req := &request{
		chat: chat, n: 1, limit: -1, stream: fields.Stream, ping: cfg.PingInterval,
		progress: fields.ReturnProgress && fields.Stream, perToken: fields.TimingsPerToken,
		includeUsage: fields.StreamOptions != nil && fields.StreamOptions.IncludeUsage,
	}
	if e := req.readPrompt(fields); e != nil {
		return nil, e
	}
	if fields.PingInterval != nil {
		req.ping = time.Duration(*fields.PingInterval) * time.Second
	}
	if e := readInt("n", fields.N, 1, cfg.Slots, &req.n); e != nil {
		return nil, e
	}
	if e := readInt("max_tokens", fields.MaxTokens, -1, math.MaxInt32, &req.limit); e != nil {
		return nil, e
	}
	if e := readInt("max_completion_tokens", fields.MaxCompletionTokens, -1, math.MaxInt32, &req.limit); e != nil {
		return nil, e
	}
	if req.limit == 0 {
		req.limit = 1 // llama-server generates one token all the same
	}
	return req, nil
}

func (r *request) readPrompt(fields requestFields) *apiError {
	if !r.chat {
		if len(fields.Prompt) == 0 {
			return badRequest("\"prompt\" is required")
		}
		if r.prompts = textPrompts(fields.Prompt); len(r.prompts) == 0 {
			return badRequest("\"prompt\" must be a string, an list of tokens, a list of mixed strings & tokens, or a list of prompts")
		}
		for _, p := range r.prompts {
			r.promptTokens += p.tokens()
		}
		return nil
	}
	if len(fields.Messages) == 0 {
		return badRequest("'messages' is required")
	}
	var messages []chatMessage
	if fields.Messages[0] != '[' || json.Unmarshal(fields.Messages, &messages) != nil {
		return badRequest("Expected 'messages' to be an array")
	}
	if e := checkMessages(messages); e != nil {
		return e
	}
	p := chatPrompt(messages)
	p.bytes += len(fields.Tools)
	r.prompts, r.promptTokens = []prompt{p}, p.tokens()
	r.repeatPrefix = p.continued && (!fields.ContinueFinal || fields.GenerationPrompt == nil || *fields.GenerationPrompt)
	return nil
}

func checkMessages(messages []chatMessage) *apiError {
	for _, m := range messages {
		if m.Role != "assistant" && len(m.Content) == 0 {
			return badRequest("All non-assistant messages must contain 'content'")
		}
		var parts []contentPart
		if len(m.Content) == 0 || m.Content[0] != '[' || json.Unmarshal(m.Content, &parts) != nil {
			continue
		}
		for _, part := range parts {
			switch part.Type {
			case "text":
			case "image_url":
				return serverError("image input is not supported - hint: if this is unexpected, you may need to provide the mmproj")
			case "input_audio":
				return serverError("audio input is not supported - hint: if this is unexpected, you may need to provide the mmproj")
			default:
				return badRequest("unsupported content[].type")
			}
		}
	}
	if k := len(messages); k >= 2 && messages[k-1].Role == "assistant" && messages[k-2].Role == "assistant" {
		return badRequest("Cannot have 2 or more assistant messages at the end of the list.")
	}
	return nil
}

// checkJSON reports malformed input as llama-server does, with status 500, but without quoting it.
func checkJSON(body []byte) *apiError {
	const prefix = "[json.exception.parse_error.101] parse error at line 1, column %d: "
	if len(bytes.TrimSpace(body)) == 0 {
		return serverError(fmt.Sprintf(prefix, 1) + "attempting to parse an empty input; check that your input string or stream contains the expected JSON")
	}
	if !utf8.Valid(body) {
		return serverError(fmt.Sprintf(prefix, validLen(body)+1) + "syntax error while parsing value - invalid string: ill-formed UTF-8 byte")
	}
	var document json.RawMessage
	err := json.Unmarshal(body, &document)
	if err == nil {
		return nil
	}
	column := len(body) + 1
	if e, ok := errors.AsType[*json.SyntaxError](err); ok && int(e.Offset) < len(body) {
		return serverError(fmt.Sprintf(prefix, e.Offset) + "syntax error while parsing value - invalid literal")
	}
	return serverError(fmt.Sprintf(prefix, column) + "syntax error while parsing value - unexpected end of input; expected '[', '{', or a literal")
}

func validLen(b []byte) int {
	n := 0
	for n < len(b) {
		r, size := utf8.DecodeRune(b[n:])
		if r == utf8.RuneError && size == 1 {
			break
		}
		n += size
	}
	return n
}

// decodeObject reads the fields it can; a field of another type keeps its zero value. It reports whether body is a JSON object.
func decodeObject(body []byte, fields *requestFields) bool {
	body = bytes.TrimSpace(body)
	if len(body) == 0 || body[0] != '{' {
		return false
	}
	err := json.Unmarshal(body, fields)
	_, wrongType := errors.AsType[*json.UnmarshalTypeError](err)
	return err == nil || wrongType
}

func readInt(field string, raw json.RawMessage, least, most int, into *int) *apiError {
	if len(raw) == 0 || string(raw) == "null" {
		return nil
	}
	var f float64
	if json.Unmarshal(raw, &f) != nil {
		return badRequest(fmt.Sprintf("Field '%s': [json.exception.type_error.302] type must be number, but is %s", field, jsonType(raw)))
	}
	if f < float64(least) || f > float64(most) {
		return badRequest(fmt.Sprintf("Field '%s': Value must be between %d <= value <= %d, but got %.0f", field, least, most, f))
	}
	*into = int(f)
	return nil
}

func jsonType(raw json.RawMessage) string {
	switch raw[0] {
	case '"':
		return "string"
	case '{':
		return "object"
	case '[':
		return "array"
	default:
		return "boolean"
	}
}

func badRequest(message string) *apiError {
	return &apiError{status: http.StatusBadRequest, kind: "invalid_request_error", message: message}
}

func serverError(message string) *apiError {
	return &apiError{status: http.StatusInternalServerError, kind: "server_error", message: message}
}
