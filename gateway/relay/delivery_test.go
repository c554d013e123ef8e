package relay

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"phonebank/gateway/openai"
)

func TestDeliveryHoldsBackUntilContent(t *testing.T) {
	t.Parallel()
	d, c := newDelivery(t, streamed)
	d.begin()
	if err := pass(t, d, roleEvent); err != nil {
		t.Fatal(err)
	}
	if d.Committed() || d.delivered() || c.text() != "" {
		t.Fatalf("got status %d and %q after the role, want nothing", c.status, c.text())
	}
	d.begin() // that phone was lost: its role is forgotten
	if err := pass(t, d, roleEvent+helloEvent); err != nil {
		t.Fatal(err)
	}
	if !d.Committed() || !d.delivered() || c.status != http.StatusOK {
		t.Errorf("got status %d, delivered %t after content, want 200, true", c.status, d.delivered())
	}
	if diff := cmp.Diff(mine(roleEvent)+mine(helloEvent), c.text()); diff != "" {
		t.Errorf("stream (-want +got):\n%s", diff)
	}
	if c.unflushed() != "" {
		t.Errorf("content is still in the buffer: %q", c.unflushed())
	}
	if got := c.header.Get("Content-Type"); got != "text/event-stream" {
		t.Errorf("got content type %q", got)
	}
	for name, want := range map[string]string{"Cache-Control": "no-cache, no-transform", "X-Accel-Buffering": "no"} {
		if got := c.header.Get(name); got != want {
			t.Errorf("got %s %q, want %q", name, got, want)
		}
	}
	if c.header.Get("openai-processing-ms") == "" {
		t.Error("openai-processing-ms is missing")
	}
}

func TestDeliveryFlushesOnceForEventsThatCameTogether(t *testing.T) {
	t.Parallel()
	d, c := newDelivery(t, streamed)
	d.begin()
	chunk, err := openai.ParseChunk(openai.ChatCompletions, []byte(strings.TrimPrefix(strings.TrimSpace(helloEvent), "data: ")))
	if err != nil {
		t.Fatal(err)
	}
	ev := openai.Event{Raw: []byte(helloEvent), Data: []byte(strings.TrimPrefix(strings.TrimSpace(helloEvent), "data: ")), More: true}
	if err := d.event(ev, chunk); err != nil {
		t.Fatal(err)
	}
	if c.unflushed() == "" {
		t.Error("flushed though another event is at hand")
	}
	ev.More = false
	if err := d.event(ev, chunk); err != nil {
		t.Fatal(err)
	}
	if c.unflushed() != "" {
		t.Error("not flushed after the last event at hand")
	}
}

