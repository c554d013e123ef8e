package openai

import (
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// Error types and codes of the OpenAI API that callers branch on.
const (
	TypeInvalidRequest = "invalid_request_error"
	TypeServer         = "server_error"
	TypeUnavailable    = "service_unavailable_error"

	CodeInvalidAPIKey   = "invalid_api_key"
	CodeModelNotFound   = "model_not_found"
	CodeContextExceeded = "context_length_exceeded"
	CodeRateLimited     = "rate_limit_exceeded"
	CodeOverloaded      = "server_is_overloaded"
)

// maxEcho bounds what an error repeats of a caller's own words.
const maxEcho = 200

// Error is an answer that is not a success, in OpenAI's envelope. Message is
// public: it names the cause and what to do, and holds no secret.
type Error struct {
	Status  int // HTTP status
	Type    string
	Code    string // "" is null on the wire
	Param   string // request member at fault, "" is null on the wire
	Message string
	// RetryAfter is the wait the caller should observe; 0 means none is known.
	// The gateway turns it into a header, the body does not carry it.
	RetryAfter time.Duration
}

// Error is for logs: it leaves out the message, which may repeat the caller's
// own words.
func (e *Error) Error() string {
	s := strconv.Itoa(e.Status) + " " + e.Type
	if e.Code != "" {
		s += "/" + e.Code
	}
	if e.Param != "" {
		s += " param " + strconv.Quote(clip(e.Param))
	}
	return s
}

// Body is the JSON answer: {"error":{...}} with all four members always present.
func (e *Error) Body() []byte {
	b := make([]byte, 0, 128+len(e.Message))
	b = append(b, `{"error":{"message":`...)
	b = appendQuoted(b, e.Message)
	b = append(b, `,"type":`...)
	b = appendQuoted(b, e.Type)
	b = append(b, `,"param":`...)
	b = appendNullable(b, e.Param)
	b = append(b, `,"code":`...)
	b = appendNullable(b, e.Code)
	return append(b, "}}"...)
}

// Event is the error inside a stream whose status is already sent. No [DONE]
// may follow it.
func (e *Error) Event() []byte {
	b := append([]byte("data: "), e.Body()...)
	return append(b, "\n\n"...)
}

func appendNullable(dst []byte, s string) []byte {
	if s == "" {
		return append(dst, "null"...)
	}
	return appendQuoted(dst, s)
}

// InvalidRequest is 400: the caller must change the request. param names the
// member at fault, "" when it is the request as a whole.
func InvalidRequest(param, format string, args ...any) *Error {
	return &Error{Status: http.StatusBadRequest, Type: TypeInvalidRequest, Param: param, Message: fmt.Sprintf(format, args...)}
}

// MissingAPIKey is 401 for a request without credentials.
func MissingAPIKey() *Error {
	return &Error{Status: http.StatusUnauthorized, Type: TypeInvalidRequest,
		Message: "You didn't provide an API key. Send it in an Authorization header, as in: Authorization: Bearer YOUR_KEY."}
}

// InvalidAPIKey is 401 for a key nobody knows. It repeats no part of the key.
func InvalidAPIKey() *Error {
	return &Error{Status: http.StatusUnauthorized, Type: TypeInvalidRequest, Code: CodeInvalidAPIKey,
		Message: "Incorrect API key provided. Check the key, or ask the operator of this gateway for one."}
}

// ModelNotFound is 404 for a model the gateway does not offer.
func ModelNotFound(model string) *Error {
	return &Error{Status: http.StatusNotFound, Type: TypeInvalidRequest, Code: CodeModelNotFound, Param: "model",
		Message: fmt.Sprintf("The model `%s` does not exist or you do not have access to it. GET /v1/models lists the models you can use.", clip(model))}
}

// ContextLengthExceeded is 400 for a prompt of got tokens on a model that
// holds limit. got 0 means the count is not known.
func ContextLengthExceeded(limit, got int) *Error {
	e := InvalidRequest("messages", "This model's maximum context length is %d tokens. However, your messages resulted in %d tokens. Please reduce the length of the messages.", limit, got)
	if got == 0 {
		e.Message = fmt.Sprintf("This model's maximum context length is %d tokens. Please reduce the length of the messages.", limit)
	}
	e.Code = CodeContextExceeded
	return e
}

// TooLarge is 413 for a body of more than limit bytes.
func TooLarge(limit int64) *Error {
	return &Error{Status: http.StatusRequestEntityTooLarge, Type: TypeInvalidRequest, Code: "request_too_large",
		Message: fmt.Sprintf("The request body is larger than the limit of %d bytes. Send a smaller body.", limit)}
}

// UnsupportedEncoding is 415 for a Content-Encoding the gateway does not read.
func UnsupportedEncoding(encoding string) *Error {
	return &Error{Status: http.StatusUnsupportedMediaType, Type: TypeInvalidRequest, Code: "unsupported_content_encoding",
		Message: fmt.Sprintf("Content-Encoding %q is not supported. Send the body uncompressed.", clip(encoding))}
}

// LimitKind is the limit of an API key that tripped.
type LimitKind string

// The limits a key has.
const (
	LimitRequests   LimitKind = "requests"   // requests per minute
	LimitTokens     LimitKind = "tokens"     // tokens per minute
	LimitConcurrent LimitKind = "concurrent" // requests accepted and unfinished
)

// RateLimited is 429: the caller's own limit, never a busy fleet. OpenAI knows
// only the types "requests" and "tokens", so concurrency counts as requests.
func RateLimited(kind LimitKind, limit int, retryAfter time.Duration) *Error {
	e := &Error{Status: http.StatusTooManyRequests, Type: string(kind), Code: CodeRateLimited, RetryAfter: retryAfter}
	switch kind {
	case LimitConcurrent:
		e.Type = string(LimitRequests)
		e.Message = fmt.Sprintf("Rate limit reached: at most %d requests of this key may be unfinished at the same time. Wait for one to finish.", limit)
	default:
		e.Message = fmt.Sprintf("Rate limit reached: at most %d %s per minute for this key. Please try again in %s.", limit, kind, retryAfter.Round(time.Millisecond))
	}
	return e
}

// Overloaded is 503: the fleet is full or away, and the caller did nothing wrong.
func Overloaded(retryAfter time.Duration, message string) *Error {
	return &Error{Status: http.StatusServiceUnavailable, Type: TypeUnavailable, Code: CodeOverloaded, Message: message, RetryAfter: retryAfter}
}

// Timeout is 504: the request's deadline passed before an answer.
func Timeout(message string) *Error {
	return &Error{Status: http.StatusGatewayTimeout, Type: TypeServer, Code: "deadline_exceeded", Message: message}
}

// BadGateway is 502: every phone that was tried failed.
func BadGateway(message string) *Error {
	return &Error{Status: http.StatusBadGateway, Type: TypeServer, Code: "bad_gateway", Message: message}
}

// Internal is 500 with a fixed text; the cause belongs in the log.
func Internal() *Error {
	return &Error{Status: http.StatusInternalServerError, Type: TypeServer,
		Message: "The gateway had an error while processing your request. Sorry about that! Please retry, and quote the x-request-id header if it persists."}
}

// UnknownURL is 404 for a path that is no route.
func UnknownURL(method, path string) *Error {
	return &Error{Status: http.StatusNotFound, Type: TypeInvalidRequest,
		Message: fmt.Sprintf("Invalid URL (%s %s)", clip(method), clip(path))}
}

// MethodNotAllowed is 405 for a route that exists under another method.
func MethodNotAllowed(method, path string) *Error {
	return &Error{Status: http.StatusMethodNotAllowed, Type: TypeInvalidRequest, Code: "method_not_supported",
		Message: fmt.Sprintf("Not allowed to %s on %s. (HINT: Perhaps you meant to use a different HTTP method?)", clip(method), clip(path))}
}

// clip bounds what is repeated of a caller's own words.
func clip(s string) string {
	limit := maxEcho
	if len(s) <= limit {
		return s
	}
	for limit > 0 && s[limit]&0xC0 == 0x80 { // do not cut inside a character
		limit--
	}
	return s[:limit] + "..."
}
