package health

import "time"

// Config holds the constants of the state machine. The zero value of a field means its default; the defaults suit a fleet that lives at
// normal speed.
type Config struct {
	MissesDown      int // probes (or handshakes) in a row without an answer until down [2]; the first makes suspect
	FailuresSuspect int // failures in a row until suspect [3]
	FailuresDown    int // failures in a row until down [5]

	// Pause is how long a phone that reached FailuresSuspect, or was misconfigured, is kept out although its probes are answered [10s]. It
	// doubles with each further failure, up to MaxPause [5m]: answering probes is easy, so only a served request makes it short again.
	Pause    time.Duration
	MaxPause time.Duration

	LeaveAlone    time.Duration // for a busy phone that did not say for how long [5s]; doubles each time until it has served
	MinLeaveAlone time.Duration // the least a busy phone is left alone [1s]
	MaxLeaveAlone time.Duration // the most, whatever it said [2m]

	// Proof is how long a sign of life outweighs a probe without an answer [2.5s]. It must be below 0.8 of the probe interval, else one
	// answered probe would excuse the next.
	Proof time.Duration
	// Fresh is how old the shared LastGood of a phone at work may get before it is written again [2s]. Below Proof, so that other gateways
	// can tell a phone that streams from one that is dead.
	Fresh time.Duration
}

func (c Config) withDefaults() Config {
	count := func(n *int, v int) {
		if *n <= 0 {
			*n = v
		}
	}
	count(&c.MissesDown, 2)
	count(&c.FailuresSuspect, 3)
	count(&c.FailuresDown, 5)
	def := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	def(&c.Pause, 10*time.Second)
	def(&c.MaxPause, 5*time.Minute)
	def(&c.LeaveAlone, 5*time.Second)
	def(&c.MinLeaveAlone, time.Second)
	def(&c.MaxLeaveAlone, 2*time.Minute)
	def(&c.Proof, 2500*time.Millisecond)
	def(&c.Fresh, 2*time.Second)
	return c
}

// Faster returns the config, with its defaults filled in, for a fleet that lives factor times faster than life. A factor of 0 or less is 1.
func (c Config) Faster(factor float64) Config {
	c = c.withDefaults()
	if factor <= 0 {
		return c
	}
	for _, d := range []*time.Duration{&c.Pause, &c.MaxPause, &c.LeaveAlone, &c.MinLeaveAlone, &c.MaxLeaveAlone, &c.Proof, &c.Fresh} {
		*d = time.Duration(float64(*d) / factor)
	}
	return c
}

// pause is how long a phone with that many failures in a row is kept out.
func (c Config) pause(failures int) time.Duration {
	over := failures - c.FailuresSuspect
	if over < 0 {
		return 0
	}
	return doubled(c.Pause, over, c.MaxPause)
}

// doubled is d doubled n times, at most most.
func doubled(d time.Duration, n int, most time.Duration) time.Duration {
	for ; n > 0 && d < most; n-- {
		d *= 2
	}
	return min(d, most)
}

// bound keeps what a busy phone asked for within reason.
func (c Config) bound(asked time.Duration) time.Duration {
	return min(max(asked, c.MinLeaveAlone), c.MaxLeaveAlone)
}
