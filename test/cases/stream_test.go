package cases

import (
	"bufio"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"phonebank/test/fakephone"
	"phonebank/test/harness"
)

// streamCase is a way to write the same answer down.
type streamCase struct {
	name   string
	answer http.HandlerFunc
	want   string // bytes at the caller
	text   string // of the assembled answer
	in     int    // tokens in the log; 0: not counted
	out    int
}

func streamCases() []streamCase {
	hello := roleEvent + says("Hel") + says("lo") + finishEvent + usageEvent
	const cjk = "你好，世界 🙂👩‍👩‍👧‍👦 é"
	chinese := roleEvent + says(cjk) + finishEvent + usageEvent
	crlf := strings.ReplaceAll(hello, "\n", "\r\n")
	tight := strings.ReplaceAll(hello, "data: ", "data:")
	labelled := "retry: 3000\n\n" + "event: chunk\nid: 7\n" + says("Hello") + "id: 8\n" + finishEvent + usageEvent
	bare := strings.ReplaceAll(hello, "\n", "\r")
	cases := []streamCase{
		{name: "cut anywhere", answer: writes(roleEvent[:3], roleEvent[3:40], roleEvent[40:len(roleEvent)-1], "\n"+says("Hel")[:60], says("Hel")[60:]+says("lo")+finishEvent[:7], finishEvent[7:]+usageEvent+doneEvent), want: hello},
		{name: "all in one write", answer: writes(hello + doneEvent), want: hello},
		{name: "one byte in each write", answer: bytewise(hello + doneEvent), want: hello},
		{name: "announced length", answer: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
			w.Header().Set("Content-Length", strconv.Itoa(len(hello+doneEvent)))
			_, _ = io.WriteString(w, hello+doneEvent)
		}, want: hello},
		{name: "raw characters cut inside", answer: bytewise(chinese + doneEvent), want: chinese, text: cjk},
		{name: "carriage returns", answer: writes(crlf + "data: [DONE]\r\n\r\n"), want: crlf},
		{name: "carriage returns cut inside", answer: bytewise(crlf + "data: [DONE]\r\n\r\n"), want: crlf},
		{name: "only carriage returns", answer: writes(bare + "data: [DONE]\r\r"), want: bare},
		{name: "no space after the colon", answer: writes(tight + "data:[DONE]\n\n"), want: tight},
		{name: "other fields", answer: writes(labelled + doneEvent), want: strings.TrimPrefix(labelled, "retry: 3000\n\n")},
		{name: "byte order mark", answer: writes("\xEF\xBB\xBF" + hello + doneEvent), want: "\xEF\xBB\xBF" + hello},
		{name: "no line end after [DONE]", answer: writes(hello + "data: [DONE]"), want: hello},
		{name: "pings of the engine", answer: writes(":\n\n", roleEvent+":\n\n", says("Hel"), ":\n\n", says("lo")+finishEvent+usageEvent+":\n\n"+doneEvent), want: hello},
		{name: "data over several lines", answer: writes(roleEvent + says("Hello") + "data: {\"choices\":[{\"finish_reason\":\"stop\",\ndata: \"index\":0,\"delta\":{}}]}\n\n" + usageEvent + doneEvent),
			want: roleEvent + says("Hello") + "data: {\"choices\":[{\"finish_reason\":\"stop\", \"index\":0,\"delta\":{}}]}\n\n" + usageEvent},
	}
	for i := range cases {
		c := &cases[i]
		c.in, c.out = 7, 5
		if c.text == "" {
			c.text = "Hello"
		}
	}
	return append(cases, usageCases()...)
}

