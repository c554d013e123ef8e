package openai

import (
	"bytes"
	"math"
	"strconv"
)

// Endpoint is the dialect of a request and its answers.
type Endpoint uint8

// The endpoints whose bodies this package reads.
const (
	ChatCompletions Endpoint = iota // /v1/chat/completions
	Completions                     // /v1/completions
)

// String is the path below /v1.
func (ep Endpoint) String() string {
	switch ep {
	case ChatCompletions:
		return "chat/completions"
	case Completions:
		return "completions"
	}
	return "endpoint " + strconv.Itoa(int(ep))
}

// Head is what the gateway must know of a request, and the body it came from.
// The body is forwarded, never a re-marshalled Head. A Head is read-only after
// ParseHead and then safe for concurrent use.
type Head struct {
	Endpoint Endpoint
	Model    string // as the caller spelled it, never ""

	Stream       bool // the caller wants events
	IncludeUsage bool // stream_options.include_usage

	// MaxTokens bounds the tokens of one choice: max_completion_tokens, else
	// max_tokens, else 0 for no bound. Larger than int32 is given as int32's
	// maximum.
	MaxTokens int
	// N is how many choices are wanted for each prompt, 1 when absent.
	N int
	// Prompts is how many prompts the request holds: 1, or more for a
	// /v1/completions prompt that is an array of strings or of token arrays.
	// The engine needs N*Prompts slots at once.
	Prompts int

	ServiceTier   string // "" when absent
	WantsProgress bool   // return_progress: prompt_progress chunks are the caller's
	WantsTimings  bool   // timings_per_token: timings are the caller's

	HasImage bool // a content part of type image_url
	HasAudio bool // a content part of type input_audio
	// PromptBytes is the size of messages or prompt plus tools as sent, without
	// image and audio parts: what an estimate of prompt tokens is made from.
	PromptBytes int

	Features Features

	object object
}

// Features are the parts of a request that forbid continuing a broken answer
// on another phone, because the second half would not fit the first.
type Features struct {
	Stop           bool
	Tools          bool
	Grammar        bool
	Logprobs       bool
	ResponseFormat bool
}

// Body is the request as it came. The caller must not change it.
func (h *Head) Body() []byte { return h.object.data }

// Choices is how many choices the answer will have.
func (h *Head) Choices() int {
	if h.N > math.MaxInt32/h.Prompts {
		return math.MaxInt32
	}
	return h.N * h.Prompts
}

// ParseHead reads the body of a request and keeps it. It validates the JSON
// completely and the members the gateway acts on; everything else, known or
// not, is the engine's to judge. Errors are *Error with status 400.
func ParseHead(ep Endpoint, body []byte) (*Head, error) {
	if len(bytes.TrimSpace(body)) == 0 {
		return nil, InvalidRequest("", "The request body is empty. Send a JSON object with Content-Type: application/json.")
	}
	o, serr := parseStrict(body)
	if serr != nil {
		return nil, InvalidRequest(serr.Param, "We could not parse the JSON body of your request: %s. Send one valid JSON object in UTF-8.", serr.Error())
	}
	h := &Head{Endpoint: ep, N: 1, Prompts: 1, object: o}
	for i := range o.members {
		if err := h.read(&o.members[i]); err != nil {
			return nil, err
		}
	}
	if err := h.required(); err != nil {
		return nil, err
	}
	return h, nil
}

// required is checked last, so that a wrong member is reported before a missing one.
func (h *Head) required() error {
	prompt, name := "messages", "an array of messages"
	if h.Endpoint == Completions {
		prompt, name = "prompt", "a string or an array"
	}
	switch {
	case h.Model == "":
		return InvalidRequest("model", "You must provide a model parameter: set \"model\" to an id listed by GET /v1/models.")
	case h.object.find(prompt) == nil:
		return InvalidRequest(prompt, "Missing required parameter: '%s'. Set it to %s.", prompt, name)
	}
	return nil
}

