package relay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"phonebank/balancer"
	"phonebank/gateway/openai"
	"phonebank/test/fakephone"
)

// serve runs handler as a phone inside a bubble until the bubble's test ends.
func serve(t *testing.T, handler http.HandlerFunc) *http.Transport {
	t.Helper()
	l := fakephone.NewMemListener()
	server := &http.Server{Handler: handler}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		_ = server.Serve(l) // ends with Close only
	}()
	transport := &http.Transport{DialContext: l.DialContext, DisableCompression: true, IdleConnTimeout: 3 * time.Second}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		_ = server.Close()
		<-stopped
	})
	return transport
}

func endpoint(engine balancer.Engine) *Endpoint {
	return &Endpoint{URL: &url.URL{Scheme: "http", Host: "phone.example"}, Key: "phone-key", Model: "qwen", Engine: engine}
}

// attempt runs one attempt for a caller who sent request.
func attempt(t *testing.T, transport http.RoundTripper, request string, change ...func(*Job)) (Result, *caller) {
	t.Helper()
	d, c := newDelivery(t, request)
	job := Job{Endpoint: endpoint(balancer.LlamaCpp), Body: []byte(request), Streamed: true, Out: d}
	for _, f := range change {
		f(&job)
	}
	return New(transport, DefaultClocks()).Attempt(t.Context(), job), c
}

// stream answers with events and ends.
func stream(parts ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		for _, p := range parts {
			_, _ = io.WriteString(w, p)
			_ = http.NewResponseController(w).Flush()
		}
	}
}

// then is stream, and then silence until the gateway leaves, which it tells.
func then(left chan<- time.Time, parts ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		stream(parts...)(w, r)
		<-r.Context().Done()
		left <- time.Now()
	}
}

func TestAttemptDeliversAStream(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		phone := serve(t, func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(2 * time.Second)
			stream(progressEvent, pingEvent, roleEvent+helloEvent, finishEvent, usageEvent, doneEvent)(w, r)
		})
		res, c := attempt(t, phone, streamed)
		want := Result{
			Kind: Done, Delivered: true, Phase: Decoding, FirstToken: 2 * time.Second, Total: 2 * time.Second,
			Usage:   openai.Usage{PromptTokens: 7, CompletionTokens: 2, TotalTokens: 9},
			Timings: openai.Timings{PromptN: 7, PromptMS: 70, PredictedN: 2, PredictedMS: 100},
		}
		if diff := cmp.Diff(want, res); diff != "" {
			t.Errorf("result (-want +got):\n%s", diff)
		}
		if want := mine(roleEvent) + mine(helloEvent) + mine(finishEvent) + doneEvent; c.text() != want {
			t.Errorf("got %q, want %q", c.text(), want)
		}
	})
}

func TestAttemptAssemblesForACallerWhoDoesNotStream(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		res, c := attempt(t, serve(t, stream(progressEvent, roleEvent, helloEvent, finishEvent, usageEvent, doneEvent)), unstreamed)
		if res.Kind != Done || !res.Delivered || c.status != http.StatusOK || !strings.Contains(c.text(), `"content":"Hello"`) {
			t.Errorf("got %v, status %d, %s", res.Kind, c.status, c.text())
		}
	})
}

func TestAttemptPassesWhatAnUnstreamedEngineSays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const body = `{"choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"Hi"}}],"model":"qwen","usage":{"prompt_tokens":3,"completion_tokens":1,"total_tokens":4}}`
		phone := serve(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json; charset=utf-8")
			_, _ = io.WriteString(w, body)
		})
		res, c := attempt(t, phone, unstreamed, func(j *Job) { j.Endpoint, j.Streamed = endpoint(balancer.OpenAI), false })
		if want := strings.Replace(body, "qwen", callersName, 1); res.Kind != Done || c.text() != want {
			t.Errorf("got %v, %s, want %s", res.Kind, c.text(), want)
		}
		if res.Usage.PromptTokens != 3 || res.Phase != Decoding {
			t.Errorf("got %+v", res)
		}
	})
}

