package cases

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"phonebank/test/fakephone"
	"phonebank/test/harness"
)

// oneKey is a key that may have one unfinished request: whether it is free again shows at once.
const oneKey = "pb-test-key-of-one-request-0001"

const oneKeyYAML = "    - {id: one, key: " + oneKey + ", class: chat, limits: {concurrent: 1}}"

// abandon sends a request and cancels it when told; it returns when the client has given up.
func (w *world) abandon(t *testing.T, c call, when func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patient)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		req, err := c.request(ctx, w.URL)
		if err == nil {
			var resp *http.Response
			if resp, err = http.DefaultClient.Do(req); err == nil {
				_, err = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
		}
		ended <- err
	}()
	when()
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the request ended with %v before it was cancelled", err)
	}
}

// wantCancelled waits for the end of a cancelled request in the books.
func (w *world) wantCancelled(t *testing.T, n, attempts int) {
	t.Helper()
	harness.Eventually(t, atOnce, func() (bool, string) {
		var found []logLine
		for _, l := range w.lines() {
			if l.Msg == "request" && l.Outcome == "cancelled" {
				found = append(found, l)
			}
		}
		if len(found) != n {
			return false, fmt.Sprintf("%d cancelled requests in the log, want %d", len(found), n)
		}
		last := found[n-1]
		return last.Status == 499 && last.Attempts == attempts, fmt.Sprintf("got %+v, want 499 after %d attempts", last, attempts)
	})
}

// wantKeyFree fails unless the key may send another request now: it is refused for its model, but not for its limit.
func (w *world) wantKeyFree(t *testing.T) {
	t.Helper()
	harness.Eventually(t, atOnce, func() (bool, string) {
		req, err := call{key: oneKey, body: chatBody("Free?", 0, 4, false), header: http.Header{"X-Phonebank-Timeout": {"1ms"}}}.request(t.Context(), w.URL)
		if err != nil {
			return false, err.Error()
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return false, err.Error()
		}
		resp.Body.Close()
		return resp.StatusCode != http.StatusTooManyRequests, "the key is still charged for the cancelled request"
	})
}

// Whatever a phone is doing for a caller who leaves, it is told within about a second, nobody else is asked, and slot and key are free.
func TestCancelReachesThePhoneInEveryPhase(t *testing.T) {
	t.Parallel()
	progress := strings.Replace(roleEvent, `"id":`, `"prompt_progress":{"total":600,"cache":0,"processed":512,"time_ms":9},"id":`, 1)
	for _, phase := range []struct {
		name string
		sent []string
	}{
		{"waiting for headers", nil},
		{"reading the prompt", []string{progress}},
		{"answering", []string{progress, says("one"), says("two")}},
	} {
		for _, stream := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/stream=%t", phase.name, stream), func(t *testing.T) {
				t.Parallel()
				w, s := scriptedWorld(t, harness.Options{Keys: oneKeyYAML}, "", slow())
				begun, left := make(chan struct{}), make(chan time.Time, 1)
				s.on("leave", func(w http.ResponseWriter, r *http.Request) {
					if phase.sent != nil {
						writes(phase.sent...)(w, r)
					}
					close(begun)
					<-r.Context().Done()
					left <- time.Now()
				})
				c := topic("leave", stream)
				c.key = oneKey
				var cancelled time.Time
				w.abandon(t, c, func() {
					<-begun
					cancelled = time.Now()
				})
				select {
				case at := <-left:
					t.Logf("the phone was told after %v", at.Sub(cancelled))
				case <-time.After(atOnce):
					t.Fatal("the phone was not told")
				}
				w.wantCancelled(t, 1, 1)
				w.wantKeyFree(t)
				w.waitIdle(t, patient)
				if n := w.fleet.Phones[0].Stats().Requests; n > 1 { // that of wantKeyFree
					t.Errorf("%d requests at the other phone, want none but the probe of the key", n)
				}
			})
		}
	}
}

