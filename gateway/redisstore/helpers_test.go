package redisstore

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"phonebank/auth/limit"
	"phonebank/balancer"
	"phonebank/health"
	"phonebank/test/redistest"
)

const (
	model = "qwen"
	gw1   = balancer.Owner("gw-1")
	gw2   = balancer.Owner("gw-2")
)

// onBoth runs a test of the contract on both servers.
func onBoth(t *testing.T, f func(t *testing.T, s *Store)) {
	t.Helper()
	t.Parallel()
	redistest.Each(t, func(t *testing.T, i *redistest.Instance) { f(t, openOn(t, i, Config{})) })
}

// openOn connects to i. The deadline of a call is long, lest a busy machine fail the test.
func openOn(t testing.TB, i *redistest.Instance, c Config) *Store {
	t.Helper()
	c.URL, c.Dialer = i.URL(), i.Dialer()
	c.Timeout = cmp.Or(c.Timeout, 10*time.Second)
	s, err := Open(t.Context(), c, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

// phone joins a ready replica and returns it as a candidate.
func phone(t testing.TB, s *Store, id balancer.ReplicaID, slots int) balancer.Candidate {
	t.Helper()
	err := s.Join(t.Context(), []balancer.Replica{{ID: id, Model: model, Engine: balancer.LlamaCpp, Slots: slots, Context: 8192}})
	if err != nil {
		t.Fatalf("Join: %v", err)
	}
	setState(t, s, id, balancer.Ready)
	r, _, err := s.Health(t.Context(), id)
	if err != nil {
		t.Fatalf("Health: %v", err)
	}
	return balancer.Candidate{Replica: id, Generation: r.Generation, Predicted: 20 * time.Second}
}

func setState(t testing.TB, s *Store, id balancer.ReplicaID, state balancer.State) {
	t.Helper()
	change(t, s, id, func(r *health.Record) { r.State = state })
}

func change(t testing.TB, s *Store, id balancer.ReplicaID, f func(*health.Record)) {
	t.Helper()
	r, ok, err := s.Health(t.Context(), id)
	if err != nil || !ok {
		t.Fatalf("Health(%s): ok %v, %v", id, ok, err)
	}
	f(&r)
	if ok, err := s.SetHealth(t.Context(), id, r); err != nil || !ok {
		t.Fatalf("SetHealth(%s): %v, %v", id, ok, err)
	}
}

// ticket has a place in the queue by its number.
func ticket(n int) balancer.Ticket {
	return balancer.Ticket{
		ID: fmt.Sprintf("t%d", n), Key: "shop", Model: model, Class: balancer.Review, PromptTokens: 7000, OutputTokens: 20, Slots: 1,
		Arrived: time.UnixMilli(1_700_000_000_000 + int64(n)), HardEnd: time.Hour,
	}
}

func offer(tk balancer.Ticket, lease string, c ...balancer.Candidate) balancer.Offer {
	return balancer.Offer{Ticket: tk, LeaseID: lease, Candidates: c}
}

// admit without limits.
func admit(t testing.TB, s *Store, by balancer.Owner, o balancer.Offer) balancer.Placement {
	t.Helper()
	d, p, err := s.Admit(t.Context(), by, o.Ticket.Key, limit.Limits{}, limit.Cost{Requests: 1}, o)
	if err != nil || !d.Allowed {
		t.Fatalf("Admit(%s): %+v, %v", o.Ticket.ID, d, err)
	}
	return p
}

func finish(t testing.TB, s *Store, f balancer.Finish) balancer.Finished {
	t.Helper()
	done, err := s.Finish(t.Context(), f)
	if err != nil {
		t.Fatalf("Finish(%s): %v", f.Ticket, err)
	}
	return done
}

func assign(t testing.TB, s *Store, by balancer.Owner, ticket, lease string, c ...balancer.Candidate) *balancer.Lease {
	t.Helper()
	l, err := s.Assign(t.Context(), by, ticket, lease, c, false)
	if err != nil {
		t.Fatalf("Assign(%s): %v", ticket, err)
	}
	return l
}

func tick(t testing.TB, s *Store, by balancer.Owner) balancer.Tick {
	t.Helper()
	k, err := s.Tick(t.Context(), by)
	if err != nil {
		t.Fatalf("Tick: %v", err)
	}
	return k
}

func heads(t testing.TB, s *Store) balancer.Heads {
	t.Helper()
	h, err := s.Heads(t.Context(), model, 10)
	if err != nil {
		t.Fatalf("Heads: %v", err)
	}
	return h
}

// free lists the replicas with a free slot.
func free(t testing.TB, s *Store) []balancer.ReplicaID { return heads(t, s).Free }

func waiting(t testing.TB, s *Store) string {
	t.Helper()
	var ids []string
	for _, q := range heads(t, s).Tickets {
		ids = append(ids, q.ID)
	}
	return strings.Join(ids, " ")
}

func view(t testing.TB, s *Store, id balancer.ReplicaID) *balancer.View {
	t.Helper()
	snap, err := s.Snapshot(t.Context())
	if err != nil {
		t.Fatalf("Snapshot: %v", err)
	}
	v := snap.Find(id)
	if v == nil {
		t.Fatalf("Snapshot: no replica %s", id)
	}
	return v
}

// eventually polls until ok, for things that the server's clock brings.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("timed out: %s", what)
		}
		<-poll.C
	}
}

// leftovers are the keys beside the replica table and the pulse.
func leftovers(t testing.TB, s *Store) []string {
	t.Helper()
	all, err := s.client.Keys(context.Background(), "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, key := range all {
		name, ok := strings.CutPrefix(key, s.keys.prefix)
		kind, _, _ := strings.Cut(name, ":")
		known := slices.Contains([]string{"reps", "r", "s", "free", "due", "gen", "owners", "known", "pulse", "noreap", "turn", "k"}, kind)
		if !ok || !known {
			left = append(left, key)
		}
	}
	slices.Sort(left)
	return left
}
