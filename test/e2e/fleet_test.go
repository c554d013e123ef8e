package e2e_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"phonebank/test/harness"
	"phonebank/test/redistest"
)

// patient lets everything wait: these tests are about correctness, not about the callers' patience.
const patient = "queue: {patience: {guard: 60s, chat: 60s, review: 60s}}\n"

// crowd is a hundred phones at twenty times life behind two gateways on a real Redis.
func crowd(t *testing.T, redis *redistest.Instance, phones int) (*harness.Fleet, [2]*harness.Gateway) {
	t.Helper()
	fleet := harness.StartFleet(t, phones, 20)
	config := fleet.Config(harness.Options{Redis: redis.URL(), Namespace: "crowd", Class: "guard", Extra: patient, RedisTimeout: "3s"})
	gateways := [2]*harness.Gateway{harness.StartGateway(t, config), harness.StartGateway(t, config)}
	for _, g := range gateways {
		awaitReady(t, g, phones)
	}
	return fleet, gateways
}

// volley sends calls over a time with random gaps, alternating between the gateways, and returns the replies in order.
// at[i] is called before the i-th call is sent, if it is there.
func volley(ctx context.Context, calls []call, over time.Duration, gateways []string, at map[int]func()) []reply {
	random := rand.New(rand.NewPCG(7, 7))
	replies := make([]reply, len(calls))
	var wg sync.WaitGroup
	next := time.Now()
	for i := range calls {
		if f := at[i]; f != nil {
			f()
		}
		next = next.Add(time.Duration(random.ExpFloat64() * float64(over) / float64(len(calls))))
		pause := time.NewTimer(time.Until(next))
		<-pause.C
		wg.Go(func() { replies[i] = send(ctx, gateways[i%len(gateways)], calls[i]) })
	}
	wg.Wait()
	return replies
}

// checkSlots fails if any phone was ever given more than its slots by gateways that knew of each other.
func checkSlots(t *testing.T, f *harness.Fleet) {
	t.Helper()
	for _, p := range f.Phones {
		s, slots := p.Stats(), p.Config().Slots
		if s.WaitedLive > 0 || s.PeakLive > slots {
			t.Errorf("%s with %d slots: %d requests found every slot at work for a live client, peak %d", p.Config().ID, slots, s.WaitedLive, s.PeakLive)
		}
	}
}

// watchDepth samples the state until the returned function is called, which fails the test if more was ever granted than there are slots.
func watchDepth(t *testing.T, g *harness.Gateway) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var over []string
	samples := 0
	wg.Go(func() {
		poll := time.NewTicker(200 * time.Millisecond)
		defer poll.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-poll.C:
			}
			list, err := replicas(ctx, g)
			if err != nil {
				continue
			}
			samples++
			for _, r := range list {
				if r.Depth > r.Slots {
					over = append(over, fmt.Sprintf("%s: %d of %d", r.ID, r.Depth, r.Slots))
				}
			}
		}
	})
	return func() {
		t.Helper()
		cancel()
		wg.Wait()
		if samples == 0 {
			t.Error("the fleet was never sampled")
		}
		for _, o := range over {
			t.Errorf("granted more than slots: %s", o)
		}
	}
}

func TestThousandRequestsThroughTwoGateways(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	fleet, gateways := crowd(t, redistest.Server(t), 100)
	stop := watchDepth(t, gateways[0])
	calls := mix(1000, 1)
	replies := volley(t.Context(), calls, 12*time.Second, []string{gateways[0].URL, gateways[1].URL}, nil)
	stop()
	for i, r := range replies {
		if !r.right(calls[i]) {
			t.Errorf("request %d (%s, stream %v): %v", i, calls[i].class, calls[i].stream, r)
		}
	}
	checkSlots(t, fleet)
	harness.Eventually(t, 15*time.Second, func() (bool, string) {
		n := depth(t, gateways[0])
		return n == 0, fmt.Sprintf("%d slots still occupied", n)
	})
}

func TestTenPhonesAndAGatewayDie(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	fleet, gateways := crowd(t, redistest.Server(t), 100)
	calls := mix(1000, 2)
	killPhones := func() {
		for i := range 10 {
			_ = fleet.Phones[i*10+i].Close()
		}
	}
	var killedAt time.Time
	killGateway := func() { killedAt = time.Now(); gateways[1].Kill() }
	replies := volley(t.Context(), calls, 12*time.Second, []string{gateways[0].URL, gateways[1].URL},
		map[int]func(){300: killPhones, 500: killGateway})

	cut := 0
	for i, r := range replies {
		switch {
		case i%2 == 1:
			// Sent to the gateway that died: whatever it answered whole must still be right.
			if r.err == nil && r.done && !r.right(calls[i]) {
				t.Errorf("request %d to the dead gateway: %v", i, r)
			}
		case r.right(calls[i]):
		case calls[i].stream && r.delivered() && r.failure != "" && !r.done:
			cut++ // an honest error event after content
		default:
			t.Errorf("request %d (%s, stream %v) on the living gateway: %v", i, calls[i].class, calls[i].stream, r)
		}
	}
	t.Logf("%d streams had delivered content when their phone died", cut)
	t.Logf("load ended %v after the gateway was killed", time.Since(killedAt).Round(time.Millisecond))
}

// Every slot is at work for one gateway when it is killed: within 15 s the other one can use them all.
func TestSlotsOfAKilledGatewayAreUsableAgain(t *testing.T) {
	fleet, gateways := crowd(t, redistest.Server(t), 20)
	slots := 0
	for _, p := range fleet.Phones {
		slots += p.Config().Slots
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	for i := range slots {
		wg.Go(func() {
			send(ctx, gateways[1].URL, call{class: "guard", prompt: fmt.Sprintf("Endless %d LENGTH=12000", i), maxTokens: 12000, stream: true})
		})
	}
	harness.Eventually(t, 20*time.Second, func() (bool, string) {
		n := depth(t, gateways[0])
		return n == slots, fmt.Sprintf("%d of %d slots occupied", n, slots)
	})
	killed := time.Now()
	gateways[1].Kill()
	calls := make([]call, slots)
	replies := make([]reply, slots)
	for i := range calls {
		calls[i] = call{class: "guard", prompt: fmt.Sprintf("After the kill %d", i), maxTokens: 64}
		wg.Go(func() { replies[i] = send(ctx, gateways[0].URL, calls[i]) })
	}
	harness.Eventually(t, 15*time.Second-time.Since(killed), func() (bool, string) {
		n := depth(t, gateways[0])
		return n == 0, fmt.Sprintf("%d of %d slots occupied by a dead gateway", n, slots)
	})
	t.Logf("all %d slots usable again after %v", slots, time.Since(killed).Round(time.Millisecond))
	wg.Wait()
	for i, r := range replies {
		if !r.right(calls[i]) {
			t.Errorf("request %d sent after the kill: %v", i, r)
		}
	}
}

// Far more work than slots: everything waits in the one queue, through both gateways, and everything is answered.
func TestBacklogDrains(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	fleet, gateways := crowd(t, redistest.Server(t), 20)
	stop := watchDepth(t, gateways[0])
	calls := mix(300, 3)
	replies := volley(t.Context(), calls, time.Second, []string{gateways[0].URL, gateways[1].URL}, nil)
	stop()
	for i, r := range replies {
		if !r.right(calls[i]) {
			t.Errorf("request %d (%s, stream %v): %v", i, calls[i].class, calls[i].stream, r)
		}
	}
	checkSlots(t, fleet)
}
