package cases

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"phonebank/test/fakephone"
	"phonebank/test/harness"
)

const (
	speed = 20
	// patient is the outer deadline of everything: it only matters when a test fails.
	patient = 60 * time.Second
	// atOnce is how late a loaded machine may be with what happens at once.
	atOnce = 5 * time.Second
)

// chatPath is where most requests go.
const chatPath = "/v1/chat/completions"

// quick and slow are two phones of which the choice always prefers the first.
func quick() fakephone.Profile {
	return fakephone.Profile{Name: "quick", Slots: 1, PrefillShortTPS: 2000, DecodeTPS: 200}
}

func slow() fakephone.Profile {
	return fakephone.Profile{Name: "slow", Slots: 1, PrefillShortTPS: 100, DecodeTPS: 4}
}

// world is one gateway and its phones.
type world struct {
	*harness.Gateway
	fleet *harness.Fleet
}

// start runs a gateway over phones with these profiles and waits until all are ready.
func start(t *testing.T, o harness.Options, profiles ...fakephone.Profile) *world {
	t.Helper()
	fleet := harness.StartFleet(t, len(profiles), speed, func(i int, c *fakephone.Config) { c.Profile = profiles[i] })
	w := &world{Gateway: harness.StartGateway(t, fleet.Config(o)), fleet: fleet}
	for _, p := range fleet.Phones {
		w.waitState(t, p, "ready")
	}
	return w
}

// poolModel is the model that pool i of startPools serves.
func poolModel(i int) string { return fmt.Sprintf("pool-%03d", i) }

// startPools is start with a model of its own for every size phones.
func startPools(t *testing.T, o harness.Options, size int, profiles ...fakephone.Profile) *world {
	t.Helper()
	fleet := harness.StartFleet(t, len(profiles), speed, func(i int, c *fakephone.Config) { c.Profile = profiles[i] })
	var models, config strings.Builder
	for i := range len(profiles) / size {
		fmt.Fprintf(&models, "  - {id: %s, upstream: qwen, context: 16384, max_tokens: 256}\n", poolModel(i))
	}
	n := 0
	for line := range strings.Lines(fleet.Config(o)) {
		switch {
		case strings.HasPrefix(line, "  - {id: "+harness.Model+","):
			line = models.String()
		case strings.HasPrefix(line, "  - {id: phone-"):
			line = strings.Replace(line, "model: "+harness.Model+",", "model: "+poolModel(n/size)+",", 1)
			n++
		}
		config.WriteString(line)
	}
	w := &world{Gateway: harness.StartGateway(t, config.String()), fleet: fleet}
	for _, p := range fleet.Phones {
		w.waitState(t, p, "ready")
	}
	return w
}

// preferred is a world of a quick phone and a slow one.
func preferred(t *testing.T, o harness.Options) (w *world, a, b *fakephone.Phone) {
	t.Helper()
	w = start(t, o, quick(), slow())
	return w, w.fleet.Phones[0], w.fleet.Phones[1]
}

func setFault(t *testing.T, p *fakephone.Phone, f fakephone.Fault) {
	t.Helper()
	if err := p.SetFault(f); err != nil {
		t.Fatal(err)
	}
}

func clearFault(t *testing.T, p *fakephone.Phone) {
	t.Helper()
	if err := p.Clear(); err != nil {
		t.Fatal(err)
	}
}

// replica is what the operators' API says of a phone.
type replica struct {
	ID         string    `json:"id"`
	State      string    `json:"state"`
	Reason     string    `json:"reason"`
	LeaveAlone time.Time `json:"leave_alone_until"`
	Resting    bool      `json:"resting_here"`
	Depth      int       `json:"depth"`
}

