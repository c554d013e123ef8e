package balancer_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"phonebank/auth/limit"
	"phonebank/balancer"
	"phonebank/gateway/redisstore"
	"phonebank/test/redistest"
)

// world is a fleet and its gateways around one shared state, in fake time. Its end waits for every goroutine: one that leaks fails the test.
type world struct {
	t     *testing.T
	redis *redistest.Instance
	store *redisstore.Store // an operator's
}

// inWorld runs f in a bubble. Whatever f leaves behind in the shared state, beside the fleet, fails the test.
func inWorld(t *testing.T, f func(w *world)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, redis: redistest.Mini(t)}
		w.store = w.open(w.redis.Dialer())
		f(w)
		if left := w.left(); len(left) > 0 {
			t.Errorf("keys left: %v", left)
		}
	})
}

func (w *world) open(dial func(context.Context, string, string) (net.Conn, error)) *redisstore.Store {
	w.t.Helper()
	s, err := redisstore.Open(w.t.Context(), redisstore.Config{URL: w.redis.URL(), Dialer: dial}, slog.New(slog.DiscardHandler))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if err := s.Close(); err != nil {
			w.t.Error(err)
		}
	})
	return s
}

// join adds ready phones.
func (w *world) join(phones ...phone) {
	w.t.Helper()
	for _, p := range phones {
		if err := w.store.Join(w.t.Context(), []balancer.Replica{p.view().Replica}); err != nil {
			w.t.Fatal(err)
		}
		w.set(p.id, balancer.Ready)
	}
}

func (w *world) set(id string, state balancer.State) {
	w.t.Helper()
	r, _, err := w.store.Health(w.t.Context(), balancer.ReplicaID(id))
	if err != nil {
		w.t.Fatal(err)
	}
	r.State = state
	if ok, err := w.store.SetHealth(w.t.Context(), balancer.ReplicaID(id), r); err != nil || !ok {
		w.t.Fatalf("SetHealth: %v, %v", ok, err)
	}
}

// depth is the number of occupied slots of a phone.
func (w *world) depth(id string) int {
	w.t.Helper()
	s, err := w.store.Snapshot(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	return s.Find(balancer.ReplicaID(id)).Depth()
}

// left are the keys beside the replica table and what ends by itself.
func (w *world) left() []string {
	var left []string
	for _, key := range w.redis.Mini.Keys() {
		kind, _, _ := strings.Cut(strings.TrimPrefix(key, "{phonebank}:"), ":")
		if !slices.Contains([]string{"reps", "r", "s", "free", "due", "gen", "owners", "known", "pulse", "noreap", "turn", "k"}, kind) {
			left = append(left, key)
		}
	}
	return left
}

// gateway is one dispatcher that runs.
type gateway struct {
	w     *world
	owner balancer.Owner
	store *redisstore.Store
	room  *balancer.Dispatcher
	mute  atomic.Bool // replies of the shared state do not arrive
	kill  context.CancelFunc
}

// deaf is a store whose notices get lost.
type deaf struct{ balancer.Store }

func (deaf) Notices(ctx context.Context, _ balancer.Owner) <-chan balancer.Notice {
	none := make(chan balancer.Notice)
	context.AfterFunc(ctx, func() { close(none) })
	return none
}

// hooked is a store that does something else first. A ticket that refuse names is not granted.
type hooked struct {
	balancer.Store
	refuse  func(ticket string) bool
	restore func(ticket string)
}

func (h hooked) Assign(ctx context.Context, by balancer.Owner, ticket, lease string, c []balancer.Candidate, hold bool) (*balancer.Lease, error) {
	if h.refuse != nil && h.refuse(ticket) {
		return nil, nil
	}
	return h.Store.Assign(ctx, by, ticket, lease, c, hold)
}

func (h hooked) Restore(ctx context.Context, by balancer.Owner, t balancer.Ticket, l *balancer.Lease) error {
	if h.restore != nil {
		h.restore(t.ID)
	}
	return h.Store.Restore(ctx, by, t, l)
}

// start runs a gateway until the test ends or it is killed.
func (w *world) start(name string) *gateway {
	return w.startWith(name, func(s balancer.Store) balancer.Store { return s })
}

// startWith is start with something between the room and the shared state.
func (w *world) startWith(name string, between func(balancer.Store) balancer.Store) *gateway {
	w.t.Helper()
	g := &gateway{w: w, owner: balancer.Owner(name)}
	dial := w.redis.Dialer()
	g.store = w.open(func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		return &mutable{Conn: c, mute: &g.mute}, err
	})
	g.room = balancer.NewDispatcher(between(g.store), balancer.Config{Owner: g.owner, Rules: balancer.DefaultRules()}, slog.New(slog.DiscardHandler))
	if err := g.room.Refresh(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(w.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- g.room.Run(ctx) }()
	g.kill = cancel
	w.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			w.t.Errorf("Run: %v", err)
		}
	})
	synctest.Wait()
	return g
}

// mutable is a connection whose peer's words may get lost on the way.
type mutable struct {
	net.Conn
	mute *atomic.Bool
}

func (c *mutable) Read(p []byte) (int, error) {
	for {
		n, err := c.Conn.Read(p)
		if err != nil || !c.mute.Load() {
			return n, err
		}
	}
}

// job is a review that arrives now.
func (g *gateway) job(id string) balancer.Ticket {
	return balancer.Ticket{
		ID: id, Key: "shop", Model: "m", Class: balancer.Review, PromptTokens: 7000, OutputTokens: 10, Slots: 1,
		Arrived: g.room.Now(), HardEnd: time.Hour,
	}
}

// admit asks for a ticket as a request does; two unfinished ones at most for the key "two".
func (g *gateway) admit(tk balancer.Ticket) (*balancer.Claim, error) {
	claim := g.room.Expect(tk)
	offer, err := claim.Offer("lease-" + tk.ID)
	if err != nil {
		return claim, err
	}
	limits := limit.Limits{}
	if tk.Key == "two" {
		limits.Concurrent = 2
	}
	decision, placement, err := g.store.Admit(g.w.t.Context(), g.owner, tk.Key, limits, limit.Cost{Requests: 1}, offer)
	if err != nil {
		return claim, err
	}
	if err := decision.Err(); err != nil {
		return claim, err
	}
	claim.Admitted(placement)
	return claim, nil
}

func (g *gateway) mustAdmit(tk balancer.Ticket) *balancer.Claim {
	g.w.t.Helper()
	claim, err := g.admit(tk)
	if err != nil {
		g.w.t.Fatalf("admit %s: %v", tk.ID, err)
	}
	return claim
}

// granted waits for a lease, at most as long as everything here takes.
func granted(t *testing.T, c *balancer.Claim) balancer.Lease {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	l, err := c.Await(ctx)
	if err != nil {
		t.Fatalf("%s: no phone: %v", c.Ticket().ID, err)
	}
	return l
}

// waits fails the test if the claim has a phone.
func waits(t *testing.T, c *balancer.Claim) {
	t.Helper()
	synctest.Wait()
	if s := c.Status(); !s.Waiting {
		t.Errorf("%s does not wait", c.Ticket().ID)
	}
}

// end ends a claim well.
func end(t *testing.T, c *balancer.Claim) {
	t.Helper()
	c.End(t.Context(), balancer.Attempt{}, balancer.Settlement{Tokens: 1})
}

// twins are phones alike.
func twins(n, slots int) []phone {
	var phones []phone
	for i := range n {
		phones = append(phones, phone{id: fmt.Sprintf("p%d", i), prefill: 60, decode: 9, slots: slots})
	}
	return phones
}