func TestCancelWhileConnecting(t *testing.T) {
	t.Parallel()
	for _, stream := range []bool{false, true} {
		t.Run(fmt.Sprintf("stream=%t", stream), func(t *testing.T) {
			t.Parallel()
			w, a, b := preferred(t, harness.Options{Keys: oneKeyYAML, Extra: "health: {interval: 60s, timeout: 4s}\n"})
			setFault(t, a, fakephone.Fault{Kind: fakephone.HangHandshake})
			struck := a.Stats().Struck
			w.abandon(t, call{key: oneKey, body: chatBody("Leave.", 0, 4, stream)}, func() {
				harness.Eventually(t, patient, func() (bool, string) { return a.Stats().Struck > struck, "nobody connects" })
			})
			w.wantCancelled(t, 1, 1)
			if n := b.Stats().Requests; n != 0 {
				t.Errorf("%d requests at the other phone, want none", n)
			}
			w.wantKeyFree(t)
			w.waitIdle(t, patient)
		})
	}
}

// A request that leaves the queue leaves no trace, and does not disturb the one that runs.
func TestCancelInTheQueue(t *testing.T) {
	t.Parallel()
	for _, stream := range []bool{false, true} {
		t.Run(fmt.Sprintf("stream=%t", stream), func(t *testing.T) {
			t.Parallel()
			w := start(t, harness.Options{Keys: oneKeyYAML}, slow())
			phone := w.fleet.Phones[0]
			running := call{body: chatBody("Run.", 0, 100, true)}
			resp := w.open(t, t.Context(), running)
			defer resp.Body.Close()
			w.abandon(t, call{key: oneKey, body: chatBody("Leave.", 0, 4, stream)}, func() {
				w.waitQueued(t, 1)
			})
			w.wantCancelled(t, 1, 0)
			w.waitQueued(t, 0)
			got := read(t, resp)
			wantWhole(t, got, running)
			if n := phone.Stats().Requests; n != 1 {
				t.Errorf("%d requests at the phone, want the one that ran", n)
			}
			w.wantKeyFree(t)
			w.waitIdle(t, patient)
		})
	}
}

// waitQueued waits until the metrics show so many waiting requests of this gateway.
func (w *world) waitQueued(t *testing.T, n int) {
	t.Helper()
	harness.Eventually(t, patient, func() (bool, string) {
		_, text := w.adminGet(t, "/metrics")
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, "phonebank_") && strings.Contains(line, `phase="waiting"`) {
				return strings.HasSuffix(strings.TrimSpace(line), fmt.Sprintf(" %d", n)), "metrics say " + line
			}
		}
		return false, "no such metric"
	})
}

// One caller's end is nobody else's: a phone with one slot is never given two requests, and those who wait get their answers, even when
// the abort takes the phone down.
func TestAbortHarmsNobodyElse(t *testing.T) {
	t.Parallel()
	for _, crash := range []bool{false, true} {
		t.Run(fmt.Sprintf("crash=%t", crash), func(t *testing.T) {
			t.Parallel()
			w := start(t, harness.Options{}, fakephone.Profile{Name: "one", Slots: 1, PrefillShortTPS: 500, DecodeTPS: 40})
			phone := w.fleet.Phones[0]
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			first := w.open(t, ctx, call{body: chatBody("Abort me.", 0, 100_000, true)})
			defer first.Body.Close()
			waitContent(t, first.Body)
			calls := []call{{body: chatBody("Second.", 0, 30, true)}, {body: chatBody("Third.", 0, 30, false)}}
			answers := make(chan func(), len(calls))
			for _, c := range calls {
				go func() {
					got := w.send(t, c)
					answers <- func() {
						if got != nil {
							wantWhole(t, got, c)
						}
					}
				}()
			}
			w.waitQueued(t, len(calls))
			cancel()
			if crash {
				if err := phone.Restart(); err != nil {
					t.Fatal(err)
				}
			}
			for range calls {
				(<-answers)()
			}
			if s := phone.Stats(); s.PeakLive > 1 || s.WaitedLive > 0 {
				t.Errorf("the phone's one slot was promised twice: %+v", s)
			}
		})
	}
}

// What a caller has read of an answer before it left is in the books.
func TestPartialUsageIsRecorded(t *testing.T) {
	t.Parallel()
	w := start(t, harness.Options{}, slow())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	resp := w.open(t, ctx, call{body: chatBody("Tell me.", 0, 1000, true)})
	defer resp.Body.Close()
	waitContent(t, resp.Body)
	cancel()
	w.wantCancelled(t, 1, 1)
	if record := w.record(t, resp.Header.Get("x-request-id")); record.TokensOut < 1 || record.TokensOut > 999 {
		t.Errorf("got %d tokens out, want those that were streamed", record.TokensOut)
	}
}
