package redisstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"phonebank/auth/limit"
	"phonebank/balancer"
	"phonebank/test/redistest"
)

// unavailable fails the test unless err says that Redis is away.
func unavailable(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, balancer.ErrUnavailable) {
		t.Errorf("%s: got %v, want ErrUnavailable", what, err)
	}
}

// Case: Redis is frozen under load and wakes up with everything still in its sockets. Calls fail in time, then at once; afterwards nothing
// alive was reaped, and nothing leaks of what the frozen server ran although its callers had given up.
func TestFrozenServer(t *testing.T) {
	t.Parallel()
	i := redistest.Server(t)
	s := openOn(t, i, Config{Timeout: 150 * time.Millisecond, BeatTTL: 1500 * time.Millisecond, PulseGap: 400 * time.Millisecond})
	a := phone(t, s, "a", 8)
	beat(t, s, gw1)
	beat(t, s, gw2)
	tick(t, s, gw1)
	admit(t, s, gw1, offer(ticket(1), "L1", a))
	admit(t, s, gw2, offer(ticket(2), "L2", a))
	admit(t, s, gw2, offer(ticket(3), "L3", a))
	admit(t, s, gw2, offer(ticket(4), ""))

	i.Freeze()
	start := time.Now()
	_, _, err := s.Admit(t.Context(), gw1, "shop", limit.Limits{Concurrent: 5}, limit.Cost{}, offer(ticket(10), "L10", a))
	unavailable(t, "Admit", err)
	_, err = s.Finish(t.Context(), balancer.Finish{By: gw2, Ticket: "t2", Lease: "L2"})
	unavailable(t, "Finish", err)
	_, err = s.Assign(t.Context(), gw2, "t4", "L4", []balancer.Candidate{a}, false)
	unavailable(t, "Assign", err)
	_, err = s.Take(t.Context(), gw2, "t3", "L3")
	unavailable(t, "Take", err)
	_, err = s.Beat(t.Context(), gw1)
	unavailable(t, "Beat", err)
	if took := time.Since(start); took > 5*150*time.Millisecond+2*time.Second {
		t.Errorf("five calls took %v", took)
	}
	start = time.Now()
	_, err = s.Snapshot(t.Context())
	unavailable(t, "Snapshot", err)
	if took := time.Since(start); took > 100*time.Millisecond || s.Healthy() || s.State() != "open" {
		t.Errorf("breaker: call took %v, healthy %v, %s; want at once and open", took, s.Healthy(), s.State())
	}
	<-time.After(2 * time.Second) // longer than an owner's time to live
	i.Thaw()

	eventually(t, "redis is back", func() bool {
		k, err := s.Tick(t.Context(), gw1)
		if err == nil && k.Reaped != 0 {
			t.Errorf("reaped %d", k.Reaped)
		}
		return err == nil
	})
	for range 2 { // debts are paid twice
		tick(t, s, gw1)
	}
	if !beat(t, s, gw1) || !beat(t, s, gw2) {
		t.Error("an owner was forgotten")
	}
	if n := len(s.owed.some()); n != 0 {
		t.Errorf("%d debts left", n)
	}
	// t1 runs; t2 has ended; the Take of t3 was in doubt, so t3 waits, and so does t4; t10 is gone.
	if v := view(t, s, "a"); v.Depth() != 1 {
		t.Errorf("depth %d, want 1", v.Depth())
	}
	if got := waiting(t, s); got != "t3 t4" {
		t.Errorf("waiting: %q, want t3 t4", got)
	}
	if done := finish(t, s, balancer.Finish{By: gw1, Ticket: "t1", Lease: "L1"}); !done.Known {
		t.Error("the living lease is gone")
	}
	for _, id := range []string{"t3", "t4"} {
		finish(t, s, balancer.Finish{By: gw2, Ticket: id})
	}
	if got := leftovers(t, s); len(got) != 0 {
		t.Errorf("keys left: %v", got)
	}
}

