package balancer

import (
	"sort"
	"time"
)

// MaxCandidates bounds the candidates handed to a script, which tries them in order.
const MaxCandidates = 8

// Verdict says what a choice means for its ticket.
type Verdict uint8

// The verdicts.
const (
	Grant Verdict = iota // Candidates may be granted now
	Hold                 // wait for a busy phone; others may pass
	Never                // no replica of the pool can serve this ticket as things are: too small, or its deployment ends too early
	Empty                // the pool has no usable replica at all
)

// Choice is the decision for one ticket.
type Choice struct {
	Verdict    Verdict
	Candidates []Candidate   // best first, all free; only with Grant
	Best       time.Duration // predicted completion on the best replica, busy ones included; for the caller's patience
}

// Choose decides where t should run at now. It is deterministic: every gateway and the simulator choose alike on the same fleet.
//
// First the deadline rule: if only a busy phone meets the ticket's deadline, hold for it. Then the margin rule: take the fastest idle
// phone unless a busy one is predicted to finish in less than (1-m) of its time. Holding is capped: late binding wins because the queue
// is trusted more than the estimate. Replicas under suspicion count only when no other is feasible, and so do those that failed t before.
func (r Rules) Choose(f *Fleet, t *Ticket, now time.Time) Choice {
	var c contest
	for pass := range 3 {
		c = contest{}
		f.enter(&c, r, t, now, pass)
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
		return Choice{Verdict: Hold, Best: c.best.p.Completion()}
	}
	sort.Slice(c.idle, func(i, j int) bool { return c.idle[i].p.Price < c.idle[j].p.Price })
	first := c.idle[0]
	if r.worthHolding(f, t, first, c.best, now) {
		return Choice{Verdict: Hold, Best: c.best.p.Completion()}
	}
	r.breakTies(c.idle, t)
	out := Choice{Verdict: Grant, Best: c.best.p.Completion()}
	for _, e := range c.idle[:min(len(c.idle), MaxCandidates)] {
		out.Candidates = append(out.Candidates, Candidate{Replica: e.v.ID, Generation: e.v.Generation, Predicted: e.p.Service})
	}
	return out
}

// worthHolding is the deadline rule and the margin rule.
func (r Rules) worthHolding(f *Fleet, t *Ticket, idle, best entrant, now time.Time) bool {
	if best.p.Wait == 0 {
		return false
	}
	if !t.Deadline.IsZero() {
		left := t.Deadline.Sub(now)
		if idle.p.Completion() > left && best.p.Completion() <= left {
			return true
		}
	}
	m := r.Margin
	if f.Queued(t.Model) > 2*f.Slots(t.Model) {
		m = r.BacklogMargin
	}
	if float64(best.p.Price) >= (1-m)*float64(idle.p.Price) {
		return false
	}
	held := time.Duration(0)
	if !t.HeldSince.IsZero() {
		held = now.Sub(t.HeldSince)
	}
	return float64(held) < r.HoldCap*float64(idle.p.Service)
}

// breakTies reorders the leading near ties by the hash of ticket and replica, which spreads equal phones and breaks lock-step.
func (r Rules) breakTies(idle []entrant, t *Ticket) {
	limit := time.Duration(float64(idle[0].p.Price) * (1 + r.NearTie))
	n := 1
	for n < len(idle) && idle[n].p.Price <= limit {
		n++
	}
	ties := idle[:n]
	for i := range ties {
		ties[i].tie = tieHash(t.ID, ties[i].v.ID)
	}
	sort.Slice(ties, func(i, j int) bool { return ties[i].tie < ties[j].tie })
}

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
	return h
}
