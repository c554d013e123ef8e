package fakephone

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// fast is a phone whose answers take milliseconds.
func fast() Config { return Config{Profile: quick(), Speed: 2000, PingInterval: -1} }

const say = `{"messages":[{"role":"user","content":"LENGTH=12"}],"stream":true}`

func setFault(t *testing.T, p *Phone, f Fault) {
	t.Helper()
	if err := p.SetFault(f); err != nil {
		t.Fatalf("SetFault(%+v): %v", f, err)
	}
}

// healthy checks that the phone answers as if nothing had been.
func healthy(t *testing.T, p *Phone, c client) {
	t.Helper()
	if err := p.Clear(); err != nil {
		t.Fatalf("Clear: %v", err)
	}
	events, err := c.stream(t, chat, say)
	if err != nil || texts(events) != Answer(chat, []byte(say)) || !done(events) {
		t.Errorf("after Clear: %q, %v", texts(events), err)
	}
}

// patience returns a context that ends soon if the answer will not come.
func patience(t *testing.T, hangs bool) (context.Context, context.CancelFunc) {
	if hangs {
		return context.WithTimeout(t.Context(), 100*time.Millisecond)
	}
	return context.WithTimeout(t.Context(), 20*time.Second)
}

func isTimeout(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded)
}

func isReset(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

func TestConnectionFaults(t *testing.T) {
	t.Parallel()
	tests := []struct {
		kind Kind
		want func(error) bool
	}{
		{Refuse, func(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }},
		{Reset, isReset},
		{HangHandshake, isTimeout},
		{Freeze, isTimeout},
	}
	for _, tt := range tests {
		t.Run(string(tt.kind), func(t *testing.T) {
			t.Parallel()
			p, c := overTLS(t, fast())
			setFault(t, p, Fault{Kind: tt.kind})
			for _, path := range []string{"/health", "/props"} {
				ctx, cancel := patience(t, tt.kind == HangHandshake || tt.kind == Freeze)
				resp, err := c.get(ctx, path)
				cancel()
				if err == nil {
					resp.Body.Close()
					t.Fatalf("%s answered %d", path, resp.StatusCode)
				}
				if !tt.want(err) {
					t.Errorf("%s: %v", path, err)
				}
			}
			healthy(t, p, c)
		})
	}
}

func TestFaultsInsteadOfAnAnswer(t *testing.T) {
	t.Parallel()
	tests := []struct {
		fault       Fault
		status      int
		contentType string
		body        string // part of it
	}{
		{Fault{Kind: Status503, RetryAfter: "7"}, 503, jsonType8, "no slot available"},
		{Fault{Kind: Loading}, 503, jsonType8, `{"error":{"message":"Loading model","type":"unavailable_error","code":503}}`},
		{Fault{Kind: Status429, RetryAfter: "soon"}, 429, jsonType8, "rate_limit_error"},
		{Fault{Kind: Status500}, 500, jsonType8, "server_error"},
		{Fault{Kind: Status500, Body: "oops"}, 500, jsonType8, "oops"},
		{Fault{Kind: Unauthorized401}, 401, jsonType8, "Invalid API Key"},
		{Fault{Kind: HTML}, 200, "text/html; charset=utf-8", "<html>"},
		{Fault{Kind: HTML502}, 502, "text/html; charset=utf-8", "Bad gateway"},
		{Fault{Kind: ErrorIn200}, 200, jsonType8, `{"error":{"code":500`},
		{Fault{Kind: Respond, Status: 404, ContentType: "text/plain", Body: "no such tunnel"}, 404, "text/plain", "no such tunnel"},
		{Fault{Kind: Respond}, 200, jsonType8, ""},
	}
	p, c := overTLS(t, fast())
	for _, tt := range tests {
		setFault(t, p, tt.fault)
		resp, err := c.post(t.Context(), chat, say)
		if err != nil {
			t.Fatalf("%s: %v", tt.fault.Kind, err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != tt.status || resp.Header.Get("Content-Type") != tt.contentType || !strings.Contains(string(body), tt.body) {
			t.Errorf("%s: %d %q %s", tt.fault.Kind, resp.StatusCode, resp.Header.Get("Content-Type"), body)
		}
		if got := resp.Header.Get("Retry-After"); got != tt.fault.RetryAfter {
			t.Errorf("%s: Retry-After %q, want %q", tt.fault.Kind, got, tt.fault.RetryAfter)
		}
		health, err := c.get(t.Context(), "/health")
		if err != nil {
			t.Fatal(err)
		}
		health.Body.Close()
		if got, want := health.StatusCode == http.StatusOK, tt.fault.Kind != Loading; got != want {
			t.Errorf("%s: health %d", tt.fault.Kind, health.StatusCode)
		}
	}
	healthy(t, p, c)
	if s := p.Stats(); s.PeakActive != 1 || s.Struck != len(tests)+1 || s.Probes != len(tests) {
		t.Errorf("stats = %+v, want no slot taken by faults", s)
	}
}

func TestSilentFaults(t *testing.T) {
	t.Parallel()
	p, c := overTLS(t, fast())
	tests := []struct {
		kind Kind
		want func(error) bool
	}{
		{HangHeaders, isTimeout},
		{ResetHeaders, isReset},
		{EOFHeaders, func(err error) bool { return errors.Is(err, io.EOF) }},
	}
	for _, tt := range tests {
		setFault(t, p, Fault{Kind: tt.kind})
		ctx, cancel := patience(t, tt.kind == HangHeaders)
		resp, err := c.post(ctx, chat, say)
		cancel()
		if err == nil {
			resp.Body.Close()
			t.Fatalf("%s: answered", tt.kind)
		}
		if !tt.want(err) {
			t.Errorf("%s: %v", tt.kind, err)
		}
	}
	healthy(t, p, c)
}

func TestStreamFaults(t *testing.T) {
	t.Parallel()
	const withProgress = `{"messages":[{"role":"user","content":"LENGTH=12 a a a a a a a a a a a a a a"}],"stream":true,"return_progress":true}`
	clean := func(err error) bool { return err == nil }
	tests := []struct {
		fault Fault
		want  func(error) bool
	}{
		{Fault{Kind: HangStream}, func(err error) bool { return errors.Is(err, context.Canceled) }},
		{Fault{Kind: ResetStream}, isReset},
		{Fault{Kind: EOFStream}, func(err error) bool { return errors.Is(err, io.ErrUnexpectedEOF) }},
		{Fault{Kind: EndStream}, clean},
		{Fault{Kind: ErrorEvent}, clean},
		{Fault{Kind: TruncateLength}, func(err error) bool { return errors.Is(err, io.ErrUnexpectedEOF) }},
	}
	for _, tt := range tests {
		t.Run(string(tt.fault.Kind), func(t *testing.T) {
			t.Parallel()
			cfg := fast()
			cfg.Batch = 10
			p, c := overTLS(t, cfg)
			run := func(f Fault, body string) []event {
				setFault(t, p, f)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				content := 0
				leave := func(e event) { // a hanging stream is left soon after the last event it should have
					if e.text() != "" {
						content++
					}
					if f.Kind == HangStream && (f.Batches == 0 || e.Progress.Processed > 0) && content == f.After {
						time.AfterFunc(50*time.Millisecond, cancel)
					}
				}
				start := time.Now()
				resp, err := c.post(ctx, chat, body)
				if err != nil {
					t.Fatalf("no headers: %v", err)
				}
				defer resp.Body.Close()
				events, err := readStream(start, resp.Body, leave)
				if !tt.want(err) {
					t.Errorf("%+v: %v", f, err)
				}
				if done(events) || finishReason(events) != "" {
					t.Errorf("%+v: the stream pretends to be complete", f)
				}
				if hasError := len(events) > 0 && events[len(events)-1].Error != nil; hasError != (f.Kind == ErrorEvent) {
					t.Errorf("%+v: ends with %s", f, events[len(events)-1].data)
				}
				return events
			}
			for _, after := range []int{0, 1, 5} {
				f := tt.fault
				f.After = after
				events := run(f, say)
				want := strings.Join(chatPromptOf([]byte(say)).pieces(0)[:after], "")
				if got := texts(events); got != want {
					t.Errorf("after %d chunks: %q, want %q", after, got, want)
				}
				if len(events) == 0 || !strings.Contains(events[0].data, `"role":"assistant"`) {
					t.Errorf("after %d chunks: no role first", after)
				}
			}
			if tt.fault.Kind != TruncateLength {
				f := tt.fault
				f.Batches = 1
				events := run(f, withProgress)
				if got := texts(events); got != "" {
					t.Errorf("in prefill: %q", got)
				}
				if len(events) < 2 || events[1].Progress == nil || events[1].Progress.Processed != 10 {
					t.Errorf("in prefill: %d events, want the second to report the first batch", len(events))
				}
			}
			healthy(t, p, c)
			eventually(t, "slots free", func() bool { return p.Stats().Active == 0 })
		})
	}
}

func TestFaultStrikesSoManyTimes(t *testing.T) {
	t.Parallel()
	p, c := overTLS(t, fast())
	setFault(t, p, Fault{Kind: Status503, Times: 2})
	for i, want := range []int{503, 503, 200, 200} {
		if got, _ := c.whole(t, chat, say); got != want {
			t.Errorf("request %d: %d, want %d", i, got, want)
		}
	}
	setFault(t, p, Fault{Kind: Reset, Times: 1})
	if resp, err := c.get(t.Context(), "/health"); err == nil {
		resp.Body.Close()
		t.Error("the first connection was not reset")
	}
	resp, err := c.get(t.Context(), "/health")
	if err != nil {
		t.Fatalf("the second connection: %v", err)
	}
	resp.Body.Close()
	if got := p.Stats().Struck; got != 3 {
		t.Errorf("struck %d times, want 3", got)
	}
}

func TestScope(t *testing.T) {
	t.Parallel()
	p, c := overTLS(t, fast())
	for _, tt := range []struct {
		scope          Scope
		probe, request int
	}{{"", 200, 500}, {ScopeCompletions, 200, 500}, {ScopeProbes, 500, 200}, {ScopeAll, 500, 500}} {
		setFault(t, p, Fault{Kind: Status500, Scope: tt.scope})
		resp, err := c.get(t.Context(), "/health")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if got, _ := c.whole(t, chat, say); got != tt.request || resp.StatusCode != tt.probe {
			t.Errorf("scope %q: health %d, chat %d; want %d, %d", tt.scope, resp.StatusCode, got, tt.probe, tt.request)
		}
	}
}

func TestBadFaults(t *testing.T) {
	t.Parallel()
	p, c := overTLS(t, fast())
	for _, f := range []Fault{{}, {Kind: "x"}, {Kind: Reset, Times: -1}, {Kind: Respond, Status: 100}, {Kind: HTML, Scope: "x"}, {Kind: HangStream, After: -1}} {
		if err := p.SetFault(f); err == nil {
			t.Errorf("SetFault(%+v): no error", f)
		}
	}
	healthy(t, p, c)
}
