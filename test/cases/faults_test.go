package cases

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"phonebank/test/fakephone"
	"phonebank/test/harness"
)

// faultCase is one thing that goes wrong on the preferred phone while another is healthy.
type faultCase struct {
	name  string
	fault fakephone.Fault
	kind  string // how the gateway calls the attempt, in its log; empty when nothing fails
	// state is where the log says the phone went for it; empty when one such failure does not change it.
	state string
	// partial: content reaches a streaming caller before the fault.
	partial bool
}

func faultCases() []faultCase {
	f := func(k fakephone.Kind) fakephone.Fault { return fakephone.Fault{Kind: k} }
	mid := func(k fakephone.Kind) fakephone.Fault { return fakephone.Fault{Kind: k, After: 3} }
	respond := func(status int, contentType, body string) fakephone.Fault {
		return fakephone.Fault{Kind: fakephone.Respond, Status: status, ContentType: contentType, Body: body}
	}
	return []faultCase{
		{name: "refused", fault: f(fakephone.Refuse), kind: "offline", state: "down"},
		{name: "reset in the handshake", fault: f(fakephone.Reset), kind: "offline", state: "down"},
		{name: "handshake hangs", fault: f(fakephone.HangHandshake), kind: "silent", state: "suspect"},
		{name: "no headers", fault: f(fakephone.HangHeaders), kind: "silent", state: "suspect"},
		{name: "reset instead of headers", fault: f(fakephone.ResetHeaders), kind: "offline", state: "down"},
		{name: "end instead of headers", fault: f(fakephone.EOFHeaders), kind: "broken"},

		{name: "busy", fault: f(fakephone.Status503), kind: "busy"},
		{name: "busy for a second", fault: fakephone.Fault{Kind: fakephone.Status503, RetryAfter: "1"}, kind: "busy"},
		{name: "busy for nonsense", fault: fakephone.Fault{Kind: fakephone.Status503, RetryAfter: "soon"}, kind: "busy"},
		{name: "loading", fault: fakephone.Fault{Kind: fakephone.Loading, Scope: fakephone.ScopeCompletions}, kind: "busy"},
		{name: "too many requests", fault: f(fakephone.Status429), kind: "busy"},
		{name: "server error", fault: f(fakephone.Status500), kind: "unclear"},
		{name: "server error in plain text", fault: respond(500, "text/plain", "out of memory"), kind: "unclear"},
		{name: "wrong key", fault: f(fakephone.Unauthorized401), kind: "misconfigured", state: "down"},
		{name: "forbidden", fault: respond(403, "application/json", `{"error":"host not allowed"}`), kind: "misconfigured", state: "down"},
		{name: "unknown model", fault: respond(404, "application/json", `{"error":{"message":"model not found","code":404}}`), kind: "misconfigured", state: "down"},
		{name: "redirected", fault: respond(302, "text/plain", ""), kind: "broken"},

		{name: "page instead of an answer", fault: f(fakephone.HTML), kind: "broken"},
		{name: "bad gateway page", fault: f(fakephone.HTML502), kind: "broken"},
		{name: "tunnel error", fault: respond(530, "text/html", "<html>1033</html>"), kind: "broken"},
		{name: "page with status 503", fault: respond(503, "text/html", "<html>down</html>"), kind: "broken"},
		{name: "error inside a 200", fault: f(fakephone.ErrorIn200), kind: "unclear"},
		{name: "error as a string inside a 200", fault: respond(200, "application/json", `{"error":"overloaded"}`), kind: "unclear"},
		{name: "busy inside a 200", fault: respond(200, "application/json", `{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}`), kind: "busy"},
		{name: "empty 200", fault: respond(200, "application/json", ""), kind: "nonsense"},
		{name: "null choices", fault: respond(200, "application/json", `{"choices":null,"object":"chat.completion"}`), kind: "broken"},
		{name: "half an answer in JSON", fault: respond(200, "application/json", `{"choices":[{"mess`), kind: "nonsense"},
		{name: "answer that is not a stream", fault: f(fakephone.JSONForStream), kind: "broken"},
		{name: "compressed", fault: f(fakephone.GzipBody), kind: "broken"},
		{name: "empty answer", fault: f(fakephone.EmptyAnswer), kind: "nonsense"},
		{name: "empty stream", fault: respond(200, "text/event-stream", ""), kind: "truncated"},
		{name: "only [DONE]", fault: respond(200, "text/event-stream", "data: [DONE]\n\n"), kind: "truncated"},
		{name: "stream of garbage", fault: respond(200, "text/event-stream", "data: {\"choi\n\n"), kind: "nonsense"},
		{name: "error as first event", fault: respond(200, "text/event-stream", "data: {\"error\":{\"code\":500,\"message\":\"boom\",\"type\":\"server_error\"}}\n\n"), kind: "unclear"},

		{name: "no finish reason", fault: f(fakephone.DoneNoFinish), kind: "truncated", partial: true},
		{name: "no [DONE]", fault: f(fakephone.NoDone), kind: "truncated", partial: true},
		{name: "silence after the role", fault: f(fakephone.HangStream), kind: "stalled"},
		{name: "reset after the role", fault: f(fakephone.ResetStream), kind: "offline", state: "down"},
		{name: "cut after the role", fault: f(fakephone.EOFStream), kind: "truncated"},
		{name: "end after the role", fault: f(fakephone.EndStream), kind: "truncated"},
		{name: "error after the role", fault: f(fakephone.ErrorEvent), kind: "unclear"},
		{name: "shorter than its length", fault: f(fakephone.TruncateLength), kind: "truncated"},
		{name: "reset in the prefill", fault: fakephone.Fault{Kind: fakephone.ResetStream, Batches: 1}, kind: "offline", state: "down"},
		{name: "silence in the middle", fault: mid(fakephone.HangStream), kind: "stalled", partial: true},
		{name: "reset in the middle", fault: mid(fakephone.ResetStream), kind: "offline", state: "down", partial: true},
		{name: "cut in the middle", fault: mid(fakephone.EOFStream), kind: "truncated", partial: true},
		{name: "end in the middle", fault: mid(fakephone.EndStream), kind: "truncated", partial: true},
		{name: "error in the middle", fault: mid(fakephone.ErrorEvent), kind: "unclear", partial: true},
		{name: "shorter than its length in the middle", fault: mid(fakephone.TruncateLength), kind: "truncated", partial: true},

		{name: "one byte in each write", fault: f(fakephone.ChunkSplit)},
	}
}