func (w *world) replicas(t *testing.T) []replica {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.Admin+"/admin/v1/replicas", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+harness.AdminKey)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var list struct {
		Data []replica `json:"data"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&list); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("GET replicas: status %d, %v", resp.StatusCode, err)
	}
	return list.Data
}

func (w *world) replica(t *testing.T, id string) replica {
	t.Helper()
	for _, r := range w.replicas(t) {
		if r.ID == id {
			return r
		}
	}
	return replica{}
}

// waitState waits until the operators' API shows a phone in a state, free and not to be left alone, and returns what it shows.
func (w *world) waitState(t *testing.T, p *fakephone.Phone, state string) replica {
	t.Helper()
	return w.waitReplica(t, p.Config().ID, state)
}

func (w *world) waitReady(t *testing.T, id string) {
	t.Helper()
	w.waitReplica(t, id, "ready")
}

func (w *world) waitReplica(t *testing.T, id, state string) replica {
	t.Helper()
	var r replica
	harness.Eventually(t, patient, func() (bool, string) {
		r = w.replica(t, id)
		return r.State == state && r.LeaveAlone.IsZero(), "replica " + id + " is " + r.State + " (" + r.Reason + "), want " + state
	})
	return r
}

// waitIdle waits until no slot is occupied any more, neither for the gateways nor on the phones.
func (w *world) waitIdle(t *testing.T, within time.Duration) {
	t.Helper()
	harness.Eventually(t, within, func() (bool, string) {
		for _, r := range w.replicas(t) {
			if r.Depth != 0 {
				return false, "replica " + r.ID + " still has an occupied slot"
			}
		}
		for _, p := range w.fleet.Phones {
			if s := p.Stats(); s.Active != 0 {
				return false, "phone " + p.Config().ID + " still works"
			}
		}
		return true, ""
	})
}

// logLine is one line of the gateway's log.
type logLine struct {
	Msg, Replica, State, Reason, Outcome, Error string
	Status, Attempts                            int
	RequestID                                   string `json:"request_id"`
	FailedAttempts                              string `json:"failed_attempts"`
	TokensIn                                    int    `json:"tokens_in"`
	TokensOut                                   int    `json:"tokens_out"`
}

func (w *world) lines() []logLine {
	var lines []logLine
	for text := range strings.Lines(w.Log()) {
		var l logLine
		if json.Unmarshal([]byte(text), &l) == nil {
			lines = append(lines, l)
		}
	}
	return lines
}

// recordOf is record for goroutines: it has come when the answer's end has been read, or soon after.
func (w *world) recordOf(id string) (logLine, bool) {
	for _, l := range w.lines() {
		if l.Msg == "request" && l.RequestID == id {
			return l, true
		}
	}
	return logLine{}, false
}

// record waits for the log line of a request.
func (w *world) record(t *testing.T, id string) logLine {
	t.Helper()
	var found logLine
	harness.Eventually(t, atOnce, func() (bool, string) {
		var ok bool
		found, ok = w.recordOf(id)
		return ok, "no log line of request " + id
	})
	return found
}

// logged reports whether the log tells that a phone went to a state, and why.
func (w *world) logged(state string, p *fakephone.Phone) bool {
	return slices.ContainsFunc(w.lines(), func(l logLine) bool {
		return l.Msg == "phone changed state" && l.State == state && l.Replica == p.Config().ID && l.Reason != ""
	})
}

// call is one request of a caller.
type call struct {
	path   string // default chatPath
	body   string
	key    string // default harness.Key; "-" for none
	header http.Header
}

func (c call) request(ctx context.Context, base string) (*http.Request, error) {
	path := c.path
	if path == "" {
		path = chatPath
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+path, strings.NewReader(c.body))
	if err != nil {
		return nil, err
	}
	maps.Copy(req.Header, c.header)
	req.Header.Set("Content-Type", "application/json")
	switch c.key {
	case "":
		req.Header.Set("Authorization", "Bearer "+harness.Key)
	case "-":
	default:
		req.Header.Set("Authorization", "Bearer "+c.key)
	}
	return req, nil
}

// answer is what a caller got.
type answer struct {
	status int
	header http.Header
	raw    []byte

	events []event // of a stream
	text   string  // of choice 0
	finish string  // of choice 0
	roles  int     // deltas with a role
	usage  *usage
	done   bool // [DONE] came
	err    *apiError
}

type event struct {
	data    string
	comment bool
}

type usage struct {
	Prompt     int `json:"prompt_tokens"`
	Completion int `json:"completion_tokens"`
	Total      int `json:"total_tokens"`
}

type apiError struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    *string `json:"code"`
}

func (e *apiError) code() string {
	if e == nil || e.Code == nil {
		return ""
	}
	return *e.Code
}

// chunk is an event of a stream, an unstreamed answer or an error.
type chunk struct {
	Choices []struct {
		Index int `json:"index"`
		Delta struct {
			Role    string `json:"role"`
			Content string `json:"content"`
		} `json:"delta"`
		Message struct {
			Content string `json:"content"`
		} `json:"message"`
		Text         string `json:"text"`
		FinishReason string `json:"finish_reason"`
	} `json:"choices"`
	Usage *usage    `json:"usage"`
	Error *apiError `json:"error"`
}

// ask sends a request and reads the whole answer.
func (w *world) ask(t *testing.T, c call) *answer {
	t.Helper()
	a := w.send(t, c)
	if a == nil {
		t.FailNow()
	}
	return a
}

// send is ask for goroutines: nil, and a failed test, when there is no whole answer.
func (w *world) send(t *testing.T, c call) *answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patient)
	defer cancel()
	req, err := c.request(ctx, w.URL)
	if err != nil {
		t.Error(err)
		return nil
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Error(err)
		return nil
	}
	return read(t, resp)
}

// open sends a request and returns the answer as soon as its headers are there. Close its body.
func (w *world) open(t *testing.T, ctx context.Context, c call) *http.Response {
	t.Helper()
	req, err := c.request(ctx, w.URL)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

// waitContent reads until content has come.
func waitContent(t *testing.T, body io.Reader) {
	t.Helper()
	lines := bufio.NewScanner(body)
	for lines.Scan() {
		if strings.Contains(lines.Text(), `"content":"`) {
			return
		}
	}
	t.Fatalf("no content: %v", lines.Err())
}