// A call repeated by its caller is not undone afterwards.
func TestRepeatedCallIsNotUndone(t *testing.T) {
	t.Parallel()
	i := redistest.Server(t)
	s := openOn(t, i, Config{Timeout: 150 * time.Millisecond})
	a := phone(t, s, "a", 2)
	i.Freeze()
	_, _, err := s.Admit(t.Context(), gw1, "shop", limit.Limits{}, limit.Cost{}, offer(ticket(1), "L1", a))
	unavailable(t, "Admit", err)
	i.Thaw()
	if p := admit(t, s, gw1, offer(ticket(1), "L1", a)); p.Lease == nil {
		t.Fatal("not granted")
	}
	for range 3 {
		tick(t, s, gw1)
	}
	if v := view(t, s, "a"); v.Depth() != 1 {
		t.Errorf("depth %d, want 1", v.Depth())
	}
}

// Case: the server is killed and comes back empty. Pooled connections do not keep it away, owners learn of the loss.
func TestRestartedServer(t *testing.T) {
	t.Parallel()
	i := redistest.Server(t)
	s := openOn(t, i, Config{Timeout: time.Second})
	news := s.Notices(t.Context(), gw1)
	<-news
	phone(t, s, "a", 1)
	beat(t, s, gw1)
	var wg sync.WaitGroup
	for range 16 { // fill the pool
		wg.Go(func() { _, _ = s.Snapshot(t.Context()) })
	}
	wg.Wait()
	i.Kill()
	_, err := s.Beat(t.Context(), gw1)
	unavailable(t, "Beat", err)
	i.Restart()
	known := true
	eventually(t, "redis is back", func() bool { known, err = s.Beat(t.Context(), gw1); return err == nil })
	if known {
		t.Error("known by an empty server")
	}
	for len(news) > 0 {
		<-news
	}
	eventually(t, "notices come again", func() bool {
		phone(t, s, "b", 1+len(news)%2)
		return len(news) > 0
	})
}

// Case: a demoted master answers READONLY. That is being away, and its connections are dropped.
func TestReadOnlyServer(t *testing.T) {
	t.Parallel()
	i := redistest.Server(t)
	s := openOn(t, i, Config{})
	beat(t, s, gw1)
	i.Do("REPLICAOF", "127.0.0.1", "1")
	_, err := s.Beat(t.Context(), gw1)
	unavailable(t, "Beat", err)
	if n := s.client.PoolStats().TotalConns; n != 0 {
		t.Errorf("%d connections kept to a demoted master", n)
	}
	i.Do("REPLICAOF", "NO", "ONE")
	beat(t, s, gw1)
}

// Case: an error of a script is not taken for absence.
func TestScriptErrorIsNotAbsence(t *testing.T) {
	onBoth(t, func(t *testing.T, s *Store) {
		if err := s.client.Set(t.Context(), s.keys.prefix+"owners", "wrong type", 0).Err(); err != nil {
			t.Fatal(err)
		}
		for range 2 * breakerTrips {
			_, err := s.Beat(t.Context(), gw1)
			if err == nil || errors.Is(err, balancer.ErrUnavailable) || !strings.Contains(err.Error(), "WRONGTYPE") {
				t.Fatalf("got %v, want WRONGTYPE and not ErrUnavailable", err)
			}
		}
		if !s.Healthy() {
			t.Error("the breaker has opened")
		}
		tk := ticket(1)
		admitErr := func(by balancer.Owner) error {
			_, _, err := s.Admit(t.Context(), by, "shop", limit.Limits{}, limit.Cost{}, offer(tk, ""))
			return err
		}
		if err := s.client.Del(t.Context(), s.keys.prefix+"owners").Err(); err != nil {
			t.Fatal(err)
		}
		if err := admitErr(gw1); err != nil {
			t.Fatal(err)
		}
		if err := admitErr(gw2); err == nil || errors.Is(err, balancer.ErrUnavailable) {
			t.Errorf("another owner's ticket: got %v", err)
		}
	})
}

func TestForgottenScripts(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, i *redistest.Instance) {
		s := openOn(t, i, Config{})
		beat(t, s, gw1)
		i.FlushScripts()
		if !beat(t, s, gw1) {
			t.Error("unknown")
		}
	})
}

