package openai

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestErrorBody(t *testing.T) {
	t.Parallel()
	tests := []struct {
		err    *Error
		status int
		want   string
	}{
		{InvalidRequest("n", "bad %q", "x\n"), 400, `{"error":{"message":"bad \"x\\n\"","type":"invalid_request_error","param":"n","code":null}}`},
		{ModelNotFound("gpt"), 404, `{"error":{"message":"The model ` + "`gpt`" + ` does not exist or you do not have access to it. GET /v1/models lists the models you can use.","type":"invalid_request_error","param":"model","code":"model_not_found"}}`},
		{UnknownURL("POST", "/v1/x"), 404, `{"error":{"message":"Invalid URL (POST /v1/x)","type":"invalid_request_error","param":null,"code":null}}`},
		{Overloaded(3*time.Second, "full"), 503, `{"error":{"message":"full","type":"service_unavailable_error","param":null,"code":"server_is_overloaded"}}`},
		{ContextLengthExceeded(4096, 18014), 400, `{"error":{"message":"This model's maximum context length is 4096 tokens. However, your messages resulted in 18014 tokens. Please reduce the length of the messages.","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}`},
	}
	for _, tt := range tests {
		if tt.err.Status != tt.status {
			t.Errorf("%v: status %d, want %d", tt.err, tt.err.Status, tt.status)
		}
		if diff := cmp.Diff(tt.want, string(tt.err.Body())); diff != "" {
			t.Errorf("body (-want +got):\n%s", diff)
		}
		if got, want := string(tt.err.Event()), "data: "+tt.want+"\n\n"; got != want {
			t.Errorf("event %q, want %q", got, want)
		}
	}
}

func TestErrorConstructors(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("世\xff\"", 1000)
	tests := []struct {
		err        *Error
		status     int
		typ, code  string
		retryAfter time.Duration
	}{
		{MissingAPIKey(), 401, "invalid_request_error", "", 0},
		{InvalidAPIKey(), 401, "invalid_request_error", "invalid_api_key", 0},
		{ModelNotFound(long), 404, "invalid_request_error", "model_not_found", 0},
		{ContextLengthExceeded(4096, 0), 400, "invalid_request_error", "context_length_exceeded", 0},
		{TooLarge(10 << 20), 413, "invalid_request_error", "request_too_large", 0},
		{UnsupportedEncoding("zstd"), 415, "invalid_request_error", "unsupported_content_encoding", 0},
		{RateLimited(LimitRequests, 5, time.Second), 429, "requests", "rate_limit_exceeded", time.Second},
		{RateLimited(LimitTokens, 5, time.Second), 429, "tokens", "rate_limit_exceeded", time.Second},
		{RateLimited(LimitConcurrent, 5, time.Second), 429, "requests", "rate_limit_exceeded", time.Second},
		{Timeout("late"), 504, "server_error", "deadline_exceeded", 0},
		{BadGateway("broken"), 502, "server_error", "bad_gateway", 0},
		{Internal(), 500, "server_error", "", 0},
		{UnknownURL("POST", "/"+long), 404, "invalid_request_error", "", 0},
		{MethodNotAllowed("PUT", "/v1/models"), 405, "invalid_request_error", "method_not_supported", 0},
	}
	for _, tt := range tests {
		e := tt.err
		if e.Status != tt.status || e.Type != tt.typ || e.Code != tt.code || e.RetryAfter != tt.retryAfter || e.Message == "" {
			t.Errorf("got %#v, want %d %s %q %s", e, tt.status, tt.typ, tt.code, tt.retryAfter)
		}
		if len(e.Body()) > 1000 {
			t.Errorf("%v repeats too much: %d bytes", e, len(e.Body()))
		}
		var body struct{ Error map[string]*string }
		if err := json.Unmarshal(e.Body(), &body); err != nil {
			t.Errorf("%v: %v", e, err)
		}
		for _, key := range []string{"message", "type", "param", "code"} {
			if _, ok := body.Error[key]; !ok {
				t.Errorf("%v: no %s in %s", e, key, e.Body())
			}
		}
	}
}

func TestErrorTextHasNoMessage(t *testing.T) {
	t.Parallel()
	e := InvalidRequest("n", "secret")
	e.Code = "c"
	if got, want := e.Error(), `400 invalid_request_error/c param "n"`; got != want {
		t.Errorf("Error() = %q, want %q", got, want)
	}
}

func TestModelList(t *testing.T) {
	t.Parallel()
	tests := []struct {
		models []Model
		want   string
	}{
		{nil, `{"object":"list","data":[]}`},
		{[]Model{NewModel("m", 5, "phonebank")}, `{"object":"list","data":[{"id":"m","object":"model","created":5,"owned_by":"phonebank"}]}`},
	}
	for _, tt := range tests {
		got, err := json.Marshal(NewModelList(tt.models))
		if err != nil || string(got) != tt.want {
			t.Errorf("list %s, error %v, want %s", got, err, tt.want)
		}
	}
}
