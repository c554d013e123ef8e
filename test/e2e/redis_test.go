package e2e_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"phonebank/test/fakephone"
	"phonebank/test/harness"
	"phonebank/test/redistest"
)

// Redis stands still for twenty seconds while phones are at work: what runs goes on, what is new hears 503 at once, and afterwards nothing
// that is alive is reaped.
func TestFrozenRedis(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute")
	}
	redis := redistest.Server(t)
	// One slow kind of phone, so that every stream outlasts the freeze.
	slow, _ := fakephone.ProfileByName("elite-9b-lcpp")
	fleet := harness.StartFleet(t, 100, 20, func(_ int, c *fakephone.Config) { c.Profile = slow })
	config := fleet.Config(harness.Options{Redis: redis.URL(), Namespace: "crowd", Class: "guard", Extra: patient})
	gateways := [2]*harness.Gateway{harness.StartGateway(t, config), harness.StartGateway(t, config)}
	for _, g := range gateways {
		awaitReady(t, g, 100)
	}

	// 6,000 tokens at 160 a second take 37 s.
	const streams = 60
	long := make([]call, streams)
	running := make([]reply, streams)
	var streaming sync.WaitGroup
	for i := range long {
		long[i] = call{class: "guard", prompt: fmt.Sprintf("Long %d LENGTH=6000", i), maxTokens: 7000, stream: true}
		streaming.Go(func() { running[i] = send(t.Context(), gateways[i%2].URL, long[i]) })
	}
	harness.Eventually(t, 20*time.Second, func() (bool, string) {
		n := depth(t, gateways[0])
		return n >= streams, fmt.Sprintf("%d of %d streams run", n, streams)
	})

	// The usual mix over half a minute: a part of it before the freeze, most of it during, the rest after.
	const freeze = 20 * time.Second
	var frozen, thawed time.Time
	var thaw sync.WaitGroup
	calls := mix(1000, 4)
	replies := volley(t.Context(), calls, 30*time.Second, []string{gateways[0].URL, gateways[1].URL}, map[int]func(){150: func() {
		frozen = time.Now()
		redis.Freeze()
		thaw.Go(func() {
			<-time.NewTimer(freeze).C
			redis.Thaw()
			thawed = time.Now()
		})
	}})
	thaw.Wait()
	checkFreeze(t, calls, replies, frozen, thawed)

	streaming.Wait()
	for i, r := range running {
		if !r.right(long[i]) {
			t.Errorf("stream %d: %v", i, r)
		}
	}
	checkSlots(t, fleet)
	for _, g := range gateways {
		for line := range strings.Lines(g.Log()) {
			if strings.Contains(line, `"msg":"reaped"`) {
				t.Errorf("a live lease was reaped: %s", line)
			}
		}
	}
	harness.Eventually(t, 20*time.Second, func() (bool, string) {
		n := depth(t, gateways[0])
		return n == 0, fmt.Sprintf("%d slots still occupied", n)
	})
}

// checkFreeze wants every request that was accepted before the freeze answered right, every new one refused at once while it lasts, and
// everything served again soon after it.
func checkFreeze(t *testing.T, calls []call, replies []reply, frozen, thawed time.Time) {
	t.Helper()
	const (
		caught = time.Second     // on its way in when Redis froze, or while the breaker tries again
		atOnce = 2 * time.Second // one call's deadline, on a loaded machine
	)
	var before, refused, after int
	var slowest time.Duration
	for i, r := range replies {
		honest := r.status == http.StatusServiceUnavailable && r.header.Get("Retry-After") != "" && r.took < atOnce
		switch {
		case r.sent.After(frozen) && r.sent.Before(thawed.Add(-caught)):
			refused++
			slowest = max(slowest, r.took)
			if !honest {
				t.Errorf("request %d while frozen: %v; want 503 with Retry-After at once", i, r)
			}
		case r.right(calls[i]) && r.sent.Before(frozen):
			before++
		case r.right(calls[i]):
			after++
		case honest && r.sent.After(frozen.Add(-caught)) && r.sent.Before(thawed.Add(3*caught)):
		default:
			t.Errorf("request %d (%s, stream %v), sent %v after the freeze began: %v", i, calls[i].class, calls[i].stream, r.sent.Sub(frozen), r)
		}
	}
	if before == 0 || refused == 0 || after == 0 {
		t.Errorf("%d right before, %d refused during, %d right after the freeze: want some of each", before, refused, after)
	}
	t.Logf("frozen for %v: %d accepted before it and right, %d refused during it (slowest %v), %d right after it",
		thawed.Sub(frozen).Round(time.Millisecond), before, refused, slowest.Round(time.Millisecond), after)
}
