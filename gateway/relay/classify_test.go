package relay

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"phonebank/gateway/openai"
)

// ended returns a context that has ended for a cause; nil is a running one.
func ended(t *testing.T, cause error) context.Context {
	ctx, cancel := context.WithCancelCause(t.Context())
	t.Cleanup(func() { cancel(nil) })
	if cause != nil {
		cancel(cause)
	}
	return ctx
}

func TestClassifyTransport(t *testing.T) {
	t.Parallel()
	timeout := &net.OpError{Op: "dial", Err: context.DeadlineExceeded}
	tests := []struct {
		name  string
		cause error // of the context's end
		err   error
		kind  Kind
		lost  bool
	}{
		{"refused", nil, &DialError{Err: syscall.ECONNREFUSED}, Offline, true},
		{"unknown host", nil, &DialError{Err: &net.DNSError{Err: "no such host"}}, Offline, true},
		{"end of the handshake", nil, &DialError{Handshake: true, Err: io.EOF}, Offline, true},
		{"reset in the handshake", nil, &DialError{Handshake: true, Err: syscall.ECONNRESET}, Offline, true},
		{"alert in the handshake", nil, &DialError{Handshake: true, Err: tls.AlertError(80)}, Offline, true},
		{"silent connect", nil, &DialError{Err: timeout}, Silent, true},
		{"silent handshake", nil, &DialError{Handshake: true, Err: context.DeadlineExceeded}, Silent, true},
		{"no byte within the clock", errClock, context.Canceled, Silent, true},
		{"reset while sending", nil, &net.OpError{Op: "write", Err: syscall.EPIPE}, Offline, true},
		{"reset before the headers", nil, &net.OpError{Op: "read", Err: syscall.ECONNRESET}, Offline, true},
		{"end before the headers", nil, io.EOF, Broken, true},
		{"cut headers", nil, io.ErrUnexpectedEOF, Broken, true},
		{"malformed headers", nil, errors.New("net/http: malformed HTTP response"), Broken, true},
		{"another certificate", nil, &DialError{Handshake: true, Err: &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}}, Misconfigured, true},
		{"another name", nil, &DialError{Handshake: true, Err: x509.HostnameError{Certificate: new(x509.Certificate), Host: "x"}}, Misconfigured, true},
		{"another key", nil, &DialError{Handshake: true, Err: fmt.Errorf("verify: %w", ErrPin)}, Misconfigured, true},
		{"caller gone", context.Canceled, context.Canceled, Cancelled, false},
		{"gateway gives up", errors.New("deadline"), context.Canceled, Cancelled, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			res := classifyTransport(ended(t, tt.cause), tt.err)
			if res.Kind != tt.kind || res.Lost != tt.lost {
				t.Errorf("got %v, lost %t, want %v, %t", res.Kind, res.Lost, tt.kind, tt.lost)
			}
			if !errors.Is(res.Err, tt.err) {
				t.Errorf("cause %v is not kept: got %v", tt.err, res.Err)
			}
		})
	}
}

func TestClassifyRead(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		cause error
		err   error
		kind  Kind
		lost  bool
	}{
		{"silence", errClock, context.Canceled, Stalled, true},
		{"caller gone", context.Canceled, context.Canceled, Cancelled, false},
		{"reset", nil, &net.OpError{Op: "read", Err: syscall.ECONNRESET}, Offline, true},
		{"cut inside the chunked body", nil, io.ErrUnexpectedEOF, Truncated, true},
		{"an event without end", nil, openai.ErrEventTooLarge, Nonsense, false},
		{"a reader that makes no progress", nil, io.ErrNoProgress, Truncated, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			res := classifyRead(ended(t, tt.cause), tt.err)
			if res.Kind != tt.kind || res.Lost != tt.lost {
				t.Errorf("got %v, lost %t, want %v, %t", res.Kind, res.Lost, tt.kind, tt.lost)
			}
		})
	}
}

func TestClassifyEnd(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		cause error
		kind  Kind
	}{
		{"orderly", nil, Truncated},
		{"by the clock", errClock, Stalled},
		{"by the caller", context.Canceled, Cancelled},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if res := classifyEnd(ended(t, tt.cause)); res.Kind != tt.kind {
				t.Errorf("got %v, want %v", res.Kind, tt.kind)
			}
		})
	}
}