func TestAttemptSendsNothingOfTheCaller(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var got http.Header
		var host, path, body string
		phone := serve(t, func(w http.ResponseWriter, r *http.Request) {
			raw, _ := io.ReadAll(r.Body)
			got, host, path, body = r.Header, r.Host, r.URL.Path, string(raw)
			stream(helloEvent, finishEvent, doneEvent)(w, r)
		})
		res, _ := attempt(t, phone, streamed, func(j *Job) {
			j.Endpoint.URL.Path = "/tunnel/"
			j.Endpoint.Header = http.Header{"Ngrok-Skip-Browser-Warning": {"1"}, "User-Agent": {"evil"}}
		})
		if res.Kind != Done {
			t.Fatalf("got %v: %v", res.Kind, res.Err)
		}
		want := http.Header{
			"Accept": {"text/event-stream"}, "Authorization": {"Bearer phone-key"}, "Connection": {"close"}, "Content-Type": {"application/json"},
			"Content-Length": {fmt.Sprint(len(streamed))}, "Ngrok-Skip-Browser-Warning": {"1"}, "User-Agent": {"phonebank"},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("headers at the phone (-want +got):\n%s", diff)
		}
		if host != "phone.example" || path != "/tunnel/v1/chat/completions" || body != streamed {
			t.Errorf("got host %s, path %s, body %s", host, path, body)
		}
	})
}

func TestAttemptJudgesStreams(t *testing.T) {
	t.Parallel()
	unfinished := strings.Replace(finishEvent, `"stop"`, "null", 1)
	tests := []struct {
		name      string
		request   string
		sent      []string
		accept    bool
		kind      Kind
		delivered bool
		lost      bool
	}{
		{name: "whole", sent: []string{helloEvent, finishEvent, doneEvent}, kind: Done, delivered: true},
		{name: "end mark without line end", sent: []string{helloEvent, finishEvent, "data: [DONE]"}, kind: Done, delivered: true},
		{name: "words after the end mark", sent: []string{helloEvent, finishEvent, doneEvent, "data: {\n\n"}, kind: Done, delivered: true},
		{name: "carriage returns", sent: []string{strings.ReplaceAll(helloEvent+finishEvent+doneEvent, "\n", "\r\n")}, kind: Done, delivered: true},
		{name: "events without data", sent: []string{"retry: 3000\n\n", "event: heartbeat\ndata:\n\n", helloEvent, "id: 4\n\n", finishEvent, doneEvent}, kind: Done, delivered: true},
		{name: "no end mark", sent: []string{helloEvent, finishEvent}, kind: Truncated, delivered: true},
		{name: "no finish reason", sent: []string{helloEvent, unfinished, doneEvent}, kind: Truncated, delivered: true},
		{name: "nothing", kind: Truncated},
		{name: "role only", sent: []string{roleEvent}, kind: Truncated},
		{name: "cut inside an event", sent: []string{helloEvent, helloEvent[:len(helloEvent)/2]}, kind: Truncated, delivered: true},
		{name: "cut before the blank line", sent: []string{helloEvent, strings.TrimSuffix(finishEvent, "\n\n")}, kind: Truncated, delivered: true},
		{name: "one of two choices", request: twoChoices, sent: []string{helloEvent, finishEvent, doneEvent}, kind: Truncated, delivered: true},
		{name: "both choices", request: twoChoices, sent: []string{helloEvent, finishEvent, strings.Replace(finishEvent, `"index":0`, `"index":1`, 1), doneEvent}, kind: Done, delivered: true},
		{name: "empty answer", sent: []string{roleEvent, finishEvent, doneEvent}, kind: Nonsense},
		{name: "empty answer, believed", sent: []string{roleEvent, finishEvent, doneEvent}, accept: true, kind: Done},
		{name: "not JSON", sent: []string{"data: hello\n\n"}, kind: Nonsense},
		{name: "not an object", sent: []string{"data: [1]\n\n"}, kind: Nonsense},
		{name: "error before content", sent: []string{roleEvent, "data: {\"error\":{\"code\":500,\"type\":\"server_error\"}}\n\n"}, kind: Unclear},
		{name: "error after content", sent: []string{helloEvent, "data: {\"error\":{\"code\":503,\"type\":\"unavailable_error\"}}\n\n"}, kind: Busy, delivered: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				request := streamed
				if tt.request != "" {
					request = tt.request
				}
				res, c := attempt(t, serve(t, stream(tt.sent...)), request, func(j *Job) { j.AcceptEmpty = tt.accept })
				if res.Kind != tt.kind || res.Delivered != tt.delivered || res.Lost != tt.lost {
					t.Errorf("got %v, delivered %t, lost %t (%v), want %v, %t, %t", res.Kind, res.Delivered, res.Lost, res.Err, tt.kind, tt.delivered, tt.lost)
				}
				if ended := strings.Contains(c.text(), "[DONE]"); ended != (tt.kind == Done) {
					t.Errorf("got [DONE] %t after %v", ended, res.Kind)
				}
				if IsEmpty(res) != strings.HasPrefix(tt.name, "empty answer") && tt.kind != Done {
					t.Errorf("got IsEmpty %t", IsEmpty(res))
				}
			})
		})
	}
}

