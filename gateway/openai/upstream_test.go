package openai

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func TestParseUpstreamError(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		status int
		body   string
		want   UpstreamError
	}{
		{"OpenAI", 429, `{"error":{"message":"slow","type":"requests","param":null,"code":"rate_limit_exceeded"}}`, UpstreamError{Code: 429, Reason: "rate_limit_exceeded", Type: "requests", Message: "slow"}},
		{"param", 400, `{"error":{"message":"bad","type":"invalid_request_error","param":"n","code":null}}`, UpstreamError{Code: 400, Type: "invalid_request_error", Message: "bad", Param: "n"}},
		{"string", 500, `{"error":"No current model available"}`, UpstreamError{Code: 500, Message: "No current model available"}},
		{"detail", 404, `{"detail":"Not Found"}`, UpstreamError{Code: 404, Message: "Not Found"}},
		{"detail list", 422, `{"detail":[{"loc":["body"],"msg":"missing"}]}`, UpstreamError{Code: 422, Message: `[{"loc":["body"],"msg":"missing"}]`}},
		{"detail object", 400, `{"detail":{"error":"bad"}}`, UpstreamError{Code: 400, Message: "bad"}},
		{"flat", 400, `{"object":"error","message":"bad","type":"BadRequestError","param":null,"code":400}`, UpstreamError{Code: 400, Type: "BadRequestError", Message: "bad"}},
		{"MNN app", 500, `{"error":{"message":"boom","trace_id":"x"}}`, UpstreamError{Code: 500, Message: "boom"}},
		{"plain text", 502, "upstream\r\nconnect error\n", UpstreamError{Code: 502, Message: "upstream  connect error"}},
		{"JSON and text", 500, `{"error":"x"} trailing`, UpstreamError{Code: 500, Message: `{"error":"x"} trailing`}},
		{"HTML", 502, "\n<html><body>Bad Gateway</body></html>", UpstreamError{Code: 502, HTML: true}},
		{"empty", 500, "", UpstreamError{Code: 500}},
		{"vacant", 500, `{"error":null}`, UpstreamError{Code: 500}},
		{"array", 500, `[1]`, UpstreamError{Code: 500, Message: "[1]"}},
		{"stream event", 0, `{"error":{"code":500,"message":"x","type":"server_error"}}`, UpstreamError{Code: 500, Message: "x", Type: "server_error"}},
		{"bad utf-8", 500, "a\xffb", UpstreamError{Code: 500, Message: "a\uFFFDb"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := ParseUpstreamError(tt.status, []byte(tt.body))
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseUpstreamErrorGoldens(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		want UpstreamError
	}{
		{"err-ctx-exceeded.json", UpstreamError{Code: 400, Type: "exceed_context_size_error", Message: "request (18014 tokens) exceeds the available context size (4096 tokens), try increasing it", PromptTokens: 18014, ContextSize: 4096}},
		{"err-nokey.json", UpstreamError{Code: 401, Type: "authentication_error", Message: "Invalid API Key"}},
		{"err-unknown-path.json", UpstreamError{Code: 404, Type: "not_found_error", Message: "File Not Found"}},
		{"err-image-no-mmproj.json", UpstreamError{Code: 500, Type: "server_error", Message: "image input is not supported - hint: if this is unexpected, you may need to provide the mmproj"}},
		{"cors-proxy.json", UpstreamError{Code: 403, Type: "feature_disabled", Message: "this feature is disabled"}},
	}
	for _, tt := range tests {
		got := ParseUpstreamError(403, golden(t, tt.name))
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

func TestUpstreamErrorBounded(t *testing.T) {
	t.Parallel()
	for pad := range 4 {
		got := ParseUpstreamError(500, []byte(strings.Repeat("x", pad)+strings.Repeat("世", 5000)))
		if len(got.Message) > maxUpstreamMessage+3 || !utf8.ValidString(got.Message) || strings.ContainsRune(got.Message, utf8.RuneError) {
			t.Errorf("message of %d bytes, ending %q", len(got.Message), got.Message[len(got.Message)-8:])
		}
	}
}

func TestUpstreamErrorCaller(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		in   UpstreamError
		want Error
	}{
		{"context of llama-server", UpstreamError{Code: 400, Type: "exceed_context_size_error", PromptTokens: 18014, ContextSize: 4096}, *ContextLengthExceeded(4096, 18014)},
		{"context of OpenAI", UpstreamError{Code: 400, Reason: CodeContextExceeded, Type: TypeInvalidRequest, Param: "messages", Message: "too long"},
			Error{Status: 400, Type: TypeInvalidRequest, Code: CodeContextExceeded, Param: "messages", Message: "too long"}},
		{"plain", UpstreamError{Code: 422, Type: "x", Message: "100% wrong"}, Error{Status: 422, Type: TypeInvalidRequest, Message: "100% wrong"}},
		{"not a 4xx", UpstreamError{Code: 500, Message: "bad JSON"}, Error{Status: 400, Type: TypeInvalidRequest, Message: "bad JSON"}},
		{"silent", UpstreamError{Code: 413}, Error{Status: 413, Type: TypeInvalidRequest, Message: "The model server refused the request without saying why: Request Entity Too Large."}},
	}
	for _, tt := range tests {
		if diff := cmp.Diff(&tt.want, tt.in.Caller()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

func TestUpstreamErrorText(t *testing.T) {
	t.Parallel()
	var err error = &UpstreamError{Code: 500, Type: "server_error", Message: "a piece of the prompt"}
	if strings.Contains(err.Error(), "prompt") {
		t.Errorf("%q repeats the message", err)
	}
	if _, ok := errors.AsType[*UpstreamError](err); !ok {
		t.Error("not found as *UpstreamError")
	}
}
