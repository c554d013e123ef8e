package openai

import (
	"bytes"
	"net/http"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxUpstreamMessage bounds what is kept of an engine's own words, in bytes.
const maxUpstreamMessage = 1024

// UpstreamError is a failure in an engine's words.
type UpstreamError struct {
	// Code is the engine's numeric code, else the HTTP status, 0 when neither
	// is known (an error event of a server that sends string codes).
	Code int
	// Reason is the code when it is a string, as OpenAI's are.
	Reason string
	Type   string
	Param  string
	// Message may repeat pieces of the prompt: it is for the caller, not for
	// logs. It is bounded and holds no control characters.
	Message string

	PromptTokens int  // n_prompt_tokens of a context overflow
	ContextSize  int  // n_ctx of a context overflow
	HTML         bool // a web page, from a tunnel or proxy rather than the engine
}

// Error names the failure without the message.
func (e *UpstreamError) Error() string {
	name := e.Type
	if e.Reason != "" {
		name += "/" + e.Reason
	}
	if name == "" {
		name = "no type given"
	}
	return "upstream error " + strconv.Itoa(e.Code) + " (" + name + ")"
}

// ContextExceeded reports whether the prompt did not fit the engine's context.
func (e *UpstreamError) ContextExceeded() bool {
	return e.Type == "exceed_context_size_error" || e.Reason == CodeContextExceeded
}

// Caller is the failure in OpenAI's envelope, for one that is the caller's to
// mend: codes that are no 4xx become 400.
func (e *UpstreamError) Caller() *Error {
	if e.ContextExceeded() && e.ContextSize > 0 {
		return ContextLengthExceeded(e.ContextSize, e.PromptTokens)
	}
	out := InvalidRequest(e.Param, "%s", e.Message)
	if e.Code >= 400 && e.Code < 500 {
		out.Status = e.Code
	}
	if out.Message == "" {
		out.Message = "The model server refused the request without saying why: " + http.StatusText(out.Status) + "."
	}
	out.Code = e.Reason
	if e.ContextExceeded() {
		out.Code = CodeContextExceeded
	}
	return out
}

// ParseUpstreamError reads the body of a failed answer in whatever shape:
// {"error":{...}}, {"error":"text"}, {"detail":...}, a flat object, plain text,
// or HTML. status is the HTTP status, 0 for an event inside a stream.
func ParseUpstreamError(status int, body []byte) UpstreamError {
	e := UpstreamError{Code: status}
	text := bytes.TrimSpace(bytes.TrimPrefix(body, []byte(byteOrderMark)))
	o, err := parseLax(text, nil)
	switch {
	case err != nil && len(text) > 0 && text[0] == '<':
		e.HTML = true
	case err != nil:
		e.Message = clean(text)
	default:
		e = parseError(failureOf(&o))
		if e.Code == 0 {
			e.Code = status
		}
	}
	return e
}

// failureOf finds the value that describes the failure.
func failureOf(o *object) []byte {
	for _, name := range []string{"error", "detail"} {
		if m := o.find(name); m != nil && !vacant(o.raw(m)) {
			return o.raw(m)
		}
	}
	return o.data[o.open : o.close+1]
}

// parseError reads the value that describes a failure, valid JSON of any kind.
func parseError(raw []byte) (e UpstreamError) {
	switch kindOf(raw[0]) {
	case kindString:
		e.Message = clean(unquote(raw))
		return e
	case kindObject:
	default: // FastAPI's detail is a list of what is wrong
		e.Message = clean(raw)
		return e
	}
	s := scanner{data: raw, lax: true}
	s.object(func(key []byte, _ int) bool {
		switch string(key) {
		case "message", "msg", "detail", "error":
			return s.text(&e.Message)
		case "type":
			return s.text(&e.Type)
		case "param":
			return s.text(&e.Param)
		case "code":
			if s.kind() == kindString {
				return s.text(&e.Reason)
			}
			return s.int(&e.Code)
		case "n_prompt_tokens":
			return s.int(&e.PromptTokens)
		case "n_ctx":
			return s.int(&e.ContextSize)
		}
		return s.skip()
	})
	return e
}

// text reads a string, cleaned; another kind of value leaves dst alone.
func (s *scanner) text(dst *string) bool {
	k := s.kind()
	value, ok := s.value()
	if ok && k == kindString {
		*dst = clean(unquote(value))
	}
	return ok
}

// clean makes an engine's words fit for an answer: bounded, valid UTF-8, in
// one line.
func clean(text []byte) string {
	cut := len(text) > maxUpstreamMessage
	if cut {
		text = text[:maxUpstreamMessage]
		for len(text) > 0 && !utf8.RuneStart(text[len(text)-1]) {
			text = text[:len(text)-1]
		}
		text = text[:max(0, len(text)-1)]
	}
	s := strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(string(bytes.TrimSpace(text)), "\uFFFD"))
	if cut {
		s += "..."
	}
	return s
}