func TestAttemptJudgesOtherAnswers(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name        string
		contentType string
		encoding    string
		body        string
		streamed    bool
		kind        Kind
	}{
		{name: "page", contentType: "text/html; charset=utf-8", body: "<html>", streamed: true, kind: Broken},
		{name: "no type", body: "", streamed: true, kind: Broken},
		{name: "compressed", contentType: "text/event-stream", encoding: "gzip", body: "\x1f\x8b", streamed: true, kind: Broken},
		{name: "stream with a charset", contentType: "text/event-stream; charset=utf-8", body: helloEvent + finishEvent + doneEvent, streamed: true, kind: Done},
		{name: "stream by another name", contentType: "application/x-ndjson", body: helloEvent + finishEvent + doneEvent, streamed: true, kind: Done},
		{name: "stream nobody asked for", contentType: "text/event-stream", body: helloEvent + finishEvent + doneEvent, kind: Done},
		{name: "JSON for a stream", contentType: "application/json", body: `{"choices":[{"finish_reason":"stop"}]}`, streamed: true, kind: Broken},
		{name: "error for a stream", contentType: "application/json", body: `{"error":{"code":400,"type":"invalid_request_error","message":"no"}}`, streamed: true, kind: Caller},
		{name: "error", contentType: "application/json", body: `{"error":"boom"}`, kind: Unclear},
		{name: "no choices", contentType: "application/json", body: `{"choices":null}`, kind: Nonsense},
		{name: "half", contentType: "application/json", body: `{"choices":[`, kind: Nonsense},
		{name: "nothing", contentType: "application/json", body: ``, kind: Nonsense},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				phone := serve(t, func(w http.ResponseWriter, r *http.Request) {
					w.Header()["Content-Type"] = nil
					if tt.contentType != "" {
						w.Header().Set("Content-Type", tt.contentType)
					}
					if tt.encoding != "" {
						w.Header().Set("Content-Encoding", tt.encoding)
					}
					_, _ = io.WriteString(w, tt.body)
				})
				res, c := attempt(t, phone, unstreamed, func(j *Job) { j.Streamed = tt.streamed })
				if res.Kind != tt.kind {
					t.Errorf("got %v (%v), want %v", res.Kind, res.Err, tt.kind)
				}
				if tt.kind != Done && c.text() != "" {
					t.Errorf("got %q at the caller, want nothing", c.text())
				}
			})
		})
	}
}

func TestAttemptBoundsEvents(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		phone := serve(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, "data: \"")
			block := strings.Repeat("x", 1<<20)
			for range 2 * maxEvent >> 20 {
				if _, err := io.WriteString(w, block); err != nil {
					return
				}
			}
		})
		if res, _ := attempt(t, phone, streamed); res.Kind != Nonsense || !errors.Is(res.Err, openai.ErrEventTooLarge) {
			t.Errorf("got %v, %v, want nonsense: too large", res.Kind, res.Err)
		}
	})
}

func TestAttemptCountsTokensThatThePhoneDoesNot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		res, _ := attempt(t, serve(t, stream(helloEvent, helloEvent, helloEvent)), streamed)
		if !res.Counted || res.Usage.CompletionTokens != 3 || res.Usage.PromptTokens != 0 {
			t.Errorf("got usage %+v, counted %t, want 3 tokens counted by us", res.Usage, res.Counted)
		}
	})
}

