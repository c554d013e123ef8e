package relay

import (
	"context"
	"errors"
	"time"
)

// Clocks bound the silence of a phone. They come from the work: a five-minute prefill is normal, fifteen seconds without a promised ping
// are not. All of them scale with the fleet's time factor.
type Clocks struct {
	Headers    time.Duration // the least time for the first byte, whatever was predicted; old builds send none before the first token
	HeadersMax time.Duration // the most
	Patience   float64       // times the prediction that a phone may take to its first token
	Ping       time.Duration // silence once pings have been seen to come
	Gap        time.Duration // silence between tokens when no ping was ever seen
	Write      time.Duration // a caller that does not read for that long is gone
	Drain      time.Duration // for the end of a reusable connection after [DONE]
}

// DefaultClocks are those of a fleet that lives at normal speed. Pings are asked for every 5 s and come at most every 15 s.
func DefaultClocks() Clocks {
	return Clocks{
		Headers:    30 * time.Second,
		HeadersMax: 15 * time.Minute,
		Patience:   3,
		Ping:       16 * time.Second,
		Gap:        45 * time.Second,
		Write:      30 * time.Second,
		Drain:      20 * time.Millisecond,
	}
}

// Faster returns the clocks of a fleet that lives factor times faster; those of the caller's side stay.
func (c Clocks) Faster(factor float64) Clocks {
	if factor <= 0 {
		return c
	}
	// Never below what a loaded machine may pause by itself.
	shrink := func(d time.Duration) time.Duration { return max(time.Duration(float64(d)/factor), 2*time.Second) }
	c.Headers, c.HeadersMax, c.Ping, c.Gap = shrink(c.Headers), shrink(c.HeadersMax), shrink(c.Ping), shrink(c.Gap)
	return c
}

// first is the clock until the first token of an attempt predicted to take that long.
func (c Clocks) first(predicted time.Duration) time.Duration {
	return min(max(time.Duration(c.Patience*float64(predicted)), c.Headers), c.HeadersMax)
}

// errClock is the cause of an attempt's context when the phone was silent too long.
var errClock = errors.New("phone was silent too long")

// watchdog cancels an attempt that stays silent.
type watchdog struct{ timer *time.Timer }

func newWatchdog(d time.Duration, cancel context.CancelCauseFunc) watchdog {
	return watchdog{time.AfterFunc(d, func() { cancel(errClock) })}
}

// allow gives the phone d from now.
func (w watchdog) allow(d time.Duration) { w.timer.Reset(d) }

// stop ends the watch, for instance while the caller is being written to.
func (w watchdog) stop() { w.timer.Stop() }