// usageCases are the shapes in which engines tell what they have used.
func usageCases() []streamCase {
	const usage = `"usage":{"completion_tokens":5,"prompt_tokens":7,"total_tokens":12}`
	body := roleEvent + says("Hello") + finishEvent
	nulls := strings.ReplaceAll(body, `"id":`, `"usage":null,"id":`)
	var cases []streamCase
	for _, c := range []struct{ name, stream string }{
		{"usage with empty choices", body + "data: {\"choices\":[]," + usage + "}\n\n"},
		{"usage without choices", body + "data: {" + usage + "}\n\n"},
		{"usage with null choices", body + "data: {\"choices\":null," + usage + "}\n\n"},
		{"null usage before the last", nulls + "data: {\"choices\":[]," + usage + "}\n\n"},
		{"usage beside the finish reason", roleEvent + says("Hello") + strings.Replace(finishEvent, `"id":`, usage+`,"id":`, 1)},
	} {
		cases = append(cases, streamCase{name: c.name, answer: writes(c.stream + doneEvent), want: c.stream, text: "Hello", in: 7, out: 5})
	}
	return cases
}

// However a phone cuts and spells its stream, the caller's copy has the same bytes, the assembled answer the same text, and usage, first
// token and end are noticed.
func TestStreamsPassUnchanged(t *testing.T) {
	t.Parallel()
	w, s := scriptedWorld(t, harness.Options{}, "")
	for i, tt := range streamCases() {
		name := "case-" + strconv.Itoa(i)
		s.on(name, tt.answer)
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			resp := w.open(t, t.Context(), topic(name, true, wantUsage))
			defer resp.Body.Close()
			got, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want+doneEvent, string(got)); diff != "" {
				t.Errorf("stream (-want +got):\n%s", diff)
			}
			record := w.record(t, resp.Header.Get("x-request-id"))
			if record.Outcome != "ok" || record.TokensIn != tt.in || record.TokensOut != tt.out || record.FailedAttempts != "" {
				t.Errorf("got log %+v, want ok with %d tokens in, %d out", record, tt.in, tt.out)
			}
			whole := w.ask(t, topic(name, false))
			if whole.status != http.StatusOK || whole.text != tt.text || whole.finish != "stop" {
				t.Errorf("got unstreamed %d %q, finish %q, want 200 %q, stop", whole.status, whole.text, whole.finish, tt.text)
			}
			if whole.usage == nil || whole.usage.Prompt != tt.in || whole.usage.Completion != tt.out {
				t.Errorf("got unstreamed usage %+v, want %d and %d", whole.usage, tt.in, tt.out)
			}
			if strings.ContainsRune(w.Log(), '\uFFFD') {
				t.Error("the log holds replacement characters")
			}
		})
	}
}

// A line of any length an answer may have passes whole, and so does what follows it.
func TestLongLinesPassWhole(t *testing.T) {
	t.Parallel()
	w, s := scriptedWorld(t, harness.Options{}, "")
	for _, size := range []int{70 << 10, 1100 << 10, 8 << 20} {
		name := "size-" + strconv.Itoa(size)
		call := fmt.Sprintf(`data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c1","type":"function","function":{"name":"f","arguments":"%s"}}]}}],"object":"chat.completion.chunk"}`+"\n\n", strings.Repeat("A", size))
		want := roleEvent + call + says("after") + finishEvent
		s.on(name, writes(want+doneEvent))
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			resp := w.open(t, t.Context(), topic(name, true))
			defer resp.Body.Close()
			sum := sha256.New()
			n, err := io.Copy(sum, resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			if wantSum := sha256.Sum256([]byte(want + doneEvent)); string(sum.Sum(nil)) != string(wantSum[:]) {
				t.Errorf("got %d bytes that differ from the %d sent", n, len(want+doneEvent))
			}
			whole := w.ask(t, topic(name, false))
			if whole.status != http.StatusOK || whole.text != "after" || !strings.Contains(string(whole.raw), `"arguments":"`+strings.Repeat("A", size)+`"`) {
				t.Errorf("got unstreamed %d, %d bytes, text %q", whole.status, len(whole.raw), whole.text)
			}
		})
	}
}

// An event beyond the bound ends in an error, never in a cut that looks like an answer.
func TestEndlessLineIsAnError(t *testing.T) {
	t.Parallel()
	w, s := scriptedWorld(t, harness.Options{}, "", slow())
	s.on("endless", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, roleEvent+`data: {"choices":[{"index":0,"delta":{"content":"`)
		block := strings.Repeat("A", 1<<20)
		for range 64 {
			if _, err := io.WriteString(w, block); err != nil {
				return
			}
		}
	})
	c := topic("endless", true)
	got := w.ask(t, c)
	wantWhole(t, got, c) // from the other phone
	if record := w.record(t, got.header.Get("x-request-id")); record.FailedAttempts != "nonsense" {
		t.Errorf("got failed attempts %q, want nonsense", record.FailedAttempts)
	}
}