// read takes what one member says. A null member counts as absent.
func (h *Head) read(m *member) error {
	raw := h.object.raw(m)
	switch string(m.key) {
	case "messages", "prompt", "tools":
		return h.readPrompt(m, raw)
	case "model":
		return readString(&h.Model, m, raw, "a model id listed by GET /v1/models")
	case "service_tier":
		return readString(&h.ServiceTier, m, raw, "a service tier such as \"auto\"")
	case "stream":
		return readBool(&h.Stream, "stream", m.kind, raw)
	case "stream_options":
		return h.readStreamOptions(m.kind, raw)
	case "max_tokens":
		limit := 0
		if err := readCount(&limit, m, raw); err != nil {
			return err
		}
		if !h.has("max_completion_tokens") {
			h.MaxTokens = limit
		}
	case "max_completion_tokens":
		return readCount(&h.MaxTokens, m, raw)
	case "n":
		return readCount(&h.N, m, raw)
	case "return_progress":
		h.WantsProgress = raw[0] == 't'
	case "timings_per_token":
		h.WantsTimings = raw[0] == 't'
	default:
		h.Features.read(m, raw)
	}
	return nil
}

// has reports whether the caller gave a member a value other than null.
func (h *Head) has(name string) bool {
	m := h.object.find(name)
	return m != nil && m.kind != kindNull
}

func (h *Head) readStreamOptions(k kind, raw []byte) error {
	switch k {
	case kindNull:
		return nil
	case kindObject:
	default:
		return InvalidRequest("stream_options", "Invalid type for 'stream_options': send an object such as {\"include_usage\": true}, or leave it out.")
	}
	o, serr := parseStrict(raw)
	if serr != nil { // the syntax is known to be right: only a duplicate is left
		return InvalidRequest("stream_options", "Invalid 'stream_options': %s.", serr.Reason)
	}
	m := o.find("include_usage")
	if m == nil {
		return nil
	}
	return readBool(&h.IncludeUsage, "stream_options.include_usage", m.kind, o.raw(m))
}

func (f *Features) read(m *member, raw []byte) {
	switch string(m.key) {
	case "stop":
		f.Stop = f.Stop || !vacant(raw)
	case "functions":
		f.Tools = f.Tools || !vacant(raw)
	case "grammar", "json_schema":
		f.Grammar = f.Grammar || !vacant(raw)
	case "logprobs", "top_logprobs", "n_probs":
		f.Logprobs = f.Logprobs || !vacant(raw)
	case "response_format":
		f.ResponseFormat = m.kind != kindNull && !isType(raw, "text")
	}
}

// vacant reports whether a value says nothing: null, false, "", [] or {}.
func vacant(raw []byte) bool {
	switch kindOf(raw[0]) {
	case kindNull:
		return true
	case kindBool:
		return raw[0] == 'f'
	case kindString, kindArray, kindObject:
		return len(bytes.TrimSpace(raw[1:len(raw)-1])) == 0 && (raw[0] != '"' || len(raw) == 2)
	default:
		return false
	}
}

func readBool(dst *bool, name string, k kind, raw []byte) error {
	switch k {
	case kindNull:
	case kindBool:
		*dst = raw[0] == 't'
	default:
		return InvalidRequest(name, "Invalid type for '%s': send true or false, without quotes.", name)
	}
	return nil
}

func readString(dst *string, m *member, raw []byte, what string) error {
	switch m.kind {
	case kindNull:
	case kindString:
		*dst = string(unquote(raw))
	default:
		return InvalidRequest(string(m.key), "Invalid type for '%s': send a string, %s.", m.key, what)
	}
	return nil
}

// readCount reads an integer of at least 1. 1.0 and 1e3 are integers, as in
// JSON they are; what exceeds int32 is clamped to it, since the engine refuses
// it in its own words.
func readCount(dst *int, m *member, raw []byte) error {
	switch m.kind {
	case kindNull:
		return nil
	case kindNumber:
	default:
		return InvalidRequest(string(m.key), "Invalid type for '%s': send an integer, without quotes.", m.key)
	}
	// The only error possible is a value out of range, given as an infinity.
	f, _ := strconv.ParseFloat(string(raw), 64)
	switch {
	case f != math.Trunc(f):
		return InvalidRequest(string(m.key), "Invalid value for '%s': send an integer, not a fraction.", m.key)
	case f < 1:
		return InvalidRequest(string(m.key), "Invalid value for '%s': it must be at least 1.", m.key)
	}
	*dst = int(min(f, math.MaxInt32))
	return nil
}
