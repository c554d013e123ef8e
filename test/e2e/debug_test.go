package e2e_test

import (
	"testing"
	"time"
	"strings"
	"fmt"

	"phonebank/test/redistest"
)

func TestDebug(t *testing.T) {
	redis := redistest.Server(t)
	_, gateways := crowd(t, redis, 100)
	calls := mix(1000, 1)
	done := make(chan struct{})
	go func() {
		for i := 0; i < 40; i++ {
			select { case <-done: return; case <-time.After(2*time.Second): }
			fmt.Println(i, "q", redis.Do("ZCARD", "{crowd}:q:qwen3.5-9b"), "h", redis.Do("SCARD", "{crowd}:h:qwen3.5-9b"), "free", redis.Do("ZCARD", "{crowd}:free:qwen3.5-9b"), "depth", depth(t, gateways[0]))
		}
	}()
	replies := volley(t.Context(), calls, 12*time.Second, []string{gateways[0].URL, gateways[1].URL}, nil)
	close(done)
	bad := 0
	for i, r := range replies {
		if !r.right(calls[i]) {
			bad++
			if bad < 5 { t.Errorf("request %d (%s, stream %v): %v", i, calls[i].class, calls[i].stream, r) }
		}
	}
	fmt.Println("bad", bad)
	for _, g := range gateways {
		n := 0
		for _, l := range strings.Split(g.Log(), "\n") {
			if !strings.Contains(l, "\"request\"") && n < 20 { fmt.Println(l); n++ }
		}
	}
}