func TestClassifyStatus(t *testing.T) {
	t.Parallel()
	const page = "<!doctype html><html>Bad gateway</html>"
	tests := []struct {
		name   string
		status int
		body   string
		after  string // Retry-After
		kind   Kind
		wait   time.Duration
		code   string // of the public error
	}{
		{name: "loading", status: 503, body: `{"error":{"message":"Loading model","type":"unavailable_error","code":503}}`, kind: Busy},
		{name: "no slot", status: 503, body: `{"error":{"code":503,"message":"no slot available","type":"unavailable_error"}}`, after: "2", kind: Busy, wait: 2 * time.Second},
		{name: "503 in plain text", status: 503, body: "busy", kind: Busy},
		{name: "503 page of a tunnel", status: 503, body: page, kind: Broken},
		{name: "503 page that says when", status: 503, body: page, after: "3", kind: Busy, wait: 3 * time.Second},
		{name: "429", status: 429, body: `{}`, after: "1.5", kind: Busy, wait: 1500 * time.Millisecond},
		{name: "429 for nonsense", status: 429, body: `{}`, after: "soon", kind: Busy},
		{name: "401", status: 401, body: `{"error":{"message":"Invalid API Key","type":"authentication_error","code":401}}`, kind: Misconfigured},
		{name: "403", status: 403, body: page, kind: Misconfigured},
		{name: "404", status: 404, body: `{"error":{"message":"File Not Found","type":"not_found_error","code":404}}`, kind: Misconfigured},
		{name: "405", status: 405, kind: Misconfigured},
		{name: "407", status: 407, kind: Misconfigured},
		{name: "501", status: 501, body: `{"error":{"type":"not_supported_error"}}`, kind: Misconfigured},
		{name: "500", status: 500, body: `{"error":{"code":500,"message":"Context size has been exceeded.","type":"server_error"}}`, kind: Unclear},
		{name: "500 in plain text", status: 500, body: "oops", kind: Unclear},
		{name: "500 page", status: 500, body: page, kind: Broken},
		{name: "502", status: 502, body: page, kind: Broken},
		{name: "504", status: 504, body: `{}`, kind: Broken},
		{name: "52x", status: 530, body: "error code: 1033", kind: Broken},
		{name: "408", status: 408, kind: Broken},
		{name: "redirect", status: 302, kind: Broken},
		{name: "204", status: 204, kind: Broken},
		{name: "400", status: 400, body: `{"error":{"code":400,"message":"'messages' is required","type":"invalid_request_error"}}`, kind: Caller},
		{name: "context", status: 400, body: `{"error":{"code":400,"message":"request (99 tokens) exceeds","type":"exceed_context_size_error","n_prompt_tokens":99,"n_ctx":64}}`, kind: Caller, code: openai.CodeContextExceeded},
		{name: "413", status: 413, kind: Caller},
		{name: "422 with FastAPI's detail", status: 422, body: `{"detail":[{"msg":"field required"}]}`, kind: Caller},
		{name: "400 page", status: 400, body: page, kind: Broken},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			resp := &http.Response{StatusCode: tt.status, Header: make(http.Header), Body: io.NopCloser(strings.NewReader(tt.body))}
			if tt.after != "" {
				resp.Header.Set("Retry-After", tt.after)
			}
			res := classifyStatus(resp)
			if res.Kind != tt.kind || res.Wait != tt.wait || res.Lost {
				t.Errorf("got %v, wait %v, lost %t, want %v, %v, false", res.Kind, res.Wait, res.Lost, tt.kind, tt.wait)
			}
			if (res.Public != nil) != (tt.kind == Caller) {
				t.Fatalf("got public error %v of %v", res.Public, res.Kind)
			}
			if tt.kind == Caller && (res.Public.Status != tt.status || res.Public.Code != tt.code || res.Public.Message == "") {
				t.Errorf("got public error %+v, want status %d, code %q and a message", res.Public, tt.status, tt.code)
			}
			for _, secret := range []string{"messages", "exceeds", "html"} {
				if strings.Contains(res.Err.Error(), secret) {
					t.Errorf("the log repeats the phone's words: %v", res.Err)
				}
			}
		})
	}
}

func TestClassifyUpstreamError(t *testing.T) {
	t.Parallel()
	tests := []struct {
		data string
		kind Kind
	}{
		{`{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}`, Busy},
		{`{"error":{"code":429,"message":"slow down"}}`, Busy},
		{`{"error":{"code":401,"message":"Invalid API Key","type":"authentication_error"}}`, Misconfigured},
		{`{"error":{"type":"not_found_error"}}`, Misconfigured},
		{`{"error":{"type":"not_supported_error"}}`, Misconfigured},
		{`{"error":{"code":400,"message":"bad","type":"invalid_request_error"}}`, Caller},
		{`{"error":{"message":"bad","type":"invalid_request_error","code":"unknown_field"}}`, Caller},
		{`{"error":{"code":400,"type":"exceed_context_size_error","n_ctx":64,"n_prompt_tokens":99}}`, Caller},
		{`{"error":{"code":500,"message":"Context size has been exceeded.","type":"server_error"}}`, Unclear},
		{`{"error":{"code":500,"message":"bad","type":"invalid_request_error"}}`, Unclear},
		{`{"error":"boom"}`, Unclear},
		{`{"object":"error","message":"boom","code":50001}`, Unclear},
		{`{"detail":"boom"}`, Unclear},
	}
	for _, tt := range tests {
		t.Run(tt.data, func(t *testing.T) {
			t.Parallel()
			c, err := openai.ParseChunk(openai.ChatCompletions, []byte(tt.data))
			if err != nil || c.Err == nil {
				t.Fatalf("got chunk %+v, %v, want an error in it", c, err)
			}
			res := classifyUpstreamError(*c.Err)
			if res.Kind != tt.kind || (res.Public != nil) != (tt.kind == Caller) {
				t.Errorf("got %v, public %v, want %v", res.Kind, res.Public, tt.kind)
			}
		})
	}
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	tests := []struct {
		value string
		want  time.Duration
	}{
		{"", 0},
		{"2", 2 * time.Second},
		{" 30 ", 30 * time.Second},
		{"0.25", 250 * time.Millisecond},
		{"0", 0},
		{"-5", 0},
		{"NaN", 0},
		{"Inf", 0},
		{"1e300", 0},
		{"soon", 0},
		{"Sun, 01 Mar 2026 12:00:30 GMT", 30 * time.Second},
		{"Sun, 01 Mar 2026 11:59:30 GMT", 0},
	}
	for _, tt := range tests {
		t.Run(tt.value, func(t *testing.T) {
			t.Parallel()
			h := http.Header{"Retry-After": {tt.value}}
			if got := retryAfter(h, now); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func TestKindsHaveNames(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, k := range Kinds() {
		if name := k.String(); name == "" || name == "unknown" || seen[name] {
			t.Errorf("kind %d has the name %q", k, name)
		} else {
			seen[name] = true
		}
	}
	if got := Kind(99).String(); got != "unknown" {
		t.Errorf("got %q, want unknown", got)
	}
}
