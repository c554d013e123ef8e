package relay

import (
	"context"
	"time"
)

// KeepAlive sends a comment to a streaming caller who has heard nothing for after, then whenever every has passed in silence, until ctx
// ends or writing fails. status is asked each time. It returns at once for a caller who does not stream.
//
// The first comment commits the status: from then on errors are events. That is the price for connections that intermediaries and
// impatient clients would cut.
func (d *Delivery) KeepAlive(ctx context.Context, after, every time.Duration, status func() string) {
	if !d.head.Stream {
		return
	}
	timer := time.NewTimer(after)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		next, err := d.commentIfSilent(after, every, status)
		if err != nil {
			return
		}
		timer.Reset(next)
	}
}

// commentIfSilent writes a comment if the caller's silence has lasted long enough, and returns when to look again.
func (d *Delivery) commentIfSilent(after, every time.Duration, status func() string) (time.Duration, error) {
	d.mu.Lock()
	limit := every
	if !d.committed {
		limit = after
	}
	left := limit - time.Since(d.lastWrite)
	d.mu.Unlock()
	if left > 0 {
		return left, nil
	}
	return every, d.Comment(status())
}
