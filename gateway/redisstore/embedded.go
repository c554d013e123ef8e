package redisstore

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
)

const (
	embeddedTimeout = 2 * time.Second
	// expireEvery is how late a key of the embedded server may expire. It looks at every key for that: doing so at every command (its ClockTTL)
	// made a script on a thousand replicas take a second.
	expireEvery = 100 * time.Millisecond
)

// embedded is a Redis in this process.
type embedded struct {
	mini *miniredis.Miniredis

	mu      sync.Mutex
	expired time.Time // guarded by mu
}

// OpenEmbedded starts a Redis in this process, without a port, for demos and tests: what it holds is gone when the process ends.
// Config.URL and Config.Dialer are not read, and Timeout is [2 s]: only a busy machine can make this one slow.
func OpenEmbedded(ctx context.Context, c Config, log *slog.Logger) (*Store, error) {
	e := &embedded{mini: miniredis.NewMiniRedis(), expired: time.Now()}
	c.URL = "redis://embedded"
	c.Timeout = cmp.Or(c.Timeout, embeddedTimeout)
	c.Dialer = func(context.Context, string, string) (net.Conn, error) { return e.mini.Dial() }
	s, err := Open(ctx, c, log)
	if err != nil {
		e.mini.Close()
		return nil, err
	}
	s.embedded = e
	log.Warn("embedded redis: nothing is kept when this process ends, and no second gateway can join")
	return s, nil
}

// expire lets the time since it was last called pass for keys that expire.
func (e *embedded) expire(now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if passed := now.Sub(e.expired); passed >= expireEvery {
		e.mini.FastForward(passed)
		e.expired = now
	}
}