// Two tool calls at once keep their pieces, their order and their ids.
func TestParallelToolCallsPassUnchanged(t *testing.T) {
	t.Parallel()
	w, s := scriptedWorld(t, harness.Options{}, "")
	delta := func(calls string) string {
		return `data: {"choices":[{"finish_reason":null,"index":0,"delta":{"tool_calls":[` + calls + `]}}],"model":"qwen","timings":{"prompt_n":1}}` + "\n\n"
	}
	sent := roleEvent +
		delta(`{"index":0,"id":"call_a","type":"function","function":{"name":"weather","arguments":""}}`) +
		delta(`{"index":1,"id":"call_b","type":"function","function":{"name":"time","arguments":""}}`) +
		delta(`{"index":0,"function":{"arguments":"{\"city\":"}}`) +
		delta(`{"index":1,"function":{"arguments":"{}"}}`) +
		delta(`{"index":0,"function":{"arguments":"\"Rome\"}"}}`) +
		strings.Replace(finishEvent, "stop", "tool_calls", 1)
	want := strings.NewReplacer(`"model":"qwen"`, `"model":"`+harness.Model+`"`, `,"timings":{"prompt_n":1}`, "").Replace(sent)
	s.on("tools", writes(sent+usageEvent+doneEvent))

	resp := w.open(t, t.Context(), topic("tools", true))
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want+doneEvent, string(got)); diff != "" {
		t.Errorf("stream (-want +got):\n%s", diff)
	}
	whole := w.ask(t, topic("tools", false))
	calls := `"tool_calls":[{"id":"call_a","type":"function","function":{"name":"weather","arguments":"{\"city\":\"Rome\"}"}},{"id":"call_b","type":"function","function":{"name":"time","arguments":"{}"}}]`
	if whole.finish != "tool_calls" || !sameCalls(string(whole.raw), calls) {
		t.Errorf("got unstreamed %s, want %s", whole.raw, calls)
	}
}

// sameCalls compares without regard to the order of members.
func sameCalls(body, want string) bool {
	for _, part := range []string{`call_a`, `call_b`, `{\"city\":\"Rome\"}`, `"arguments":"{}"`, `weather`, `time`} {
		if strings.Count(body, part) != strings.Count(want, part) {
			return false
		}
	}
	return strings.Index(body, "call_a") < strings.Index(body, "call_b")
}

// Whatever the type of the stream is called, an event reaches the caller before the phone has the next one.
func TestEventsAreNotHeldBack(t *testing.T) {
	t.Parallel()
	w, s := scriptedWorld(t, harness.Options{}, "")
	for _, media := range []string{"text/event-stream", "text/event-stream; charset=utf-8", "application/x-ndjson"} {
		t.Run(media, func(t *testing.T) {
			t.Parallel()
			name := "flush-" + strconv.Itoa(len(media))
			seen := make(chan struct{}, 1)
			s.on(name, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", media)
				for _, part := range []string{roleEvent + says("one"), says("two"), says("three")} {
					_, _ = io.WriteString(w, part)
					_ = http.NewResponseController(w).Flush()
					select {
					case <-seen:
					case <-r.Context().Done():
						return
					}
				}
				_, _ = io.WriteString(w, finishEvent+doneEvent)
			})
			ctx, cancel := context.WithTimeout(t.Context(), patient)
			defer cancel()
			resp := w.open(t, ctx, topic(name, true))
			defer resp.Body.Close()
			for name, want := range map[string]string{"Content-Type": "text/event-stream", "Cache-Control": "no-cache, no-transform", "X-Accel-Buffering": "no"} {
				if got := resp.Header.Get(name); got != want {
					t.Errorf("got %s %q, want %q", name, got, want)
				}
			}
			lines := bufio.NewScanner(resp.Body)
			for lines.Scan() {
				if strings.Contains(lines.Text(), `"content":"`) {
					seen <- struct{}{}
				}
				if lines.Text() == "data: [DONE]" {
					return
				}
			}
			t.Errorf("stream ended without [DONE]: %v", lines.Err())
		})
	}
}

