package balancer

import (
	"maps"
	"slices"
	"time"
)

// Fleet is the fleet as one gateway believes it to be: a snapshot, its rates, and what the gateway itself has granted, seen freed or been
// told since. It is advice for the chooser; the scripts verify. Not safe for concurrent use.
type Fleet struct {
	// Avoid names replicas this gateway itself has trouble with: they count as suspect. Nil avoids none.
	Avoid func(ReplicaID) bool

	rules  Rules
	snap   *Snapshot
	rates  []Rates       // parallel to snap.Views
	ends   [][]time.Time // parallel to snap.Views: predicted ends of occupied slots
	slots  map[string]int
	queued map[string]int
	idle   []entrant // scratch of Choose
}

// NewFleet starts from a snapshot.
func NewFleet(r Rules, s *Snapshot) *Fleet {
	f := &Fleet{
		rules:  r,
		snap:   s,
		rates:  make([]Rates, len(s.Views)),
		ends:   make([][]time.Time, len(s.Views)),
		slots:  make(map[string]int),
		queued: make(map[string]int, len(s.Queued)),
	}
	maps.Copy(f.queued, s.Queued)
	for model, pool := range s.byModel {
		base := r.poolPrior(s, pool)
		for _, i := range pool {
			v := &s.Views[i]
			f.rates[i] = r.Rates(v, base, s.At)
			f.ends[i] = v.Ends
			if v.State == Ready || v.State == Suspect {
				f.slots[model] += v.Slots
			}
		}
	}
	return f
}

// poolPrior is what an unknown phone of the pool is assumed to do: the lower quartile of the configured priors, else the fallback.
func (r *Rules) poolPrior(s *Snapshot, pool []int) Speeds {
	var prefill, decode []float64
	for _, i := range pool {
		if p := s.Views[i].Prior.Prefill; p > 0 {
			prefill = append(prefill, p)
		}
		if d := s.Views[i].Prior.Decode; d > 0 {
			decode = append(decode, d)
		}
	}
	return Speeds{Prefill: lowerQuartile(prefill, r.Fallback.Prefill), Decode: lowerQuartile(decode, r.Fallback.Decode)}
}

func lowerQuartile(values []float64, fallback float64) float64 {
	if len(values) == 0 {
		return fallback
	}
	slices.Sort(values)
	return values[len(values)/4]
}

// Snapshot is what the fleet started from.
func (f *Fleet) Snapshot() *Snapshot { return f.snap }

// Slots is the number of slots of the pool's ready and suspect replicas.
func (f *Fleet) Slots(model string) int { return f.slots[model] }

// Queued is the number of waiting tickets of the pool, as last heard.
func (f *Fleet) Queued(model string) int { return f.queued[model] }

// SetQueued records what was heard of the pool's queue.
func (f *Fleet) SetQueued(model string, n int) { f.queued[model] = n }

// HasFree reports whether any usable replica of the pool has a free slot.
func (f *Fleet) HasFree(model string, now time.Time) bool {
	for _, i := range f.snap.byModel[model] {
		if v := &f.snap.Views[i]; v.Usable(now) && len(f.ends[i]) < v.Slots {
			return true
		}
	}
	return false
}

// Occupy records a grant of n slots and returns how many of the replica are then busy, as far as is known; 0 for an unknown replica.
func (f *Fleet) Occupy(id ReplicaID, n int, until time.Time) (busy int) {
	i, ok := f.snap.byID[id]
	if !ok {
		return 0
	}
	f.ends[i] = slices.Clip(f.ends[i]) // it may be the snapshot's
	for range n {
		f.ends[i] = append(f.ends[i], until)
	}
	return min(len(f.ends[i]), max(f.snap.Views[i].Slots, n))
}

// Release records that n slots became free: those predicted to end first.
func (f *Fleet) Release(id ReplicaID, n int) {
	i, ok := f.snap.byID[id]
	if !ok {
		return
	}
	ends := slices.Clone(f.ends[i])
	slices.SortFunc(ends, time.Time.Compare)
	f.ends[i] = ends[min(max(n, 0), len(ends)):]
}

// Correct applies the state's own list of free replicas of a pool: a listed one has a slot, and when the list is complete (shorter than
// its bound) every other has none. A slot found occupied is given the time of an average job to end.
func (f *Fleet) Correct(model string, free []ReplicaID, bound int, now time.Time) {
	listed := make(map[int]bool, len(free))
	for _, id := range free {
		i, ok := f.snap.byID[id]
		if !ok {
			continue
		}
		listed[i] = true
		f.Release(id, len(f.ends[i])-f.snap.Views[i].Slots+1)
	}
	if len(free) >= bound {
		return
	}
	for _, i := range f.snap.byModel[model] {
		v := &f.snap.Views[i]
		if missing := v.Slots - len(f.ends[i]); !listed[i] && missing > 0 {
			f.Occupy(v.ID, missing, now.Add(f.rules.Service(v, &f.rates[i], reference())))
		}
	}
}

// ComesFree estimates when a ticket like t would find a phone if it came now: behind all that wait, or, when every phone asked to be left
// alone, when the first may be asked again. Zero when nobody knows.
func (f *Fleet) ComesFree(t *Ticket, now time.Time) time.Duration {
	if wait := f.PredictWait(t, f.Queued(t.Model), now); wait > 0 {
		return wait
	}
	var soonest time.Duration
	for _, i := range f.snap.byModel[t.Model] {
		v := &f.snap.Views[i]
		alone := v.LeaveAlone.Sub(now)
		if (v.State == Ready || v.State == Suspect) && alone > 0 && (soonest == 0 || alone < soonest) {
			soonest = alone
		}
	}
	return soonest
}

// Rank is the predicted time of a reference job on an idle id, by which the state orders free replicas. Zero for an unknown replica.
func (f *Fleet) Rank(id ReplicaID) time.Duration {
	i, ok := f.snap.byID[id]
	if !ok {
		return 0
	}
	return f.rules.Service(&f.snap.Views[i], &f.rates[i], reference())
}

// Rates returns the rates of id, for dashboards, metrics and clocks.
func (f *Fleet) Rates(id ReplicaID) (Rates, bool) {
	i, ok := f.snap.byID[id]
	if !ok {
		return Rates{}, false
	}
	return f.rates[i], true
}

// PredictWait estimates how long a ticket at that place of its pool's queue waits: the work of those ahead and its own start, over the
// slots that serve the pool. Zero when nobody serves it.
func (f *Fleet) PredictWait(t *Ticket, position int, now time.Time) time.Duration {
	var perSecond float64 // tickets like t that the pool finishes in a second
	first := time.Duration(-1)
	for _, i := range f.snap.byModel[t.Model] {
		v := &f.snap.Views[i]
		if !v.Usable(now) {
			continue
		}
		p := f.rules.Predict(v, &f.rates[i], f.ends[i], t, now)
		perSecond += float64(v.Slots) / max(p.Service.Seconds(), 1e-3)
		if first < 0 || p.Wait < first {
			first = p.Wait
		}
	}
	if perSecond == 0 {
		return 0
	}
	return first + seconds(float64(position)/perSecond)
}
