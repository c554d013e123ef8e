package auth

import (
	"errors"
	"net/http"
	"strings"
	"testing"
)

const testKey = "sk-test-0123456789abcdef"

func TestFromHeader(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("k", maxKeyBytes)
	tests := []struct {
		name    string
		header  http.Header
		want    string
		wantErr error
	}{
		{name: "none", header: http.Header{}, wantErr: ErrMissing},
		{name: "bearer", header: http.Header{"Authorization": {"Bearer " + testKey}}, want: testKey},
		{name: "scheme in lower case", header: http.Header{"Authorization": {"bearer " + testKey}}, want: testKey},
		{name: "scheme in upper case", header: http.Header{"Authorization": {"BEARER " + testKey}}, want: testKey},
		{name: "extra spaces", header: http.Header{"Authorization": {"  Bearer    " + testKey + "  "}}, want: testKey},
		{name: "x-api-key", header: http.Header{"X-Api-Key": {testKey}}, want: testKey},
		{name: "both the same", header: http.Header{"Authorization": {"Bearer " + testKey}, "X-Api-Key": {testKey}}, want: testKey},
		{name: "both, different", header: http.Header{"Authorization": {"Bearer " + testKey}, "X-Api-Key": {"other"}}, wantErr: ErrConflict},
		{name: "two Authorization", header: http.Header{"Authorization": {"Bearer " + testKey, "Bearer " + testKey}}, wantErr: ErrDuplicate},
		{name: "two x-api-key", header: http.Header{"X-Api-Key": {testKey, testKey}}, wantErr: ErrDuplicate},
		{name: "two in one, joined by a proxy", header: http.Header{"Authorization": {"Bearer a, Bearer b"}}, wantErr: ErrMalformed},
		{name: "empty header", header: http.Header{"Authorization": {""}}, wantErr: ErrEmpty},
		{name: "scheme alone", header: http.Header{"Authorization": {"Bearer"}}, wantErr: ErrEmpty},
		{name: "scheme and spaces", header: http.Header{"Authorization": {"Bearer   "}}, wantErr: ErrEmpty},
		{name: "empty x-api-key", header: http.Header{"X-Api-Key": {" "}}, wantErr: ErrEmpty},
		{name: "empty is missing", header: http.Header{"Authorization": {"Bearer "}}, wantErr: ErrMissing},
		{name: "basic", header: http.Header{"Authorization": {"Basic YTpi"}}, wantErr: ErrScheme},
		{name: "key without a scheme", header: http.Header{"Authorization": {testKey}}, wantErr: ErrScheme},
		{name: "longest", header: http.Header{"Authorization": {"Bearer " + long}}, want: long},
		{name: "too long", header: http.Header{"Authorization": {"Bearer " + long + "k"}}, wantErr: ErrTooLong},
		{name: "far too long", header: http.Header{"X-Api-Key": {strings.Repeat(".", 1<<20)}}, wantErr: ErrTooLong},
		{name: "control character", header: http.Header{"Authorization": {"Bearer a\x00b"}}, wantErr: ErrMalformed},
		{name: "not ASCII", header: http.Header{"X-Api-Key": {"schlüssel"}}, wantErr: ErrMalformed},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := FromHeader(tt.header)
			if !errors.Is(err, tt.wantErr) {
				t.Fatalf("got error %v, want %v", err, tt.wantErr)
			}
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func FuzzFromHeader(f *testing.F) {
	f.Add("Bearer "+testKey, "")
	f.Add("", testKey)
	f.Add("bearer  ", "\t")
	f.Add("Basic YTpi", "x")
	f.Fuzz(func(t *testing.T, authorization, apiKey string) {
		h := http.Header{}
		if authorization != "" {
			h.Set("Authorization", authorization)
		}
		if apiKey != "" {
			h.Set("X-Api-Key", apiKey)
		}
		key, err := FromHeader(h)
		if err == nil && (key == "" || len(key) > maxKeyBytes || !visibleASCII(key)) {
			t.Errorf("got key %q without an error", key)
		}
		if err != nil && !errors.Is(err, ErrMissing) && !errors.Is(err, ErrMalformed) {
			t.Errorf("got %v, want it to wrap ErrMissing or ErrMalformed", err)
		}
	})
}