func read(t *testing.T, resp *http.Response) *answer {
	t.Helper()
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Errorf("read answer after %d bytes: %v", len(raw), err)
		return nil
	}
	a := &answer{status: resp.StatusCode, header: resp.Header, raw: raw}
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		a.readEvents(t)
		return a
	}
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "application/json") {
		a.take(t, raw)
	}
	return a
}

// readEvents reads a stream as strictly as an SDK does.
func (a *answer) readEvents(t *testing.T) {
	t.Helper()
	lines := bufio.NewReader(bytes.NewReader(a.raw))
	blank := true // the line before
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			if line != "" {
				t.Errorf("stream ends in an unterminated line %.80q", line)
			}
			return
		}
		line = strings.TrimRight(line, "\r\n")
		switch data, isData := strings.CutPrefix(line, "data:"); {
		case line == "":
			if n := len(a.events); n == 0 || a.events[n-1].comment || blank {
				t.Error("stream holds a blank line that ends no event: some SDKs fail on it")
			}
			blank = true
			continue
		case line[0] == ':':
			a.events = append(a.events, event{data: line, comment: true})
		case isData:
			data = strings.TrimPrefix(data, " ")
			if a.done {
				t.Errorf("event after [DONE]: %.80q", data)
			}
			a.events = append(a.events, event{data: data})
			if data == "[DONE]" {
				a.done = true
				break
			}
			if a.err != nil {
				t.Errorf("event after an error event: %.80q", data)
			}
			a.take(t, []byte(data))
		}
		blank = false
	}
}

// take reads one JSON object.
func (a *answer) take(t *testing.T, data []byte) {
	t.Helper()
	var c chunk
	if err := json.Unmarshal(data, &c); err != nil {
		t.Errorf("not JSON: %v: %.200q", err, data)
		return
	}
	if c.Error != nil {
		a.err = c.Error
	}
	if c.Usage != nil {
		a.usage = c.Usage
	}
	for _, choice := range c.Choices {
		if choice.Index != 0 {
			continue
		}
		a.text += choice.Delta.Content + choice.Message.Content + choice.Text
		if choice.Delta.Role != "" {
			a.roles++
		}
		if choice.FinishReason != "" {
			a.finish = choice.FinishReason
		}
	}
}

// chatBody is a request for an answer of n tokens to a prompt of about promptTokens.
func chatBody(topic string, promptTokens, n int, stream bool, model ...string) string {
	name := harness.Model
	if len(model) > 0 {
		name = model[0]
	}
	text := topic
	if n > 0 {
		text += " LENGTH=" + itoa(n)
	}
	if missing := 4*promptTokens - len(text); missing > 0 {
		text = strings.Repeat("word ", missing/5) + text
	}
	body, _ := json.Marshal(map[string]any{ // strings always encode
		"model": name, "stream": stream, "messages": []map[string]string{{"role": "user", "content": text}},
	})
	return string(body)
}

func itoa(n int) string {
	b, _ := json.Marshal(n) // numbers always encode
	return string(b)
}

// wantWhole fails the test unless a is the whole and right answer to the body.
func wantWhole(t *testing.T, a *answer, c call) {
	t.Helper()
	path := c.path
	if path == "" {
		path = chatPath
	}
	if a.status != http.StatusOK || a.err != nil {
		t.Fatalf("got status %d, error %+v, want 200: %.300s", a.status, a.err, a.raw)
	}
	if want := fakephone.Answer(path, []byte(c.body)); a.text != want {
		t.Errorf("got answer %q, want %q", a.text, want)
	}
	if a.finish != "stop" {
		t.Errorf("got finish reason %q, want stop", a.finish)
	}
	if streamed := len(a.events) > 0; streamed && !a.done {
		t.Error("stream ended without [DONE]")
	}
	if a.roles > 1 {
		t.Errorf("got %d role chunks, want one", a.roles)
	}
}

// late returns a header, or the comment that stands for it at the end of a stream whose status was committed before.
func (a *answer) late(name string) string {
	value := a.header.Get(name)
	for _, e := range a.events {
		if text, ok := strings.CutPrefix(e.data, ": "+name+": "); e.comment && ok {
			value = text
		}
	}
	return value
}

// adminGet reads a page of the operators' listener.
func (w *world) adminGet(t *testing.T, path string) (int, string) {
	t.Helper()
	return harness.Get(t, w.Admin+path, harness.AdminKey)
}
