package balancer

import "time"

// MaxCandidates bounds the candidates handed to a script, which tries them in order.
const MaxCandidates = 8

// Verdict says what a choice means for its ticket.
type Verdict uint8

// The verdicts.
const (
	Grant Verdict = iota // Candidates may be granted now
	Wait                 // every phone that could serve it is busy
	Hold                 // wait for a busy phone though a free one could serve it; others may pass
	Never                // no replica of the pool can serve this ticket as things are: too small, or its deployment ends too early
	Empty                // the pool has no usable replica at all
)

// Choice is the decision for one ticket.
type Choice struct {
	Verdict    Verdict
	Candidates []Candidate // best first, all free; only with Grant
}

// Choose decides where t should run at now. It is deterministic: every gateway and the simulator choose alike on the same fleet.
//
// First the deadline rule: if only a busy phone meets the ticket's deadline, hold for it. Then the margin rule: take the fastest idle
// phone unless a busy one is predicted to finish in less than (1-m) of its time. Holding is capped: late binding wins because the queue
// is trusted more than the estimate. Replicas under suspicion count only when no other is feasible, and so do those that failed t before.
func (r *Rules) Choose(f *Fleet, t *Ticket, now time.Time) Choice {
	var c contest
	for pass := range 3 {
		c = f.enter(r, t, now, pass)
		if c.feasible > 0 {
			break
		}
	}
	switch {
	case c.usable == 0:
		return Choice{Verdict: Empty}
	case c.feasible == 0:
		return Choice{Verdict: Never}
	case len(c.idle) == 0:
		return Choice{Verdict: Wait}
	case r.worthHolding(f, t, &c, now):
		return Choice{Verdict: Hold}
	}
	return Choice{Verdict: Grant, Candidates: r.rank(f, t, &c)}
}

// contest collects what Choose compares.
type contest struct {
	usable   int // replicas that are up at all
	feasible int
	idle     []entrant // the fleet's scratch
	best     entrant   // lowest price, busy ones included
	bestIdle entrant
}

// entrant is a feasible replica, by its index in the snapshot.
type entrant struct {
	at int
	p  Prediction
}

// enter evaluates the pool. Pass 0 admits ready replicas that have not failed the ticket, pass 1 suspect ones too, pass 2 also ready ones
// that have failed it.
func (f *Fleet) enter(r *Rules, t *Ticket, now time.Time, pass int) contest {
	c := contest{idle: f.idle[:0]}
	for _, i := range f.snap.byModel[t.Model] {
		v := &f.snap.Views[i]
		if !v.Usable(now) {
			continue
		}
		c.usable++
		if pass < 1 && (v.State == Suspect || f.Avoid != nil && f.Avoid(v.ID)) {
			continue
		}
		if t.HasTried(v.ID) && (pass < 2 || v.State != Ready) {
			continue
		}
		if !r.Fits(v, t) {
			continue
		}
		e := entrant{at: i, p: r.Predict(v, &f.rates[i], f.ends[i], t, now)}
		if !r.endsInTime(v, e.p, now) {
			continue
		}
		c.feasible++
		if c.feasible == 1 || e.p.Price < c.best.p.Price {
			c.best = e
		}
		if e.p.Wait == 0 {
			if len(c.idle) == 0 || e.p.Price < c.bestIdle.p.Price {
				c.bestIdle = e
			}
			c.idle = append(c.idle, e)
		}
	}
	f.idle = c.idle
	return c
}

// endsInTime reports whether the work would surely be done before v's deployment ends.
func (r *Rules) endsInTime(v *View, p Prediction, now time.Time) bool {
	if v.EndsAt.IsZero() {
		return true
	}
	cautious := time.Duration(float64(p.Completion()) * (1 + r.EndDoubt))
	return !now.Add(cautious + r.EndReserve).After(v.EndsAt)
}

// worthHolding is the deadline rule and the margin rule.
func (r *Rules) worthHolding(f *Fleet, t *Ticket, c *contest, now time.Time) bool {
	best, idle := c.best.p, c.bestIdle.p
	if best.Wait == 0 {
		return false
	}
	if !t.Deadline.IsZero() {
		left := t.Deadline.Sub(now)
		if idle.Completion() > left && best.Completion() <= left {
			return true
		}
	}
	m := r.Margin
	if f.Queued(t.Model) > 2*f.Slots(t.Model) {
		m = r.BacklogMargin
	}
	if float64(best.Price) >= (1-m)*float64(idle.Price) {
		return false
	}
	held := time.Duration(0)
	if !t.HeldSince.IsZero() {
		held = now.Sub(t.HeldSince)
	}
	return float64(held) < r.HoldCap*float64(idle.Service)
}

// rank returns the best idle replicas: near ties of the best first, by the hash of ticket and replica, which spreads equal phones and
// breaks lock-step; then the others by price. It keeps a short sorted list instead of sorting thousands.
func (r *Rules) rank(f *Fleet, t *Ticket, c *contest) []Candidate {
	type ranked struct {
		entrant
		far  bool // no near tie
		hash uint64
	}
	limit := time.Duration(float64(c.bestIdle.p.Price) * (1 + r.NearTie))
	var top [MaxCandidates]ranked
	n := 0
	before := func(a, b *ranked) bool {
		switch {
		case a.far != b.far:
			return b.far
		case a.far:
			return a.p.Price < b.p.Price
		default:
			return a.hash < b.hash
		}
	}
	for _, e := range c.idle {
		x := ranked{entrant: e, far: e.p.Price > limit}
		if !x.far {
			x.hash = tieHash(t.ID, f.snap.Views[e.at].ID)
		}
		if n == MaxCandidates && !before(&x, &top[n-1]) {
			continue
		}
		n = min(n+1, MaxCandidates)
		k := n - 1
		for ; k > 0 && before(&x, &top[k-1]); k-- {
			top[k] = top[k-1]
		}
		top[k] = x
	}
	out := make([]Candidate, n)
	for i := range out {
		v := &f.snap.Views[top[i].at]
		out[i] = Candidate{Replica: v.ID, Generation: v.Generation, Predicted: top[i].p.Service}
	}
	return out
}

// tieHash is FNV-1a over both names with a final mix, written out because it must not allocate and must be the same on every gateway.
func tieHash(ticket string, id ReplicaID) uint64 {
	const offset, prime = 14695981039346656037, 1099511628211
	h := uint64(offset)
	for i := range len(ticket) {
		h = (h ^ uint64(ticket[i])) * prime
	}
	h = (h ^ 0xff) * prime
	for i := range len(id) {
		h = (h ^ uint64(id[i])) * prime
	}
	// FNV's last bytes hardly reach the high bits, by which the order is decided.
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	return h ^ h>>33
}
