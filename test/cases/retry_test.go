package cases

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"phonebank/test/fakephone"
	"phonebank/test/harness"
)

// flood sends n requests, so many at once, and returns how many had the right answer.
func (w *world) flood(t *testing.T, n, atOnce int) (right int) {
	t.Helper()
	var mu sync.Mutex // guards right
	var all sync.WaitGroup
	next := make(chan int)
	for range atOnce {
		all.Go(func() {
			for i := range next {
				c := call{body: chatBody("Question "+strconv.Itoa(i)+".", 0, 6, i%2 == 0)}
				got := w.send(t, c)
				if got == nil {
					continue
				}
				if got.status == http.StatusOK && got.err == nil && got.text == fakephone.Answer(chatPath, []byte(c.body)) {
					mu.Lock()
					right++
					mu.Unlock()
					continue
				}
				t.Errorf("request %d: got %d, %.200s", i, got.status, got.raw)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	all.Wait()
	return right
}

// A phone that refuses everything at once looks idle all the time. It must not become the place where requests go.
func TestFailingPhoneIsNoBlackHole(t *testing.T) {
	t.Parallel()
	same := fakephone.Profile{Name: "same", Slots: 2, PrefillShortTPS: 500, DecodeTPS: 50}
	for _, tt := range []struct {
		fault fakephone.Fault
		most  int // three failures make a phone suspect, and others may be under way by then; it is tried again after each pause
	}{
		{fakephone.Fault{Kind: fakephone.Status503, RetryAfter: "5"}, 3},
		{fakephone.Fault{Kind: fakephone.HTML502}, 10},
		{fakephone.Fault{Kind: fakephone.Status500}, 10},
		{fakephone.Fault{Kind: fakephone.EOFHeaders}, 10},
	} {
		t.Run(string(tt.fault.Kind), func(t *testing.T) {
			t.Parallel()
			w := start(t, harness.Options{}, same, same, same)
			a := w.fleet.Phones[0]
			setFault(t, a, tt.fault)
			const n = 100
			if right := w.flood(t, n, 4); right != n {
				t.Errorf("got %d right answers, want %d", right, n)
			}
			if got := a.Stats().Requests; got > tt.most {
				t.Errorf("%d of %d requests went to the phone that fails, want %d at most", got, n, tt.most)
			}
		})
	}
}

// Phones that ask to be left alone, in whatever form, are: requests are not multiplied, and all are answered.
func TestRetryAfterIsObeyed(t *testing.T) {
	t.Parallel()
	same := fakephone.Profile{Name: "same", Slots: 2, PrefillShortTPS: 500, DecodeTPS: 50}
	for _, tt := range []struct{ name, after string }{
		{"seconds", "2"},
		{"long", "30"},
		{"date", time.Now().UTC().Add(time.Hour).Format(http.TimeFormat)},
		{"nonsense", "a while"},
		{"nothing", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := start(t, harness.Options{}, same, same, same)
			for i, kind := range []fakephone.Kind{fakephone.Status429, fakephone.Status503} {
				setFault(t, w.fleet.Phones[i], fakephone.Fault{Kind: kind, RetryAfter: tt.after})
			}
			const n = 60
			if right := w.flood(t, n, 4); right != n {
				t.Errorf("got %d right answers, want %d", right, n)
			}
			sent := 0
			for _, p := range w.fleet.Phones {
				sent += p.Stats().Requests
			}
			if sent > n*3/2 {
				t.Errorf("%d requests became %d at the phones, want less than half as many again", n, sent)
			}
		})
	}
}

// When all phones have asked to be left alone, the caller is told when the first may be asked again. At the pace of life, because that is
// how a phone's own words are taken.
func TestCallerIsToldWhenTheFirstPhoneIsBack(t *testing.T) {
	t.Parallel()
	fleet := harness.StartFleet(t, 2, 1, func(_ int, c *fakephone.Config) {
		c.Profile = fakephone.Profile{Name: "lively", Slots: 1, PrefillShortTPS: 5000, DecodeTPS: 500}
	})
	w := &world{Gateway: harness.StartGateway(t, fleet.Config(harness.Options{})), fleet: fleet}
	for i, after := range []string{"100", "60"} {
		w.waitState(t, fleet.Phones[i], "ready")
		setFault(t, fleet.Phones[i], fakephone.Fault{Kind: fakephone.Status503, RetryAfter: after})
	}
	got := w.ask(t, call{body: chatBody("Anybody?", 0, 4, false)})
	if got.status != http.StatusServiceUnavailable || got.err.code() != "server_is_overloaded" {
		t.Fatalf("got %d %s, want 503 server_is_overloaded", got.status, got.raw)
	}
	if after, err := strconv.Atoi(got.header.Get("Retry-After")); err != nil || after < 10 || after > 60 {
		t.Errorf("got Retry-After %q, want what is left of the shorter wait", got.header.Get("Retry-After"))
	}
	for _, p := range fleet.Phones {
		if n := p.Stats().Requests; n != 1 {
			t.Errorf("phone %s was asked %d times, want once", p.Config().ID, n)
		}
	}
}

// A caller whose own patience is short and who tries again never has two phones at work.
func TestImpatientCallersDoNotMultiplyWork(t *testing.T) {
	t.Parallel()
	one := fakephone.Profile{Name: "one", Slots: 1, PrefillShortTPS: 100, DecodeTPS: 10}
	w := start(t, harness.Options{}, one, one)
	const tries = 3
	for i := range tries {
		ctx, cancel := context.WithTimeout(t.Context(), 400*time.Millisecond)
		req, err := call{body: chatBody("Hurry.", 4000, 20, i%2 == 0)}.request(ctx, w.URL) // 2 s of prefill
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			_, err = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("try %d ended with %v before the caller's patience", i, err)
		}
		w.wantCancelled(t, i+1, 1)
	}
	w.waitIdle(t, patient)
	sent, cancelled := 0, 0
	for _, p := range w.fleet.Phones {
		s := p.Stats()
		sent, cancelled = sent+s.Requests, cancelled+s.Cancelled
		if s.PeakLive > 1 || s.WaitedLive > 0 {
			t.Errorf("phone %s: %+v, want one generation at a time", p.Config().ID, s)
		}
	}
	if sent != tries || cancelled != tries {
		t.Errorf("got %d generations of which %d were cancelled, want %d of each", sent, cancelled, tries)
	}
}

// A long prompt is long work, not a silent phone: it is read once, whatever the clocks of short ones are.
func TestLongPromptsAreNotTriedTwice(t *testing.T) {
	t.Parallel()
	one := fakephone.Profile{Name: "one", Slots: 1, PrefillShortTPS: 80, DecodeTPS: 40}
	w := start(t, harness.Options{}, one, one)
	for _, stream := range []bool{false, true} {
		c := call{body: chatBody("RISK_LEVEL please.", 7000, 0, stream)} // 90 s of life; the least clock is 30 s
		got := w.ask(t, c)
		wantWhole(t, got, c)
		if n := got.late("x-phonebank-attempts"); n != "1" {
			t.Errorf("got %s attempts, want 1", n)
		}
	}
}

// The gateway's own limit is an answer, not a reason to try again.
func TestOwnLimitIsNeverRetried(t *testing.T) {
	t.Parallel()
	const key = "pb-test-key-of-ten-a-minute-0001"
	w := start(t, harness.Options{Keys: "    - {id: ten, key: " + key + ", class: chat, limits: {requests_per_minute: 10}}"},
		fakephone.Profile{Name: "four", Slots: 4, PrefillShortTPS: 500, DecodeTPS: 50})
	const n = 30
	began := time.Now()
	statuses := make(chan int, n)
	for range n {
		go func() {
			got := w.send(t, call{key: key, body: chatBody("Once.", 0, 4, false)})
			if got == nil {
				statuses <- 0
				return
			}
			if got.status == http.StatusTooManyRequests && (got.err.code() != "rate_limit_exceeded" || got.header.Get("Retry-After") == "") {
				t.Errorf("got 429 %s, Retry-After %q", got.raw, got.header.Get("Retry-After"))
			}
			statuses <- got.status
		}()
	}
	count := make(map[int]int)
	for range n {
		count[<-statuses]++
	}
	refill := int(time.Since(began) / (6 * time.Second)) // one request in six seconds
	if ok := count[http.StatusOK]; ok < 10 || ok > 10+refill || ok+count[http.StatusTooManyRequests] != n {
		t.Errorf("got statuses %v, want 10 times 200 and 20 times 429", count)
	}
	if sent := w.fleet.Phones[0].Stats().Requests; sent != count[http.StatusOK] {
		t.Errorf("the phone got %d requests, want %d", sent, count[http.StatusOK])
	}
}

// A request that is at fault with every phone ends after two of them, and does not take the fleet away from others.
func TestPoisonousRequestsLeaveTheFleetAlone(t *testing.T) {
	t.Parallel()
	same := fakephone.Profile{Name: "same", Slots: 1, PrefillShortTPS: 500, DecodeTPS: 50}
	w := start(t, harness.Options{}, same, same, same)
	for _, p := range w.fleet.Phones {
		setFault(t, p, fakephone.Fault{Kind: fakephone.Status500})
	}
	const n = 20
	for range n {
		got := w.ask(t, call{body: chatBody("Poison.", 0, 4, false)})
		if got.status != http.StatusBadGateway || got.header.Get("x-phonebank-attempts") != "2" || got.header.Get("x-should-retry") != "false" {
			t.Fatalf("got %d after %s attempts, x-should-retry %q, want 502 after 2, false",
				got.status, got.header.Get("x-phonebank-attempts"), got.header.Get("x-should-retry"))
		}
	}
	for _, p := range w.fleet.Phones {
		clearFault(t, p)
		if r := w.replica(t, p.Config().ID); r.State == "down" {
			t.Errorf("phone %s is down (%s) for requests that no phone could answer", r.ID, r.Reason)
		}
	}
	c := call{body: chatBody("A good one.", 0, 4, false)}
	got := w.ask(t, c)
	wantWhole(t, got, c)
	if n := got.header.Get("x-phonebank-attempts"); n != "1" {
		t.Errorf("got %s attempts, want 1", n)
	}
}