func TestAttemptClocks(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name      string
		predicted time.Duration
		sent      []string
		kind      Kind
		after     time.Duration
		delivered bool
	}{
		{name: "no headers, small job", kind: Silent, after: 30 * time.Second},
		{name: "no headers, job of a minute", predicted: time.Minute, kind: Silent, after: 3 * time.Minute},
		{name: "no headers, endless job", predicted: time.Hour, kind: Silent, after: 15 * time.Minute},
		{name: "no token, job of a minute", predicted: time.Minute, sent: []string{progressEvent}, kind: Stalled, after: 3 * time.Minute},
		{name: "pings end", predicted: time.Minute, sent: []string{progressEvent, pingEvent}, kind: Stalled, after: 16 * time.Second},
		{name: "tokens end", predicted: time.Minute, sent: []string{helloEvent}, kind: Stalled, after: 45 * time.Second, delivered: true},
		{name: "tokens and pings end", predicted: time.Minute, sent: []string{pingEvent, helloEvent}, kind: Stalled, after: 16 * time.Second, delivered: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				left := make(chan time.Time, 1)
				handler := then(left, tt.sent...)
				if len(tt.sent) == 0 {
					handler = func(_ http.ResponseWriter, r *http.Request) {
						_, _ = io.Copy(io.Discard, r.Body)
						<-r.Context().Done()
						left <- time.Now()
					}
				}
				start := time.Now()
				res, _ := attempt(t, serve(t, handler), streamed, func(j *Job) { j.Predicted = tt.predicted })
				if res.Kind != tt.kind || !res.Lost || res.Delivered != tt.delivered || res.Total != tt.after {
					t.Errorf("got %v, lost %t, delivered %t after %v, want %v, true, %t after %v",
						res.Kind, res.Lost, res.Delivered, res.Total, tt.kind, tt.delivered, tt.after)
				}
				if noticed := (<-left).Sub(start); noticed != tt.after {
					t.Errorf("the phone was told after %v, want %v", noticed, tt.after)
				}
			})
		})
	}
}

func TestAttemptWaitsForAPhoneThatIsAtWork(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		phone := serve(t, func(w http.ResponseWriter, r *http.Request) {
			stream(progressEvent)(w, r)
			for range 60 { // five minutes of prefill
				time.Sleep(5 * time.Second)
				stream(pingEvent)(w, r)
			}
			for range 10 {
				time.Sleep(10 * time.Second) // and slow tokens
				stream(helloEvent)(w, r)
			}
			stream(finishEvent, doneEvent)(w, r)
		})
		res, _ := attempt(t, phone, streamed, func(j *Job) { j.Predicted = 10 * time.Second })
		if res.Kind != Done || res.FirstToken != 310*time.Second {
			t.Errorf("got %v (%v), first token after %v", res.Kind, res.Err, res.FirstToken)
		}
	})
}

// slowCaller does not read for a while.
type slowCaller struct {
	*caller
	pause time.Duration
}

func (c slowCaller) Write(p []byte) (int, error) {
	time.Sleep(c.pause)
	return c.caller.Write(p)
}

func TestAttemptDoesNotBlameThePhoneForASlowCaller(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := slowCaller{newCaller(), 2 * time.Minute}
		d := NewDelivery(c, head(t, streamed), callersName, time.Now(), DefaultClocks())
		job := Job{Endpoint: endpoint(balancer.LlamaCpp), Body: []byte(streamed), Streamed: true, Out: d}
		res := New(serve(t, stream(helloEvent, helloEvent, finishEvent, doneEvent)), DefaultClocks()).Attempt(t.Context(), job)
		if res.Kind != Done {
			t.Errorf("got %v (%v), want done", res.Kind, res.Err)
		}
	})
}

