package limit

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestAdmit(t *testing.T) {
	t.Parallel()
	full := func(units int) Level { return Level{Grains: grains(units), AtMS: t0} }
	tests := []struct {
		name   string
		state  State
		limits Limits
		cost   Cost
		want   Decision
	}{
		{
			name: "no limits", cost: Cost{Requests: 1, Tokens: 8000}, state: State{Running: 99},
			want: Decision{Allowed: true},
		},
		{
			name:   "all three",
			limits: Limits{RequestsPerMinute: 60, TokensPerMinute: 6000, Concurrent: 2}, state: State{Running: 1},
			cost: Cost{Requests: 1, Tokens: 1500},
			want: Decision{
				Allowed:  true,
				Requests: Bucket{Limit: 60, Remaining: 59, Reset: time.Second},
				Tokens:   Bucket{Limit: 6000, Remaining: 4500, Reset: 15 * time.Second},
			},
		},
		{
			name:   "requests refuse, tokens stay",
			limits: Limits{RequestsPerMinute: 60, TokensPerMinute: 6000}, state: State{Requests: full(0)},
			cost: Cost{Requests: 1, Tokens: 1500},
			want: Decision{
				Tripped: Requests, RetryAfter: time.Second,
				Requests: Bucket{Limit: 60, Reset: time.Minute},
				Tokens:   Bucket{Limit: 6000, Remaining: 6000},
			},
		},
		{
			name:   "tokens refuse, requests stay",
			limits: Limits{RequestsPerMinute: 60, TokensPerMinute: 6000}, state: State{Tokens: full(1000)},
			cost: Cost{Requests: 1, Tokens: 1500},
			want: Decision{
				Tripped: Tokens, RetryAfter: 5 * time.Second,
				Requests: Bucket{Limit: 60, Remaining: 60},
				Tokens:   Bucket{Limit: 6000, Remaining: 1000, Reset: 50 * time.Second},
			},
		},
		{
			name:   "concurrency refuses, both stay",
			limits: Limits{RequestsPerMinute: 60, TokensPerMinute: 6000, Concurrent: 2}, state: State{Running: 2},
			cost: Cost{Requests: 1, Tokens: 1500},
			want: Decision{
				Tripped: Concurrent, RetryAfter: time.Second,
				Requests: Bucket{Limit: 60, Remaining: 60},
				Tokens:   Bucket{Limit: 6000, Remaining: 6000},
			},
		},
		{
			name:   "the longest wait is named",
			limits: Limits{RequestsPerMinute: 60, TokensPerMinute: 6000, Concurrent: 1}, state: State{Requests: full(0), Tokens: full(0), Running: 1},
			cost: Cost{Requests: 1, Tokens: 3000},
			want: Decision{
				Tripped: Tokens, RetryAfter: 30 * time.Second,
				Requests: Bucket{Limit: 60, Reset: time.Minute},
				Tokens:   Bucket{Limit: 6000, Reset: time.Minute},
			},
		},
		{
			name:   "too large comes before any wait",
			limits: Limits{RequestsPerMinute: 1, TokensPerMinute: 6000, Concurrent: 1}, state: State{Requests: full(0), Running: 1},
			cost: Cost{Requests: 1, Tokens: 6001},
			want: Decision{
				Tripped: Tokens, TooLarge: true,
				Requests: Bucket{Limit: 1, Reset: time.Minute},
				Tokens:   Bucket{Limit: 6000, Remaining: 6000},
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			next, got := Admit(tt.state, t0, tt.limits, tt.cost)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
			wantRunning := tt.state.Running
			if tt.want.Allowed {
				wantRunning++
			}
			if next.Running != wantRunning {
				t.Errorf("got %d running, want %d", next.Running, wantRunning)
			}
		})
	}
}

// A caller that fails on purpose gets its tokens back and its request not.
func TestFinishKeepsTheRequestCharged(t *testing.T) {
	t.Parallel()
	l := Limits{RequestsPerMinute: 10, TokensPerMinute: 1000, Concurrent: 1}
	var s State
	admitted := 0
	for range 1000 {
		next, d := Admit(s, t0, l, Cost{Requests: 1, Tokens: 900})
		if s = next; d.Allowed {
			admitted++
			s = Finish(s, t0, l, 900, 0)
		}
	}
	if admitted != 10 {
		t.Errorf("got %d failing requests admitted, want 10", admitted)
	}
	if s.Running != 0 {
		t.Errorf("got %d running, want 0", s.Running)
	}
}

// Twenty reservations whose gateway died leave nothing behind after a minute.
func TestLostReservationsHeal(t *testing.T) {
	t.Parallel()
	l := Limits{TokensPerMinute: 1000}
	var s State
	for range 20 {
		s, _ = Admit(s, t0, l, Cost{Tokens: 50})
	}
	if _, d := Admit(s, t0, l, Cost{Tokens: 1}); d.Allowed {
		t.Fatal("got admitted with an empty bucket")
	}
	if _, d := Admit(s, t0+60_000, l, Cost{Tokens: 1000}); !d.Allowed {
		t.Errorf("got %+v one minute later, want the whole bucket back", d)
	}
}

func TestErr(t *testing.T) {
	t.Parallel()
	if err := (Decision{Allowed: true}).Err(); err != nil {
		t.Errorf("got %v for an admission, want nil", err)
	}
	tests := []struct {
		name string
		d    Decision
		want string
	}{
		{"requests", Decision{Tripped: Requests, RetryAfter: 120 * time.Millisecond, Requests: Bucket{Limit: 600}}, "requests per min: Limit 600, Remaining 0. Please try again in 120ms"},
		{"tokens", Decision{Tripped: Tokens, RetryAfter: time.Second, Tokens: Bucket{Limit: 900, Remaining: 7}}, "tokens per min: Limit 900, Remaining 7"},
		{"too large", Decision{Tripped: Tokens, TooLarge: true, Tokens: Bucket{Limit: 900}}, "too large for the limit on tokens per min: Limit 900"},
		{"concurrent", Decision{Tripped: Concurrent, RetryAfter: time.Second}, "unfinished"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			err := tt.d.Err()
			e, ok := errors.AsType[*Exceeded](err)
			if !ok {
				t.Fatalf("got %T, want *Exceeded", err)
			}
			if e.Decision != tt.d {
				t.Errorf("got %+v, want %+v", e.Decision, tt.d)
			}
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %q, want it to contain %q", err, tt.want)
			}
		})
	}
}
