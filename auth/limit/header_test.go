package limit

import (
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestSetHeaders(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		d    Decision
		want http.Header
	}{
		{name: "no limits", d: Decision{Allowed: true}, want: http.Header{}},
		{
			name: "admitted",
			d: Decision{
				Allowed:  true,
				Requests: Bucket{Limit: 600, Remaining: 599, Reset: 100 * time.Millisecond},
				Tokens:   Bucket{Limit: 200000, Remaining: 191876, Reset: 2438 * time.Millisecond},
			},
			want: http.Header{
				"X-Ratelimit-Limit-Requests":     {"600"},
				"X-Ratelimit-Remaining-Requests": {"599"},
				"X-Ratelimit-Reset-Requests":     {"100ms"},
				"X-Ratelimit-Limit-Tokens":       {"200000"},
				"X-Ratelimit-Remaining-Tokens":   {"191876"},
				"X-Ratelimit-Reset-Tokens":       {"2.438s"},
			},
		},
		{
			name: "refused, deep in debt",
			d: Decision{
				Tripped: Tokens, RetryAfter: 5*time.Minute + time.Millisecond,
				Tokens: Bucket{Limit: 10, Remaining: 0, Reset: 6 * time.Minute},
			},
			want: http.Header{
				"X-Ratelimit-Limit-Tokens":     {"10"},
				"X-Ratelimit-Remaining-Tokens": {"0"},
				"X-Ratelimit-Reset-Tokens":     {"6m0s"},
				"Retry-After":                  {"301"},
				"Retry-After-Ms":               {"300001"},
			},
		},
		{
			name: "refused for a moment: retry-after is at least a second",
			d:    Decision{Tripped: Requests, RetryAfter: 12 * time.Millisecond, Requests: Bucket{Limit: 5000, Reset: time.Minute}},
			want: http.Header{
				"X-Ratelimit-Limit-Requests":     {"5000"},
				"X-Ratelimit-Remaining-Requests": {"0"},
				"X-Ratelimit-Reset-Requests":     {"1m0s"},
				"Retry-After":                    {"1"},
				"Retry-After-Ms":                 {"12"},
			},
		},
		{
			name: "concurrency alone still says when",
			d:    Decision{Tripped: Concurrent, RetryAfter: time.Second},
			want: http.Header{"Retry-After": {"1"}, "Retry-After-Ms": {"1000"}},
		},
		{
			name: "too large",
			d:    Decision{Tripped: Tokens, TooLarge: true, Tokens: Bucket{Limit: 10, Remaining: 10}},
			want: http.Header{
				"X-Ratelimit-Limit-Tokens":     {"10"},
				"X-Ratelimit-Remaining-Tokens": {"10"},
				"X-Ratelimit-Reset-Tokens":     {"0s"},
				"X-Should-Retry":               {"false"},
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := http.Header{}
			tt.d.SetHeaders(got)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("headers (-want +got):\n%s", diff)
			}
		})
	}
}
