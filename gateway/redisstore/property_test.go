package redisstore

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"phonebank/auth/limit"
	"phonebank/balancer"
	"phonebank/test/redistest"
)

// Whatever three gateways do in whatever order, on five phones and two models: no more is granted than there are slots, a ticket has one
// live lease and ends once, every index says the same as the tickets, and when all has ended nothing is left.
func TestAnyOrderKeepsTheState(t *testing.T) {
	t.Parallel()
	i := redistest.Mini(t)
	s := openOn(t, i, Config{})
	rapid.Check(t, func(rt *rapid.T) {
		i.Mini.FlushAll()
		w := &world{t: t, rt: rt, s: s, i: i, now: time.UnixMilli(1_700_000_000_000), open: make(map[string]*openTicket)}
		w.advance(0)
		for n := range 5 {
			w.join(n, 1+n%3)
		}
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			w.step()
			w.check()
		}
		w.end()
	})
}

type openTicket struct {
	balancer.Ticket
	owner balancer.Owner
	lease string // what the owner believes
}

type world struct {
	t     *testing.T
	rt    *rapid.T
	s     *Store
	i     *redistest.Instance
	now   time.Time
	count int
	open  map[string]*openTicket
}

func (w *world) advance(d time.Duration) {
	w.now = w.now.Add(d)
	w.i.Mini.SetTime(w.now)
}

func (w *world) must(err error) {
	if err != nil {
		w.rt.Fatal(err)
	}
}

func (w *world) draw(n int, what string) int { return rapid.IntRange(0, n-1).Draw(w.rt, what) }

func (w *world) owner() balancer.Owner {
	return []balancer.Owner{"gw-1", "gw-2", "gw-3"}[w.draw(3, "owner")]
}

