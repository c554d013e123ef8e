package balancer

import "time"

// Rates are a replica's speeds as the cost model uses them: measured, shrunk towards a prior while the evidence is thin.
// They are computed once a snapshot, so that predicting costs a few divisions.
type Rates struct {
	Prefill  [PrefillBuckets]float64 // tokens a second by PrefillBucket
	Decode   [DecodeBuckets]float64  // tokens a second by DecodeBucket
	Overhead float64                 // seconds an attempt takes beside prefill and decode
	Failing  float64                 // share of attempts that fail, 0 to 0.9
}

// Rates computes a view's rates at now.
//
// Each bucket is (amount + e·fallback) / (seconds + e): the prior counts as if it had been measured for e seconds. The fallback of a
// bucket is what the other buckets measured together, else the configured prior, else the pool's (base).
func (r *Rules) Rates(v *View, base Speeds, now time.Time) Rates {
	e := r.Evidence.Seconds()
	prior := v.Prior
	if prior.Prefill <= 0 {
		prior.Prefill = base.Prefill
	}
	if prior.Decode <= 0 {
		prior.Decode = base.Decode
	}
	out := Rates{Overhead: r.Overhead.Seconds()}
	shrink(out.Prefill[:], v.Learned.Prefill[:], prior.Prefill, e, now)
	shrink(out.Decode[:], v.Learned.Decode[:], prior.Decode, e, now)

	// Two attempts' worth of the assumed overhead, so that one odd measurement does not rule.
	o := v.Learned.Overhead.Decayed(now)
	out.Overhead = (o.Seconds + 2*out.Overhead) / (o.Amount + 2)

	// Five good attempts are assumed beforehand: a single failure of a new phone is no verdict.
	f := v.Learned.Failure.Decayed(now)
	out.Failing = min(f.Amount/(f.Seconds+5), 0.9)
	return out
}

// shrink fills out with the speed of each bucket.
func shrink(out []float64, sums []Sum, prior, evidence float64, now time.Time) {
	var all Sum
	for _, s := range sums {
		d := s.Decayed(now)
		all.Amount += d.Amount
		all.Seconds += d.Seconds
	}
	fallback := (all.Amount + evidence*prior) / (all.Seconds + evidence)
	for i, s := range sums {
		d := s.Decayed(now)
		out[i] = (d.Amount + evidence*fallback) / (d.Seconds + evidence)
	}
}

// Prediction is the time a ticket would take on a replica.
type Prediction struct {
	Wait    time.Duration // until enough slots are free
	Service time.Duration // overhead, prefill and decode
	Price   time.Duration // Wait and Service and what a likely failure would cost; what choices are compared by
}

// Completion is when the answer would be whole, from now.
func (p Prediction) Completion() time.Duration { return p.Wait + p.Service }

// Predict estimates t on v at now; ends are the predicted ends of its occupied slots.
func (r *Rules) Predict(v *View, rates *Rates, ends []time.Time, t *Ticket, now time.Time) Prediction {
	busy := len(ends)
	if free := v.Slots - t.Slots; busy > free {
		busy = max(free, 0)
	}
	service := rates.Overhead +
		float64(t.PromptTokens)/rates.Prefill[PrefillBucket(t.PromptTokens)] +
		float64(t.OutputTokens)/rates.Decode[DecodeBucket(busy+t.Slots)]
	p := Prediction{Service: seconds(service), Wait: r.wait(v, ends, t.Slots, now)}
	retry := rates.Failing / (1 - rates.Failing) * (r.Detect.Seconds() + service)
	p.Price = p.Wait + p.Service + seconds(retry)
	return p
}

// Service is what a ticket would take on an idle v.
func (r *Rules) Service(v *View, rates *Rates, t *Ticket) time.Duration {
	return r.Predict(v, rates, nil, t, time.Time{}).Service
}

// reference is the job by which replicas are ranked when no ticket is at hand.
func reference() *Ticket { return &Ticket{PromptTokens: 1000, OutputTokens: 50, Slots: 1} }

// Fits reports whether v has the slots and the context for t at all.
func (r *Rules) Fits(v *View, t *Ticket) bool {
	return v.Slots >= t.Slots && (v.Context == 0 || float64(t.PromptTokens)*r.FitDoubt < float64(v.Context))
}

// wait is the time until need slots of v are free. A slot past its predicted end is assumed to need as long again as it is late: the
// longer a job overruns, the less its prediction is worth.
func (r *Rules) wait(v *View, ends []time.Time, need int, now time.Time) time.Duration {
	missing := len(ends) + need - v.Slots
	if missing <= 0 {
		return 0
	}
	// The missing-th earliest end, by selection: slots are few.
	var picked [64]bool
	var wait time.Duration
	for range min(missing, len(ends)) {
		best := -1
		for i := range ends {
			if i < len(picked) && !picked[i] && (best < 0 || ends[i].Before(ends[best])) {
				best = i
			}
		}
		if best < 0 {
			break
		}
		picked[best] = true
		left := ends[best].Sub(now)
		if left < 0 {
			left = -left
		}
		wait = max(wait, left, r.MinWait)
	}
	return wait
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
