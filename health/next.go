package health

import (
	"strings"
	"time"

	"phonebank/balancer"
)

// Next is the record after one more piece of evidence. It is pure and total: every state and kind has an answer, and every state but
// draining a way back to ready. Generation and Version are left as they are.
//
// Failures grow with each attempt that counted against the phone and fall only with one that was served: a phone whose engine is stuck
// goes on answering probes. They decide how long answered probes are not enough (Config.Pause). Evidence against a phone that is down
// already is not counted, so four requests lost in one outage weigh as one.
func Next(r Record, e Evidence, c Config) Record {
	c = c.withDefaults()
	if e.good() && (e.At.After(r.LastGood) || !near(e.At, r.LastGood, c.Proof)) {
		r.LastGood = e.At // also when it lies far ahead: the shared clock was set back
	}
	if e.Kind == Busy || e.Kind == ProbeBusy {
		r = leftAlone(r, e, c)
	}
	if r.State == balancer.Draining {
		return r
	}
	switch e.Kind {
	case Alive:
		return alive(r, e, c)
	case Served:
		return served(r, e)
	case ProbeBusy:
		r.Misses = 0 // somebody answered
	case Unreachable:
		if !near(e.At, r.LastGood, c.Proof) {
			return missed(r, e, c)
		}
	case Silent:
		return missed(failed(r, e, c), e, c)
	case Broken:
		return failed(r, e, c)
	case Unclear:
		return doubted(r, e, c)
	case Offline:
		return offline(r, e)
	case Refused, Misconfigured:
		return turnedAway(r, e, c)
	case Tripped:
		return suspected(r, e)
	case None, Busy:
	}
	return r
}

// leftAlone: no work for a while. A phone that does not say for how long is left alone longer each time, until it has served again: one
// that turns everything away at once would else look like the idlest of all. Several requests turned away together count as one.
func leftAlone(r Record, e Evidence, c Config) Record {
	wait := e.LeaveAlone
	if wait <= 0 {
		if !e.At.Before(r.LeaveAlone) {
			r.Busy++
		}
		wait = doubled(c.LeaveAlone, r.Busy-1, c.MaxLeaveAlone)
	}
	if until := e.At.Add(c.bound(wait)); until.After(r.LeaveAlone) {
		r.LeaveAlone = until
	}
	return r
}

// alive: a step towards ready, unless the phone's failures ask for a pause first.
func alive(r Record, e Evidence, c Config) Record {
	r.Misses = 0
	if r.State == balancer.Ready {
		return r
	}
	if age := e.At.Sub(r.Since); age < c.pause(r.Failures) && age > -c.MaxPause {
		return r // also when the probe was sent before the phone went down
	}
	if r.State == balancer.Down {
		return enter(r, balancer.Suspect, e.At, "back, to be proved")
	}
	return enter(r, balancer.Ready, e.At, "")
}

// served: proof of work. A phone that is down becomes suspect only: the answer may have begun before it went down.
func served(r Record, e Evidence) Record {
	r.Misses, r.Failures, r.Busy = 0, 0, 0
	if r.State == balancer.Down {
		return enter(r, balancer.Suspect, e.At, "back, to be proved")
	}
	return enter(r, balancer.Ready, e.At, "")
}

// missed: no answer. A joining phone has no work to lose, so it is never suspect: suspect phones may get work.
func missed(r Record, e Evidence, c Config) Record {
	r.Misses = min(r.Misses+1, c.MissesDown)
	if r.Misses >= c.MissesDown {
		return enter(r, balancer.Down, e.At, reason(e))
	}
	return suspected(r, e)
}

// failed: the answer was no good.
func failed(r Record, e Evidence, c Config) Record {
	if r.State == balancer.Down {
		return r
	}
	r.Failures++
	switch {
	case r.Failures >= c.FailuresDown:
		return enter(r, balancer.Down, e.At, reason(e))
	case r.Failures >= c.FailuresSuspect:
		return relapsed(r, e)
	}
	return r
}

// doubted: maybe the phone's fault, maybe the request's. It makes a phone suspect, never down: a caller who repeats a bad request must not
// empty the fleet.
func doubted(r Record, e Evidence, c Config) Record {
	if r.State == balancer.Down || r.Failures+1 >= c.FailuresDown {
		return r
	}
	r.Failures++
	if r.Failures >= c.FailuresSuspect {
		return relapsed(r, e)
	}
	return r
}

// offline: nobody is there.
func offline(r Record, e Evidence) Record {
	if r.State == balancer.Down {
		return r
	}
	r.Failures++
	return enter(r, balancer.Down, e.At, reason(e))
}

// turnedAway: the phone works, but not for us. Only somebody's change can help, so it gets a pause at once.
func turnedAway(r Record, e Evidence, c Config) Record {
	if r.State == balancer.Down {
		r.Reason = reason(e) // the more useful of the two
		return r
	}
	r.Failures = max(r.Failures+1, c.FailuresSuspect)
	return enter(r, balancer.Down, e.At, reason(e))
}

// suspected: doubt about a phone that was ready; other states are no better than suspect.
func suspected(r Record, e Evidence) Record {
	if r.State != balancer.Ready {
		return r
	}
	return enter(r, balancer.Suspect, e.At, reason(e))
}

// relapsed is suspected, and starts the pause of a phone that was suspect already again.
func relapsed(r Record, e Evidence) Record {
	if r.State == balancer.Suspect {
		r.Since = e.At
		r.Reason = reason(e)
		return r
	}
	return suspected(r, e)
}

// enter changes the state, and when it began if it is another one.
func enter(r Record, s balancer.State, at time.Time, why string) Record {
	if r.State != s {
		r.State, r.Since = s, at
	}
	r.Reason = why
	return r
}

// near reports whether two times are less than d apart.
func near(a, b time.Time, d time.Duration) bool { return a.Sub(b).Abs() < d }

// reason is what an operator reads: the kind, and what was seen.
func reason(e Evidence) string {
	const most = 200
	text := e.Kind.String()
	if e.Reason != "" {
		text += ": " + e.Reason
	}
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "")
	}
	return text
}