// some picks one of the open tickets, or nil.
func (w *world) some() *openTicket {
	if len(w.open) == 0 {
		return nil
	}
	var ids []string
	for id := range w.open {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return w.open[ids[w.draw(len(ids), "ticket")]]
}

func (w *world) models() []string { return []string{"m0", "m1"} }

func (w *world) join(n, slots int) {
	id := balancer.ReplicaID(fmt.Sprintf("p%d", n))
	w.must(w.s.Join(w.t.Context(), []balancer.Replica{{ID: id, Model: w.models()[n%2], Slots: slots}}))
	r, _, err := w.s.Health(w.t.Context(), id)
	w.must(err)
	r.State = []balancer.State{balancer.Ready, balancer.Suspect}[n%2]
	_, err = w.s.SetHealth(w.t.Context(), id, r)
	w.must(err)
}

func (w *world) candidates() []balancer.Candidate {
	snap, err := w.s.Snapshot(w.t.Context())
	w.must(err)
	var c []balancer.Candidate
	for _, v := range snap.Views {
		c = append(c, balancer.Candidate{Replica: v.ID, Generation: v.Generation, Predicted: time.Second})
	}
	if len(c) == 0 {
		return nil
	}
	return c[w.draw(len(c), "first candidate"):]
}

func (w *world) step() {
	ctx, s := w.t.Context(), w.s
	w.count++
	lease := fmt.Sprintf("L%d", w.count)
	switch w.draw(12, "action") {
	case 0, 1, 2:
		w.admit(lease)
	case 3, 4:
		if k := w.some(); k != nil {
			by := w.owner()
			l, err := s.Assign(ctx, by, k.ID, lease, w.candidates(), false)
			w.must(err)
			if l != nil && by == k.owner {
				k.lease = l.ID
			}
		}
	case 5:
		w.take()
	case 6, 7:
		if k := w.some(); k != nil {
			w.finish(k, w.draw(3, "requeue") == 0)
		}
	case 8:
		if k := w.some(); k != nil {
			_, err := s.Assign(ctx, w.owner(), k.ID, "", nil, w.draw(2, "hold") == 0)
			w.must(err)
		}
	case 9:
		_, err := s.Beat(ctx, w.owner())
		w.must(err)
	case 10:
		w.advance(time.Duration(w.draw(2500, "ms")) * time.Millisecond)
		_, err := s.Tick(ctx, w.owner())
		w.must(err)
	case 11:
		w.fleetChange()
	}
}

func (w *world) admit(lease string) {
	tk := balancer.Ticket{
		ID: fmt.Sprintf("t%d", w.count), Key: fmt.Sprintf("k%d", w.draw(2, "key")), Model: w.models()[w.draw(2, "model")],
		Slots: 1 + w.draw(2, "slots"), Arrived: w.now, HardEnd: time.Duration(1+w.draw(100, "life")) * time.Second,
	}
	by := w.owner()
	limits := limit.Limits{RequestsPerMinute: 60, TokensPerMinute: 900, Concurrent: 6}
	d, p, err := w.s.Admit(w.t.Context(), by, tk.Key, limits, limit.Cost{Requests: 1, Tokens: 50}, balancer.Offer{
		Ticket: tk, LeaseID: lease, Candidates: w.candidates(), Hold: w.draw(4, "hold") == 0, Bounds: balancer.Bounds{Pool: 3, Key: 2},
	})
	w.must(err)
	if !d.Allowed || p.Full != balancer.NotFull {
		return
	}
	w.open[tk.ID] = &openTicket{Ticket: tk, owner: by}
	if p.Lease != nil {
		w.open[tk.ID].lease = p.Lease.ID
	}
}

func (w *world) take() {
	by := w.owner()
	offers, err := w.s.Assigned(w.t.Context(), by)
	w.must(err)
	for _, l := range offers {
		ok, err := w.s.Take(w.t.Context(), by, l.Ticket, l.ID)
		w.must(err)
		if ok {
			w.open[l.Ticket].lease = l.ID
		}
	}
}

func (w *world) fleetChange() {
	n := w.draw(5, "phone")
	id := balancer.ReplicaID(fmt.Sprintf("p%d", n))
	switch w.draw(3, "change") {
	case 0:
		w.join(n, 1+w.draw(3, "slots"))
	case 1:
		w.must(w.s.Leave(w.t.Context(), id))
	case 2:
		r, ok, err := w.s.Health(w.t.Context(), id)
		w.must(err)
		if !ok {
			return
		}
		r.State = balancer.States()[w.draw(5, "state")]
		r.LeaveAlone = w.now.Add(time.Duration(w.draw(3000, "ms")-1000) * time.Millisecond)
		_, err = w.s.SetHealth(w.t.Context(), id, r)
		w.must(err)
	}
}

func (w *world) finish(k *openTicket, requeue bool) {
	f := balancer.Finish{
		By: k.owner, Ticket: k.ID, Lease: k.lease, Requeue: requeue && k.lease != "", Tokens: w.draw(80, "tokens"),
		Cooling: time.Duration(w.draw(2, "cooling")*w.draw(5000, "ms")) * time.Millisecond,
	}
	done, err := w.s.Finish(w.t.Context(), f)
	w.must(err)
	exists := w.exists(k.ID)
	switch {
	case f.Requeue && done.Known:
		k.lease = ""
	case done.Known:
		delete(w.open, k.ID)
		if exists {
			w.rt.Fatalf("%s is there after its end", k.ID)
		}
	case exists:
		// Its offer was taken back from under the owner, or its lease replaced: the owner learns of that.
		k.lease = ""
	default:
		delete(w.open, k.ID) // reaped
	}
}

func (w *world) exists(ticket string) bool {
	n, err := w.s.client.Exists(w.t.Context(), w.s.keys.prefix+"t:"+ticket).Result()
	w.must(err)
	return n == 1
}

// end finishes everything; an hour later nothing is left.
func (w *world) end() {
	for range 3 {
		for _, id := range sortedKeys(w.open) {
			w.finish(w.open[id], false)
		}
	}
	for range 2 {
		w.advance(time.Hour)
		_, err := w.s.Tick(w.t.Context(), "gw-1")
		w.must(err)
	}
	w.advance(20 * time.Second)
	for range 20 {
		w.advance(time.Second)
		_, err := w.s.Tick(w.t.Context(), "gw-1")
		w.must(err)
	}
	w.check()
	if left := leftovers(w.t, w.s); len(left) != 0 {
		w.rt.Fatalf("keys left: %v", left)
	}
	if owners := w.zset("owners"); len(owners) != 0 {
		w.rt.Fatalf("owners left: %v", owners)
	}
}

func sortedKeys[V any](m map[string]V) []string {
	var ids []string
	for id := range m {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// check compares every index with the tickets and replicas.
func (w *world) check() {
	want, leases := w.expectIndexes()
	ctx, p := w.t.Context(), w.s.keys.prefix
	for _, kind := range []string{"q:*", "h:*", "kq:*", "kc:*", "o:*", "a:*", "l:*", "pools", "ends", "offers"} {
		found, err := w.s.client.Keys(ctx, p+kind).Result()
		w.must(err)
		for _, key := range found {
			name := key[len(p):]
			if _, ok := want[name]; !ok {
				want[name] = nil
			}
		}
	}
	for name, members := range want {
		got := w.members(name)
		slices.Sort(members)
		if !slices.Equal(got, members) {
			w.rt.Fatalf("%s holds %v, the tickets say %v", name, got, members)
		}
	}
	w.checkReplicas(leases)
}

// expectIndexes derives what the indexes must hold from the tickets; leases maps the live ones to their tickets.
func (w *world) expectIndexes() (want map[string][]string, leases map[string]string) {
	ctx, p := w.t.Context(), w.s.keys.prefix
	want, leases = make(map[string][]string), make(map[string]string)
	add := func(index, member string) {
		if !slices.Contains(want[index], member) {
			want[index] = append(want[index], member)
		}
	}
	found, err := w.s.client.Keys(ctx, p+"t:*").Result()
	w.must(err)
	for _, key := range found {
		id := key[len(p)+2:]
		f, err := w.s.client.HGetAll(ctx, key).Result()
		w.must(err)
		add("kc:"+f["key"], id)
		add("o:"+f["owner"], id)
		add("ends", id)
		switch f["state"] {
		case "queued":
			add("q:"+f["model"], id)
			add("kq:"+f["key"], id)
			add("pools", f["model"])
			if f["held"] != "0" {
				add("h:"+f["model"], id)
			}
			continue
		case "offered":
			add("offers", id)
			add("a:"+f["owner"], id)
		}
		if other, twice := leases[f["lease"]]; twice {
			w.rt.Fatalf("%s and %s have the same lease", other, id)
		}
		leases[f["lease"]] = id
		gen, err := w.s.client.HGet(ctx, p+"r:"+f["replica"], "gen").Result()
		if err == nil && gen == f["gen"] { // else it is void
			add("l:"+f["replica"], f["lease"])
			for n := range int(f["slots"][0]-'0') - 1 {
				add("l:"+f["replica"], fmt.Sprintf("%s#%d", f["lease"], n+2))
			}
		}
	}
	return want, leases
}

// checkReplicas: no more occupied than slots, and the free ones are those with a free slot, but for what the next tick will notice.
func (w *world) checkReplicas(leases map[string]string) {
	snap, err := w.s.Snapshot(w.t.Context())
	w.must(err)
	wake := w.zset("wake")
	for _, v := range snap.Views {
		if v.Depth() > v.Slots {
			w.rt.Fatalf("%s: %d of %d slots occupied, by %v", v.ID, v.Depth(), v.Slots, leases)
		}
		should := v.Usable(w.now) && v.Free() > 0
		is := slices.Contains(w.members("free:"+v.Model), string(v.ID))
		at, wakes := wake[string(v.ID)]
		if should != is && !(should && wakes && int64(at) <= w.now.UnixMilli()) {
			w.rt.Fatalf("%s: in the free set %v, should be %v (%v, %d of %d, until %v)", v.ID, is, should, v.State, v.Depth(), v.Slots, v.LeaveAlone)
		}
	}
}

func (w *world) zset(name string) map[string]float64 {
	list, err := w.s.client.ZRangeWithScores(w.t.Context(), w.s.keys.prefix+name, 0, -1).Result()
	w.must(err)
	m := make(map[string]float64, len(list))
	for _, z := range list {
		m[fmt.Sprint(z.Member)] = z.Score
	}
	return m
}

// members of a set, a sorted set, or the fields of a hash, in order.
func (w *world) members(name string) []string {
	ctx, key := w.t.Context(), w.s.keys.prefix+name
	kind, err := w.s.client.Type(ctx, key).Result()
	w.must(err)
	var list []string
	switch kind {
	case "set":
		list, err = w.s.client.SMembers(ctx, key).Result()
	case "zset":
		list, err = w.s.client.ZRange(ctx, key, 0, -1).Result()
	case "hash":
		list, err = w.s.client.HKeys(ctx, key).Result()
	}
	w.must(err)
	slices.Sort(list)
	return list
}
