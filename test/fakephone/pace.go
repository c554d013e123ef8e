package fakephone

import (
	"context"
	"time"
)

// step is a piece of work that is done as a whole.
type step struct {
	seconds       float64 // on a cold phone with nothing else to do
	own           int     // see engine.rate
	interruptible bool    // ends early when the client leaves
}

// do lets a step pass, with pings. It starts when the last one was done, so that late timers do not add up. When a client leaves,
// the work ends with the step, or earlier if the step can be interrupted, unless the phone is a zombie.
func (s *session) do(ctx context.Context, step step) error {
	work, from := step.seconds*s.p.faults.slow(), s.due
	rate, changed := s.g.engine.rate(step.own)
	s.due = from.Add(seconds(work / rate))
	for {
		woken, err := s.sleep(ctx, changed)
		switch {
		case err != nil:
			return err
		case woken == byClock:
			return s.thaw()
		case woken == byClient:
			s.leave()
			if step.interruptible && !s.zombie {
				if soon := time.Now().Add(s.p.cfg.scaled(cancelTime(s.req.stream))); soon.Before(s.due) {
					s.due, changed = soon, nil
				}
			}
		case woken == byEngine: // others came or went: the rest of the work takes another time
			now := time.Now()
			work -= max(0, now.Sub(from).Seconds()) * rate
			from = now
			rate, changed = s.g.engine.rate(step.own)
			s.due = from.Add(seconds(max(0, work) / rate))
		}
	}
}

type wakeUp int

const (
	byClock wakeUp = iota
	byClient
	byEngine
)

// sleep waits until the step is due, sending pings, or something else happens.
func (s *session) sleep(ctx context.Context, changed <-chan struct{}) (wakeUp, error) {
	for {
		left := ctx.Done()
		if s.gone {
			left = nil
		}
		next, ping := s.due, false
		if !s.pingAt.IsZero() && s.pingAt.Before(next) && !s.gone {
			next, ping = s.pingAt, true
		}
		s.timer.Reset(max(0, time.Until(next)))
		select {
		case <-left:
			return byClient, nil
		case <-changed:
			return byEngine, nil
		case <-s.g.dead:
			return 0, errKilled
		case <-s.timer.C:
		}
		if !ping {
			return byClock, nil
		}
		if err := s.thaw(); err != nil {
			return 0, err
		}
		s.out.ping()
		s.wrote()
	}
}

// thaw stands still while the phone is frozen, and ends the work of a client that has left.
func (s *session) thaw() error {
	frozen, err := s.p.faults.waitThaw(s.g.dead)
	if err != nil {
		return err
	}
	if now := time.Now(); frozen && s.due.Before(now) {
		s.due = now // the lost time is not caught up
	}
	if s.gone && !s.zombie {
		return errGone
	}
	return nil
}

// leave notes that the client has gone.
func (s *session) leave() {
	s.gone = true
	s.lease.abandon()
	s.p.stats.cancelled()
	_, s.zombie = s.p.faults.strike(func(f Fault) bool { return f.Kind == Zombie })
}

func seconds(f float64) time.Duration { return time.Duration(f * float64(time.Second)) }

// wrote puts the next ping off.
func (s *session) wrote() {
	if s.req.ping > 0 {
		s.pingAt = time.Now().Add(s.p.cfg.scaled(s.req.ping))
	}
}

// cancelTime is how long llama-server needs to notice a disconnect while it decodes.
func cancelTime(stream bool) time.Duration {
	if stream {
		return 15 * time.Millisecond
	}
	return 500 * time.Millisecond
}
