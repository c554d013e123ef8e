package balancer

import "time"

// Rules are the constants of the choice. Times scale with a time factor, so that a fleet of fake phones that lives twenty times faster
// is scheduled by the same rules.
type Rules struct {
	Margin        float64       // hold for a busy phone only if it finishes in less than (1-Margin) of the best idle phone's time
	BacklogMargin float64       // the same while more tickets wait than twice the slots of the pool
	HoldCap       float64       // a hold ends after this share of the best idle phone's predicted time
	NearTie       float64       // predictions this close (relative) are equal; the hash of ticket and replica decides
	EndReserve    time.Duration // nothing may be predicted to end later than this before the deployment does
	EndDoubt      float64       // share added to a prediction before it is compared with the deployment's end
	FitDoubt      float64       // share of the estimated prompt that must exceed a context before the phone is passed over: the phone itself counts exactly
	Detect        time.Duration // how long a failed attempt takes to be noticed; the price of a phone that tends to fail
	Overhead      time.Duration // of an attempt beside prefill and decode, until measured
	Evidence      time.Duration // weight of the prior: as if it had been measured for that long
	Fallback      Speeds        // of a phone with neither a prior nor a measured neighbour
	MinWait       time.Duration // the least a busy slot is assumed to need still
}

// DefaultRules are the values of a fleet that lives at normal speed. Margins and caps come from simulation of mixed fleets: with 0.6 the
// 95th percentile of review jobs is best while its mean stays equal to "fastest idle phone"; under backlog holding costs more than it saves.
func DefaultRules() Rules {
	return Rules{
		Margin:        0.6,
		BacklogMargin: 0.8,
		HoldCap:       0.5,
		NearTie:       0.10,
		EndReserve:    30 * time.Second,
		EndDoubt:      0.15,
		FitDoubt:      0.7,
		Detect:        15 * time.Second,
		Overhead:      400 * time.Millisecond,
		Evidence:      5 * time.Second,
		Fallback:      Speeds{Prefill: 20, Decode: 4},
		MinWait:       time.Second,
	}
}

// Faster returns the rules for a fleet that lives factor times faster than life. A factor of 0 or less is 1.
func (r Rules) Faster(factor float64) Rules {
	if factor <= 0 {
		return r
	}
	shrink := func(d time.Duration) time.Duration { return time.Duration(float64(d) / factor) }
	r.EndReserve = shrink(r.EndReserve)
	r.Detect = shrink(r.Detect)
	r.Overhead = shrink(r.Overhead)
	r.Evidence = shrink(r.Evidence)
	r.MinWait = shrink(r.MinWait)
	r.Fallback = Speeds{Prefill: r.Fallback.Prefill * factor, Decode: r.Fallback.Decode * factor}
	return r
}