// Usage is asked for and counted whether or not the caller wants to see it.
func TestUsageIsMeteredUnasked(t *testing.T) {
	t.Parallel()
	w := start(t, harness.Options{}, quick())
	for _, tt := range []struct {
		name, options string
		want          bool
	}{{"not asked for", "", false}, {"refused", `,"stream_options":{"include_usage":false}`, false}, {"asked for", "," + wantUsage, true}} {
		t.Run(tt.name, func(t *testing.T) {
			c := call{body: strings.TrimSuffix(chatBody("Count this.", 40, 20, true), "}") + tt.options + "}"}
			got := w.ask(t, c)
			wantWhole(t, got, c)
			if (got.usage != nil) != tt.want || strings.Contains(string(got.raw), `"usage"`) != tt.want || strings.Contains(string(got.raw), "timings") {
				t.Errorf("got usage %+v, want it to be shown: %t", got.usage, tt.want)
			}
			record := w.record(t, got.header.Get("x-request-id"))
			if record.TokensOut != 21 || record.TokensIn < 40 { // and the end-of-text token
				t.Errorf("got %d tokens in, %d out in the log, want 40 or more and 21", record.TokensIn, record.TokensOut)
			}
			if tt.want && (got.usage.Completion != record.TokensOut || got.usage.Prompt != record.TokensIn) {
				t.Errorf("got usage %+v, log %+v", got.usage, record)
			}
		})
	}
}

// A waiting caller hears comments that no SDK takes for an event: in the queue, in the prefill and in the middle of the answer.
func TestCommentsKeepASilentStreamAlive(t *testing.T) {
	t.Parallel()
	w := start(t, harness.Options{Extra: "commit_after: 100ms\n"}, fakephone.Profile{Name: "one", Slots: 1, PrefillShortTPS: 200, DecodeTPS: 4})
	phone := w.fleet.Phones[0]

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	first := w.open(t, ctx, call{body: chatBody("Occupy the phone.", 20, 100_000, true)})
	defer first.Body.Close()
	waitContent(t, first.Body)

	c := call{body: chatBody("Wait in the queue.", 3000, 200, true)}
	resp := w.open(t, t.Context(), c)
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("got status %d", resp.StatusCode)
	}
	lines := bufio.NewReader(resp.Body)
	var raw strings.Builder
	wait := func(what string, enough func(line string) bool) {
		t.Helper()
		for {
			line, err := lines.ReadString('\n')
			raw.WriteString(line)
			if err != nil {
				t.Fatalf("no %s: %v; the stream so far ends in %q", what, err, raw.String()[max(0, raw.Len()-1000):])
			}
			if enough(line) {
				return
			}
		}
	}
	wait("comment in the queue", func(l string) bool { return strings.HasPrefix(l, ": queued, 0 ahead") })
	cancel() // the phone is free now
	wait("comment in the prefill", func(l string) bool { return strings.HasPrefix(l, ": reading the prompt, ") })
	wait("content", func(l string) bool { return strings.Contains(l, `"content":"`) })
	setFault(t, phone, fakephone.Fault{Kind: fakephone.Freeze})
	wait("comment in the answer", func(l string) bool { return strings.HasPrefix(l, ": working") })
	wait("second comment in the answer", func(l string) bool { return strings.HasPrefix(l, ": working") })
	clearFault(t, phone)
	rest, err := io.ReadAll(lines)
	if err != nil {
		t.Fatal(err)
	}
	raw.Write(rest)

	got := &answer{status: resp.StatusCode, header: resp.Header, raw: []byte(raw.String())}
	got.readEvents(t)
	wantWhole(t, got, c)
	if got.late("x-phonebank-replica") != phone.Config().ID || got.late("x-phonebank-attempts") != "1" {
		t.Errorf("got replica %q, attempts %q behind the answer", got.late("x-phonebank-replica"), got.late("x-phonebank-attempts"))
	}
}