// trial is one case tried by one caller, in a pool of its own.
type trial struct {
	faultCase
	stream bool
	call   call
	a      *fakephone.Phone // the preferred one
	got    *answer
	record logLine
}

// Whatever goes wrong on a phone, the caller gets the right answer from another one while no content has been delivered, and after that an
// error event and no end mark. The phone is judged for it, and comes back when the fault has gone.
func TestFaultsOfAPhoneNeverReachItsCaller(t *testing.T) {
	t.Parallel()
	var trials []*trial
	for _, c := range faultCases() {
		trials = append(trials, &trial{faultCase: c}, &trial{faultCase: c, stream: true})
	}
	profiles := make([]fakephone.Profile, 0, 2*len(trials))
	for range trials {
		profiles = append(profiles, quick(), slow())
	}
	// Probes are rare, so that the requests meet the faults of the connection first.
	w := startPools(t, harness.Options{Extra: "health: {interval: 60s, timeout: 4s}\n"}, 2, profiles...)
	for i, tt := range trials {
		tt.a = w.fleet.Phones[2*i]
		tt.call = call{body: chatBody("What now?", 30, 12, tt.stream, poolModel(i))}
		setFault(t, tt.a, tt.fault)
	}
	w.sendAll(t, trials)
	for _, tt := range trials {
		t.Run(fmt.Sprintf("%s/stream=%t", tt.name, tt.stream), func(t *testing.T) { tt.check(t, w) })
	}
	for _, tt := range trials {
		clearFault(t, tt.a)
	}
	for _, tt := range trials {
		w.waitState(t, tt.a, "ready")
	}
}

// sendAll sends a few requests at a time: many would strain a small machine, and this is not about that.
func (w *world) sendAll(t *testing.T, trials []*trial) {
	t.Helper()
	var all sync.WaitGroup
	next := make(chan *trial)
	for range 8 {
		all.Go(func() {
			for tt := range next {
				tt.got = w.send(t, tt.call)
			}
		})
	}
	for _, tt := range trials {
		next <- tt
	}
	close(next)
	all.Wait()
}

func (tt *trial) check(t *testing.T, w *world) {
	if tt.got == nil {
		t.Fatal("no answer")
	}
	tt.record = w.record(t, tt.got.header.Get("x-request-id"))
	if tt.stream && tt.partial {
		tt.checkPartial(t)
	} else {
		wantWhole(t, tt.got, tt.call)
		tt.checkAttempts(t)
	}
	if tt.state == "" {
		if w.logged("down", tt.a) || w.logged("suspect", tt.a) {
			t.Error("one such failure took the phone out")
		}
		return
	}
	harness.Eventually(t, patient, func() (bool, string) {
		if w.logged(tt.state, tt.a) {
			return true, ""
		}
		w.send(t, tt.call) // a report may be lost on a machine that is too busy; the next one counts
		return w.logged(tt.state, tt.a), "the log does not say that the phone is " + tt.state
	})
}

func (tt *trial) checkPartial(t *testing.T) {
	t.Helper()
	got, record := tt.got, tt.record
	want := fakephone.Answer(chatPath, []byte(tt.call.body))
	if got.status != http.StatusOK || got.err == nil || got.done || got.err.code() == "" {
		t.Errorf("got status %d, error %+v, done %t, want an error event and no [DONE]", got.status, got.err, got.done)
	}
	if got.text == "" || !strings.HasPrefix(want, got.text) || got.roles != 1 {
		t.Errorf("got text %q after %d roles, want a beginning of %q after one", got.text, got.roles, want)
	}
	if record.Outcome != "truncated" || record.FailedAttempts != tt.kind {
		t.Errorf("got outcome %s, failed attempts %s, want truncated, %s", record.Outcome, record.FailedAttempts, tt.kind)
	}
}

// checkAttempts allows for a probe that met a fault of the connection before the request did.
func (tt *trial) checkAttempts(t *testing.T) {
	t.Helper()
	got, record := tt.got, tt.record
	attempts := "1"
	if tt.kind != "" {
		attempts = "2"
	}
	probed := slices.Contains([]fakephone.Kind{fakephone.Refuse, fakephone.Reset, fakephone.HangHandshake}, tt.fault.Kind)
	if probed && got.late("x-phonebank-attempts") == "1" && record.FailedAttempts == "" {
		return
	}
	if n := got.late("x-phonebank-attempts"); n != attempts || record.FailedAttempts != tt.kind {
		t.Errorf("got %s attempts, failed %q, want %s, %q", n, record.FailedAttempts, attempts, tt.kind)
	}
	if replica := got.late("x-phonebank-replica"); (replica == tt.a.Config().ID) != (tt.kind == "") {
		t.Errorf("got the answer of %s", replica)
	}
}