// Case: callers that give up early do not cost connections.
func TestImpatientCallers(t *testing.T) {
	t.Parallel()
	i := redistest.Server(t)
	s := openOn(t, i, Config{})
	var wg sync.WaitGroup
	for range 200 {
		wg.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if _, err := s.Beat(ctx, gw1); err != nil {
				t.Errorf("Beat with a cancelled context: %v", err)
			}
		})
	}
	wg.Wait()
	stats := s.client.PoolStats()
	if stats.StaleConns != 0 || stats.Misses > uint32(2*poolSize()) {
		t.Errorf("%d connections made, %d dropped", stats.Misses, stats.StaleConns)
	}
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	i := redistest.Server(t)
	open := func(c Config) error {
		s, err := Open(t.Context(), c, slog.New(slog.DiscardHandler))
		if err == nil {
			t.Errorf("opened %+v", c)
			_ = s.Close()
			return errors.New("none")
		}
		return err
	}
	if err := open(Config{URL: "unix:///nowhere/redis.sock"}); !errors.Is(err, balancer.ErrUnavailable) {
		t.Errorf("no server: got %v, want ErrUnavailable", err)
	}
	i.Do("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
	if err := open(Config{URL: i.URL()}); errors.Is(err, balancer.ErrUnavailable) || !strings.Contains(err.Error(), "noeviction") {
		t.Errorf("evicting server: got %v", err)
	}
	for _, url := range []string{"", "http://x", "redis://:hunter2@h:x", "redis://u:hunter2@h/0/hunter2", "redis://h?hunter2=1", "redis://:hunter2@h?master_name="} {
		if err := open(Config{URL: url}); errors.Is(err, balancer.ErrUnavailable) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("URL %q: got %v", url, err)
		}
	}
	err := open(Config{URL: "http://x", Namespace: "a}b", Timeout: -1})
	for _, word := range []string{"url", "namespace", "negative"} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("got %v, want %q in it too", err, word)
		}
	}
	if err := (Config{URL: "redis://s1:26379/0?master_name=m&addr=s2:26379"}).Validate(); err != nil {
		t.Errorf("Sentinel URL: %v", err)
	}
}

func TestOpenEmbedded(t *testing.T) {
	before := runtime.NumGoroutine()
	var calls atomic.Int64
	s, err := OpenEmbedded(t.Context(), Config{OnCall: func(string, time.Duration, error) { calls.Add(1) }}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if !s.Embedded() || !s.Healthy() {
		t.Errorf("embedded %v, healthy %v", s.Embedded(), s.Healthy())
	}
	var replicas []balancer.Replica
	for n := range 1000 {
		replicas = append(replicas, balancer.Replica{ID: balancer.ReplicaID(fmt.Sprintf("p%d", n)), Model: model, Slots: 1})
	}
	if err := s.Join(t.Context(), replicas); err != nil {
		t.Fatal(err)
	}
	snap, err := s.Snapshot(t.Context())
	if err != nil || len(snap.Views) != 1000 {
		t.Errorf("Snapshot: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	news := s.Notices(ctx, gw1)
	<-news
	cancel()
	for range news {
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if calls.Load() == 0 {
		t.Error("OnCall was not called")
	}
	eventually(t, "goroutines end", func() bool { return runtime.NumGoroutine() <= before })
}

// The whole way of a request in fake time, notices included.
func TestInBubble(t *testing.T) {
	bubble(t, func(t *testing.T, s *Store) {
		news := s.Notices(t.Context(), gw1)
		<-news
		a := phone(t, s, "a", 1)
		admit(t, s, gw1, offer(ticket(1), "L1", a))
		admit(t, s, gw1, offer(ticket(2), ""))
		live(t, s, gw1, 10*time.Minute, func() { beat(t, s, gw2) })
		done := finish(t, s, balancer.Finish{By: gw1, Ticket: "t1", Lease: "L1", Cooling: 3 * time.Second})
		if !done.Known || len(done.Heads.Tickets) != 1 || len(done.Heads.Free) != 0 {
			t.Errorf("got %+v, want one head and no free phone", done)
		}
		live(t, s, gw2, 4*time.Second, func() {})
		if got := free(t, s); !slices.Equal(got, []balancer.ReplicaID{"a"}) {
			t.Fatalf("free: %v, want a", got)
		}
		assign(t, s, gw2, "t2", "L2", a)
		for n := range news {
			if n.Lease != nil {
				if ok, err := s.Take(t.Context(), gw1, n.Lease.Ticket, n.Lease.ID); !ok || err != nil {
					t.Errorf("Take: %v, %v", ok, err)
				}
				break
			}
		}
		if v := view(t, s, "a"); v.Depth() != 1 {
			t.Errorf("depth %d, want 1", v.Depth())
		}
	})
}
