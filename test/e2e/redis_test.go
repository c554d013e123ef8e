package e2e_test

import (
	"context"
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

	const freeze = 20 * time.Second
	frozenAt := time.Now()
	redis.Freeze()
	refused, slowest := knock(t, gateways, freeze)
	redis.Thaw()
	t.Logf("frozen for %v: %d new requests, all 503, the slowest after %v", time.Since(frozenAt).Round(time.Millisecond), refused, slowest.Round(time.Millisecond))

	// The first seconds after the thaw are when everything that had not beaten for so long would be reaped.
	after := make([]call, 200)
	replies := make([]reply, len(after))
	var wg sync.WaitGroup
	harness.Eventually(t, 10*time.Second, func() (bool, string) {
		r := send(t.Context(), gateways[0].URL, call{class: "guard", prompt: "Back?", maxTokens: 64})
		return r.status == http.StatusOK, r.String()
	})
	for i := range after {
		after[i] = call{class: "guard", prompt: fmt.Sprintf("After %d", i), maxTokens: 64, stream: i%2 == 0}
		wg.Go(func() { replies[i] = send(t.Context(), gateways[0].URL, after[i]) })
	}
	wg.Wait()
	for i, r := range replies {
		if !r.right(after[i]) {
			t.Errorf("request %d after the freeze: %v", i, r)
		}
	}
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

// knock sends new requests while Redis is frozen and wants each refused at once.
func knock(t *testing.T, gateways [2]*harness.Gateway, during time.Duration) (refused int, slowest time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), during)
	defer cancel()
	poll := time.NewTicker(100 * time.Millisecond)
	defer poll.Stop()
	for {
		select {
		case <-ctx.Done():
			return refused, slowest
		case <-poll.C:
		}
		r := send(t.Context(), gateways[refused%2].URL, call{class: "guard", prompt: fmt.Sprintf("Frozen %d", refused), maxTokens: 16, stream: refused%4 < 2})
		if r.status != http.StatusServiceUnavailable || r.header.Get("Retry-After") == "" {
			t.Errorf("while frozen: %v, Retry-After %q; want 503 with one", r, r.header.Get("Retry-After"))
		}
		if r.took > 2*time.Second {
			t.Errorf("while frozen: refused only after %v", r.took)
		}
		refused++
		slowest = max(slowest, r.took)
	}
}