func TestDeliveryHidesWhatTheCallerDidNotAskFor(t *testing.T) {
	t.Parallel()
	const (
		timed  = `data: {"choices":[{"index":0,"delta":{"content":"x"}}],"model":"qwen","timings":{"prompt_n":7}}` + "\n\n"
		hidden = `data: {"choices":[{"index":0,"delta":{"content":"x"}}],"model":"qwen"}` + "\n\n"
		// The usage chunk, with the timings the engine hangs on it taken away.
		usageOnly = `data: {"choices":[],"created":1,"id":"chatcmpl-1","model":"qwen","object":"chat.completion.chunk","usage":{"completion_tokens":2,"prompt_tokens":7,"total_tokens":9}}` + "\n\n"
	)
	tests := []struct {
		name, request, sent, want string
	}{
		{"progress", streamed, progressEvent + helloEvent, helloEvent},
		{"usage", streamed, helloEvent + finishEvent + usageEvent, helloEvent + finishEvent},
		{"timings", streamed, timed, hidden},
		{"nothing asked for by a plain request", streamed, progressEvent + roleEvent + timed + finishEvent + usageEvent, roleEvent + hidden + finishEvent},
		{"usage asked for", withUsage, helloEvent + finishEvent + usageEvent, helloEvent + finishEvent + usageOnly},
		{"progress and timings asked for", withExtras, progressEvent + timed, progressEvent + timed},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			d, c := newDelivery(t, tt.request)
			d.begin()
			if err := pass(t, d, tt.sent); err != nil {
				t.Fatal(err)
			}
			want := strings.ReplaceAll(tt.want, `"model":"qwen"`, `"model":"`+callersName+`"`)
			if diff := cmp.Diff(want, c.text()); diff != "" {
				t.Errorf("stream (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDeliveryTellsProgress(t *testing.T) {
	t.Parallel()
	d, _ := newDelivery(t, streamed)
	d.begin()
	if err := pass(t, d, progressEvent); err != nil {
		t.Fatal(err)
	}
	if done, total := d.Progress(); done != 512 || total != 600 {
		t.Errorf("got progress %d of %d, want 512 of 600", done, total)
	}
	d.begin()
	if done, total := d.Progress(); done != 0 || total != 0 {
		t.Errorf("got progress %d of %d of a phone that has just begun, want none", done, total)
	}
}

func TestDeliveryCompletes(t *testing.T) {
	t.Parallel()
	d, c := newDelivery(t, streamed)
	d.begin()
	if err := pass(t, d, roleEvent+helloEvent); err != nil {
		t.Fatal(err)
	}
	d.Note("x-phonebank-attempts", "1")
	d.Note("x-phonebank-attempts", "2") // the last word counts
	d.Note("x-phonebank-replica", "phone-1")
	if err := d.complete(); err != nil {
		t.Fatal(err)
	}
	tail := ": x-phonebank-attempts: 2\n: x-phonebank-replica: phone-1\ndata: [DONE]\n\n"
	if !strings.HasSuffix(c.text(), "}\n\n"+tail) {
		t.Errorf("got end %q, want %q", c.text(), tail)
	}
	if c.unflushed() != tail {
		t.Errorf("got %q in the buffer, want the tail: the slot must be free before the caller can read it", c.unflushed())
	}
	before := c.text()
	d.Fail(openai.Internal(), func(http.Header) { t.Error("headers asked for after the end") })
	if err := d.Comment("late"); err != nil || c.text() != before {
		t.Errorf("got %q after the end", strings.TrimPrefix(c.text(), before))
	}
}

func TestDeliveryNoteBeforeTheCommitIsAHeader(t *testing.T) {
	t.Parallel()
	d, c := newDelivery(t, streamed)
	d.begin()
	d.Note("x-phonebank-replica", "phone-1")
	d.Note("x-phonebank-replica", "phone-2")
	if err := pass(t, d, helloEvent); err != nil {
		t.Fatal(err)
	}
	if err := d.complete(); err != nil {
		t.Fatal(err)
	}
	if got := c.header.Get("x-phonebank-replica"); got != "phone-2" {
		t.Errorf("got header %q, want phone-2", got)
	}
	if strings.Contains(c.text(), "x-phonebank") {
		t.Errorf("header is repeated in the stream: %q", c.text())
	}
}

func TestDeliveryCommentCommitsWithoutAnEvent(t *testing.T) {
	t.Parallel()
	d, c := newDelivery(t, streamed)
	if err := d.Comment("queued, 3 ahead"); err != nil {
		t.Fatal(err)
	}
	if c.status != http.StatusOK || !d.Committed() || d.delivered() {
		t.Errorf("got status %d, delivered %t, want 200 and no content", c.status, d.delivered())
	}
	if want := ": queued, 3 ahead\n"; c.text() != want || c.unflushed() != "" {
		t.Errorf("got %q (%q unflushed), want %q: a blank line would be an event to some SDKs", c.text(), c.unflushed(), want)
	}
	d.begin()
	if err := pass(t, d, roleEvent+helloEvent); err != nil {
		t.Fatal(err)
	}
	if want := ": queued, 3 ahead\n" + mine(roleEvent) + mine(helloEvent); c.text() != want {
		t.Errorf("got %q, want %q", c.text(), want)
	}
}

func TestDeliveryCommentsOnlyForStreams(t *testing.T) {
	t.Parallel()
	d, c := newDelivery(t, unstreamed)
	if err := d.Comment("queued"); err != nil {
		t.Fatal(err)
	}
	if d.Committed() || c.text() != "" {
		t.Errorf("got %q, want nothing before an unstreamed answer", c.text())
	}
}

func TestDeliveryFail(t *testing.T) {
	t.Parallel()
	failure := openai.BadGateway("All phones failed.")
	body := `{"error":{"message":"All phones failed.","type":"server_error","param":null,"code":"bad_gateway"}}`

	t.Run("before the commit", func(t *testing.T) {
		t.Parallel()
		for _, request := range []string{streamed, unstreamed} {
			d, c := newDelivery(t, request)
			d.begin()
			if err := pass(t, d, roleEvent); err != nil {
				t.Fatal(err)
			}
			d.Fail(failure, func(h http.Header) { h.Set("Retry-After", "7") })
			d.Fail(openai.Internal(), func(http.Header) {}) // only the first counts
			if c.status != http.StatusBadGateway || c.text() != body {
				t.Errorf("got %d %q, want 502 %q", c.status, c.text(), body)
			}
			if c.header.Get("Content-Type") != "application/json" || c.header.Get("Retry-After") != "7" {
				t.Errorf("got headers %v", c.header)
			}
		}
	})
	t.Run("after a comment", func(t *testing.T) {
		t.Parallel()
		d, c := newDelivery(t, streamed)
		if err := d.Comment("queued"); err != nil {
			t.Fatal(err)
		}
		d.Fail(failure, func(http.Header) { t.Error("headers asked for after the commit") })
		if want := ": queued\ndata: " + body + "\n\n"; c.status != http.StatusOK || c.text() != want {
			t.Errorf("got %d %q, want 200 %q", c.status, c.text(), want)
		}
	})
	t.Run("after content", func(t *testing.T) {
		t.Parallel()
		d, c := newDelivery(t, streamed)
		d.begin()
		if err := pass(t, d, helloEvent); err != nil {
			t.Fatal(err)
		}
		d.Fail(failure, func(http.Header) { t.Error("headers asked for after the commit") })
		if want := mine(helloEvent) + "data: " + body + "\n\n"; c.text() != want || strings.Contains(c.text(), "[DONE]") {
			t.Errorf("got %q, want %q", c.text(), want)
		}
	})
}

func TestDeliveryOfACallerWhoHasGone(t *testing.T) {
	t.Parallel()
	d, c := newDelivery(t, streamed)
	d.begin()
	c.leave()
	if err := pass(t, d, helloEvent); !errors.Is(err, errCallerGone) {
		t.Errorf("event: got %v, want errCallerGone", err)
	}
	if err := d.Comment("queued"); !errors.Is(err, errCallerGone) {
		t.Errorf("comment: got %v, want errCallerGone", err)
	}
	if err := d.complete(); !errors.Is(err, errCallerGone) {
		t.Errorf("complete: got %v, want errCallerGone", err)
	}
}

func TestDeliveryBoundsWhatItHolds(t *testing.T) {
	t.Parallel()
	d, c := newDelivery(t, streamed)
	d.begin()
	huge := `data: {"choices":[{"index":0,"delta":{"role":"assistant"}}],"padding":"` + strings.Repeat("x", maxHeld) + `"}` + "\n\n"
	if err := pass(t, d, huge); !errors.Is(err, openai.ErrEventTooLarge) {
		t.Errorf("got %v, want ErrEventTooLarge", err)
	}
	if c.text() != "" {
		t.Error("something was delivered")
	}
}

func TestDeliveryAssembles(t *testing.T) {
	t.Parallel()
	d, c := newDelivery(t, unstreamed)
	d.begin()
	if err := pass(t, d, roleEvent+helloEvent); err != nil {
		t.Fatal(err)
	}
	d.begin() // lost: only the second phone's words count
	if err := pass(t, d, progressEvent+roleEvent+helloEvent+finishEvent+usageEvent); err != nil {
		t.Fatal(err)
	}
	if d.Committed() {
		t.Fatal("committed before the answer is whole")
	}
	if err := d.complete(); err != nil {
		t.Fatal(err)
	}
	want := `{"choices":[{"finish_reason":"stop","index":0,"message":{"role":"assistant","content":"Hello"}}],` +
		`"object":"chat.completion","created":1,"id":"chatcmpl-1","model":"qwen3.5-9b","usage":{"completion_tokens":2,"prompt_tokens":7,"total_tokens":9}}`
	if diff := cmp.Diff(want, c.text()); diff != "" {
		t.Errorf("body (-want +got):\n%s", diff)
	}
	if c.header.Get("Content-Type") != "application/json" || c.header.Get("Content-Length") == "" || c.header.Get("Cache-Control") != "" {
		t.Errorf("got headers %v", c.header)
	}
}

func TestDeliveryUnstreamedBody(t *testing.T) {
	t.Parallel()
	d, c := newDelivery(t, unstreamed)
	d.begin()
	if err := d.body([]byte(`{ "model" : "qwen", "choices":[], "timings":{"x":1}, "usage":{"prompt_tokens":1}, "huge":12345678901234567890 }`)); err != nil {
		t.Fatal(err)
	}
	if want := `{ "model" : "qwen3.5-9b", "choices":[], "usage":{"prompt_tokens":1}, "huge":12345678901234567890 }`; c.text() != want {
		t.Errorf("got %s, want %s", c.text(), want)
	}
	if !d.delivered() {
		t.Error("not counted as delivered")
	}
}

func TestAppendEventKeepsBytes(t *testing.T) {
	t.Parallel()
	const data = `{"choices" : [ ],"model":"qwen", "n":1.00, "s":"\u00e9é🙂"}`
	edited := strings.Replace(data, "qwen", "mine", 1)
	tests := []struct{ name, raw, want string }{
		{"line feeds", "data: " + data + "\n\n", "data: " + edited + "\n\n"},
		{"carriage returns and line feeds", "data: " + data + "\r\n\r\n", "data: " + edited + "\r\n\r\n"},
		{"carriage returns", "data: " + data + "\r\r", "data: " + edited + "\r\r"},
		{"no space", "data:" + data + "\n\n", "data:" + edited + "\n\n"},
		{"other fields", "event: x\nid: 7\nretry: 10\ndata: " + data + "\n: c\n\n", "event: x\nid: 7\nretry: 10\ndata: " + edited + "\n: c\n\n"},
		{"byte order mark", "\xEF\xBB\xBFdata: " + data + "\n\n", "\xEF\xBB\xBFdata: " + edited + "\n\n"},
		{"mixed line ends", "data: " + data + "\n\r\n", "data: " + edited + "\n\r\n"},
		{"several lines become one", "data: {\"model\":\ndata: \"qwen\"}\n\n", "data: {\"model\": \"mine\"}\n\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for ev, err := range openai.Events(strings.NewReader(tt.raw), maxEvent) {
				if err != nil {
					t.Fatal(err)
				}
				got := string(appendEvent(nil, ev, openai.ChunkEdits{Model: "mine"}))
				if got != tt.want {
					t.Errorf("got %q, want %q", got, tt.want)
				}
				return
			}
		})
	}
}

func TestDeliveryCountsSilenceFromTheStartOfTheRequest(t *testing.T) {
	t.Parallel()
	c := newCaller()
	start := time.Now().Add(-time.Minute)
	d := NewDelivery(c, head(t, streamed), callersName, start, DefaultClocks())
	next, err := d.commentIfSilent(10*time.Second, 20*time.Second, func() string { return "working" })
	if err != nil || next != 20*time.Second || c.text() != ": working\n" {
		t.Errorf("got next %v, %v, %q, want a comment at once and the next in 20s", next, err, c.text())
	}
}
