package e2e_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"phonebank/test/fakephone"
	"phonebank/test/harness"
	"phonebank/test/redistest"
)

// steady is a phone that writes 200 tokens a second at the speed of these tests.
func steady(slots int) func(int, *fakephone.Config) {
	return func(_ int, c *fakephone.Config) {
		c.Profile = fakephone.Profile{Name: "steady", Slots: slots, PrefillShortTPS: 500, DecodeTPS: 10}
	}
}

// lasting is a stream of that many tokens.
func lasting(name string, tokens int) call {
	return call{class: "chat", prompt: fmt.Sprintf("%s LENGTH=%d", name, tokens), maxTokens: tokens + 1, stream: true}
}

// pair is two gateways over two phones on a real Redis.
func pair(t *testing.T, drain string) [2]*harness.Gateway {
	t.Helper()
	redis := redistest.Server(t)
	fleet := harness.StartFleet(t, 2, 20, steady(2))
	config := fleet.Config(harness.Options{Redis: redis.URL(), Namespace: "pair", RedisTimeout: "3s", Extra: "drain_timeout: " + drain})
	gateways := [2]*harness.Gateway{harness.StartGateway(t, config), harness.StartGateway(t, config)}
	for _, g := range gateways {
		awaitReady(t, g, 2)
	}
	return gateways
}

// background sends a call and returns a function that waits for its reply.
func background(t *testing.T, base string, c call) func() reply {
	t.Helper()
	var r reply
	var wg sync.WaitGroup
	wg.Go(func() { r = send(t.Context(), base, c) })
	return func() reply { wg.Wait(); return r }
}

// awaitDepth waits until n slots of the fleet are occupied.
func awaitDepth(t *testing.T, g *harness.Gateway, n int) {
	t.Helper()
	harness.Eventually(t, 15*time.Second, func() (bool, string) {
		d := depth(t, g)
		return d == n, fmt.Sprintf("%d slots occupied, want %d", d, n)
	})
}

// awaitNotReady waits until a gateway tells its probes to go elsewhere.
func awaitNotReady(t *testing.T, g *harness.Gateway) {
	t.Helper()
	harness.Eventually(t, 5*time.Second, func() (bool, string) {
		status, body := harness.Get(t, g.URL+"/readyz", "")
		return status == http.StatusServiceUnavailable, fmt.Sprintf("/readyz: %d %s", status, body)
	})
}

// awaitExit waits for the end of a process and returns how it ended.
func awaitExit(t *testing.T, g *harness.Gateway, within time.Duration) error {
	t.Helper()
	select {
	case <-g.Done():
	case <-time.After(within):
		t.Fatalf("still running after %v", within)
	}
	return g.Stop()
}

// A gateway that is told to stop first says so, turns new work away with a time to come back, lets what runs finish, and leaves nothing.
func TestStopDrains(t *testing.T) {
	t.Parallel()
	gateways := pair(t, "30s")
	stops, stays := gateways[0], gateways[1]
	here, there := lasting("Here", 600), lasting("There", 600)
	running, other := background(t, stops.URL, here), background(t, stays.URL, there)
	awaitDepth(t, stays, 2)

	stops.Signal(syscall.SIGTERM)
	awaitNotReady(t, stops)
	if status, _ := harness.Get(t, stops.URL+"/livez", ""); status != http.StatusOK {
		t.Errorf("/livez while stopping: %d, want 200", status)
	}
	for _, stream := range []bool{true, false} {
		r := send(t.Context(), stops.URL, call{class: "chat", prompt: "Too late", maxTokens: 8, stream: stream})
		if r.status != http.StatusServiceUnavailable || r.header.Get("Retry-After") == "" || r.failure == "" {
			t.Errorf("new work while stopping: %v, Retry-After %q, want 503 with one", r, r.header.Get("Retry-After"))
		}
	}
	if c := (call{class: "chat", prompt: "Elsewhere", maxTokens: 64}); !send(t.Context(), stays.URL, c).right(c) {
		t.Error("the other gateway does not serve")
	}
	if r := running(); !r.right(here) {
		t.Errorf("the stream that ran: %v", r)
	}
	if err := awaitExit(t, stops, 10*time.Second); err != nil {
		t.Errorf("exit: %v, want 0", err)
	}
	if r := other(); !r.right(there) {
		t.Errorf("the other gateway's stream: %v", r)
	}
	awaitDepth(t, stays, 0)
}

// What outlasts the drain is cut honestly, and its slot is free soon.
func TestDrainTimeoutCuts(t *testing.T) {
	t.Parallel()
	gateways := pair(t, "1s")
	running := background(t, gateways[0].URL, lasting("Endless", 100_000))
	unstreamed := background(t, gateways[0].URL, call{class: "chat", prompt: "Endless LENGTH=100000", maxTokens: 100_001})
	awaitDepth(t, gateways[1], 2)
	gateways[0].Signal(syscall.SIGTERM)
	if r := running(); r.status != http.StatusOK || !r.delivered() || r.failure == "" || r.done {
		t.Errorf("the stream that ran: %v, want content, an error event and no [DONE]", r)
	}
	if r := unstreamed(); r.status != http.StatusServiceUnavailable || r.failure == "" || r.header.Get("Retry-After") == "" {
		t.Errorf("the unstreamed request: %v, want 503 with Retry-After", r)
	}
	if err := awaitExit(t, gateways[0], 15*time.Second); err != nil {
		t.Errorf("exit: %v, want 0", err)
	}
	awaitDepth(t, gateways[1], 0)
}

func TestSecondSignalExitsAtOnce(t *testing.T) {
	t.Parallel()
	fleet := harness.StartFleet(t, 1, 20, steady(1))
	g := harness.StartGateway(t, fleet.Config(harness.Options{Extra: "drain_timeout: 60s"}))
	awaitReady(t, g, 1)
	running := background(t, g.URL, lasting("Endless", 100_000))
	awaitDepth(t, g, 1)
	g.Signal(syscall.SIGTERM)
	awaitNotReady(t, g)
	g.Signal(syscall.SIGTERM)
	_ = awaitExit(t, g, 5*time.Second) // by the signal, so not 0
	if r := running(); r.done {
		t.Errorf("the stream that was killed ended as if it were whole: %v", r)
	}
}

// Every slot is at work and callers wait: operators and probes are answered as ever.
func TestControlPlaneUnderFullLoad(t *testing.T) {
	t.Parallel()
	fleet := harness.StartFleet(t, 4, 20, steady(4))
	g := harness.StartGateway(t, fleet.Config(harness.Options{Extra: patient}))
	awaitReady(t, g, 4)
	for i := range 32 { // as many again wait
		background(t, g.URL, lasting(fmt.Sprint("Long ", i), 4000))
	}
	awaitDepth(t, g, 16)
	for _, path := range []string{g.URL + "/livez", g.URL + "/readyz", g.URL + "/v1/models", g.URL + "/v1/models/" + harness.Model,
		g.Admin + "/admin/v1/replicas", g.Admin + "/metrics", g.Admin + "/readyz"} {
		slow := 0
		for range 10 {
			start := time.Now()
			key := harness.Key
			if strings.HasPrefix(path, g.Admin) {
				key = harness.AdminKey
			}
			if status, body := harness.Get(t, path, key); status != http.StatusOK {
				t.Errorf("%s: %d %s", path, status, body)
			}
			if time.Since(start) > 200*time.Millisecond {
				slow++
			}
		}
		if slow > 2 { // a busy machine may stall now and then
			t.Errorf("%s: %d of 10 answers took more than 200 ms", path, slow)
		}
	}
}