func TestAttemptEndsWithItsCaller(t *testing.T) {
	t.Parallel()
	for _, phase := range []Phase{Waiting, Prefill, Decoding} {
		t.Run(fmt.Sprint(phase), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				left := make(chan time.Time, 1)
				handler := map[Phase]http.HandlerFunc{
					Waiting: func(_ http.ResponseWriter, r *http.Request) {
						_, _ = io.Copy(io.Discard, r.Body)
						<-r.Context().Done()
						left <- time.Now()
					},
					Prefill:  then(left, progressEvent),
					Decoding: then(left, helloEvent),
				}[phase]
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				d, _ := newDelivery(t, streamed)
				start := time.Now()
				res := New(serve(t, handler), DefaultClocks()).Attempt(ctx, Job{Endpoint: endpoint(balancer.LlamaCpp), Body: []byte(streamed), Streamed: true, Out: d})
				if res.Kind != Cancelled || res.Lost || res.Phase != phase {
					t.Errorf("got %v, lost %t, phase %d, want cancelled, false, %d", res.Kind, res.Lost, res.Phase, phase)
				}
				if noticed := (<-left).Sub(start); noticed != 5*time.Second {
					t.Errorf("the phone was told after %v, want 5s", noticed)
				}
			})
		})
	}
}

func TestAttemptEndsWhenWritingFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, c := newDelivery(t, streamed)
		c.leave()
		left := make(chan time.Time, 1)
		phone := serve(t, then(left, helloEvent))
		res := New(phone, DefaultClocks()).Attempt(t.Context(), Job{Endpoint: endpoint(balancer.LlamaCpp), Streamed: true, Out: d})
		if res.Kind != Cancelled {
			t.Errorf("got %v, want cancelled", res.Kind)
		}
		<-left // the phone has been told
	})
}

// trips is a transport that fails as told, in turn, and then answers.
type trips struct {
	fail   []error
	reused bool // the connection was kept from before
	made   int
}

func (f *trips) RoundTrip(r *http.Request) (*http.Response, error) {
	f.made++
	var dial *DialError
	failed := f.made <= len(f.fail)
	if trace := httptrace.ContextClientTrace(r.Context()); !failed || !errors.As(f.fail[f.made-1], &dial) {
		trace.GotConn(httptrace.GotConnInfo{Reused: f.reused && f.made == 1})
	}
	if failed {
		return nil, f.fail[f.made-1]
	}
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/event-stream"}},
		Body: io.NopCloser(strings.NewReader(helloEvent + finishEvent + doneEvent)),
	}, nil
}

func TestAttemptTriesAFreshConnectionOnce(t *testing.T) {
	t.Parallel()
	hung := &DialError{Handshake: true, Err: context.DeadlineExceeded}
	tests := []struct {
		name  string
		trips trips
		kind  Kind
		phase Phase
		made  int
	}{
		{"hung handshake, then fine", trips{fail: []error{hung}}, Done, Decoding, 2},
		{"hung twice", trips{fail: []error{hung, hung}}, Silent, Connecting, 2},
		{"hung connect", trips{fail: []error{&DialError{Err: context.DeadlineExceeded}}}, Silent, Connecting, 1},
		{"refused", trips{fail: []error{&DialError{Err: syscall.ECONNREFUSED}}}, Offline, Connecting, 1},
		{"end of the handshake", trips{fail: []error{&DialError{Handshake: true, Err: io.EOF}}}, Offline, Connecting, 1},
		{"kept connection was closed", trips{fail: []error{io.EOF}, reused: true}, Done, Decoding, 2},
		{"kept connection was reset", trips{fail: []error{syscall.ECONNRESET}, reused: true}, Done, Decoding, 2},
		{"new connection was closed", trips{fail: []error{io.EOF}}, Broken, Waiting, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			res, _ := attempt(t, &tt.trips, streamed)
			if res.Kind != tt.kind || res.Phase != tt.phase || tt.trips.made != tt.made {
				t.Errorf("got %v in phase %d after %d connections, want %v in %d after %d", res.Kind, res.Phase, tt.trips.made, tt.kind, tt.phase, tt.made)
			}
		})
	}
}

// When the attempt's own clock strikes inside a handshake, the phone has not heard of the request either.
func TestAttemptKnowsThatAHungHandshakeReachedNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var dials atomic.Int32
		over := make(chan struct{})
		defer close(over)
		transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
			dials.Add(1)
			<-over
			return nil, &DialError{Handshake: true, Err: context.DeadlineExceeded}
		}}
		res, _ := attempt(t, transport, streamed)
		if res.Kind != Silent || res.Phase != Connecting || dials.Load() != 2 || res.Total != 60*time.Second {
			t.Errorf("got %v in phase %d after %d dials and %v, want silent, connecting, 2, 1m0s", res.Kind, res.Phase, dials.Load(), res.Total)
		}
	})
}
