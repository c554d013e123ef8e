package fakephone

import (
	"math"
	"time"
)

// heat is how much a phone has slowed down. The zero value is a cold phone.
type heat struct {
	x    float64 // 0 cold, 1 as hot as it gets
	busy bool
	at   time.Time // when x was valid
}

// set moves the state to now, where the phone begins or stops to work; life is how many seconds of life a second is.
func (h *heat) set(now time.Time, busy bool, p Profile, life float64) {
	h.x = h.level(now, p, life)
	h.busy, h.at = busy, now
}

func (h *heat) level(now time.Time, p Profile, life float64) float64 {
	if h.at.IsZero() || p.ThrottleTauS <= 0 {
		return 0
	}
	t := now.Sub(h.at).Seconds() * life
	if h.busy {
		return 1 - (1-h.x)*math.Exp(-t/p.ThrottleTauS)
	}
	return h.x * math.Exp(-t/(4*p.ThrottleTauS))
}

// speed is the share of the cold phone's speed that is left at now.
func (h *heat) speed(now time.Time, p Profile, life float64) float64 {
	if p.ThrottleF <= 0 {
		return 1
	}
	return 1 - (1-p.ThrottleF)*h.level(now, p, life)
}
