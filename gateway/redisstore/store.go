package redisstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/sony/gobreaker/v2"

	"phonebank/balancer"
	"phonebank/health"
)

const (
	breakerTrips = 5           // failures in a row
	breakerOpen  = time.Second // until one call is let through
)

// Store is the shared state. Its methods may be called concurrently.
type Store struct {
	config   Config
	log      *slog.Logger
	client   *redis.Client
	keys     keys
	scripts  *scripts
	breaker  *gobreaker.CircuitBreaker[struct{}]
	owed     owed
	embedded *embedded // nil for a real server
}

var (
	_ balancer.Store  = (*Store)(nil)
	_ health.Store    = (*Store)(nil)
	_ health.Registry = (*Store)(nil)
)

// Open connects to Redis and checks that it is fit: reachable, version 7 or newer, no eviction, no cluster mode. An error that wraps
// balancer.ErrUnavailable may pass by waiting, others do not.
func Open(ctx context.Context, c Config, log *slog.Logger) (*Store, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c = c.withDefaults()
	k, err := newKeys(c.Namespace)
	if err != nil {
		return nil, err
	}
	all, err := loadScripts()
	if err != nil {
		return nil, err
	}
	client, err := newClient(c)
	if err != nil {
		return nil, err
	}
	s := &Store{config: c, log: log, client: client, keys: k, scripts: all, owed: owed{debts: make(map[string]debt)}}
	s.breaker = gobreaker.NewCircuitBreaker[struct{}](gobreaker.Settings{
		Name:          "redis",
		Timeout:       breakerOpen,
		ReadyToTrip:   func(n gobreaker.Counts) bool { return n.ConsecutiveFailures >= breakerTrips },
		IsSuccessful:  func(err error) bool { return err == nil || answered(err) },
		OnStateChange: func(_ string, _, to gobreaker.State) { s.logBreaker(to) },
	})
	err = s.call(ctx, "ping", func(ctx context.Context) error {
		if err := client.Ping(ctx).Err(); err != nil {
			return err
		}
		return checkServer(ctx, client)
	})
	if err != nil {
		_ = client.Close()
		return nil, err
	}
	return s, nil
}

// Close closes the connections, and the embedded server if there is one. Calls under way fail.
func (s *Store) Close() error {
	err := s.client.Close()
	if s.embedded != nil {
		s.embedded.mini.Close()
	}
	return err
}

// Healthy reports whether calls are let through to Redis without restriction.
func (s *Store) Healthy() bool { return s.breaker.State() == gobreaker.StateClosed }

// State is the breaker's state in words: closed is good, open fails calls at once, half-open tries one.
func (s *Store) State() string { return s.breaker.State().String() }

// Embedded reports whether the state lives in this process only.
func (s *Store) Embedded() bool { return s.embedded != nil }

func (s *Store) logBreaker(to gobreaker.State) {
	switch to {
	case gobreaker.StateOpen:
		s.log.Error("redis is away: new work is refused, running streams go on")
	case gobreaker.StateClosed:
		s.log.Info("redis is back")
	case gobreaker.StateHalfOpen:
	}
}

// call runs f under the breaker and the deadline of one call. The caller's cancellation does not reach f: it would close the connection.
func (s *Store) call(ctx context.Context, name string, f func(context.Context) error) error {
	start := time.Now()
	if s.embedded != nil {
		s.embedded.expire(start)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.config.Timeout)
	defer cancel()
	_, err := s.breaker.Execute(func() (struct{}, error) { return struct{}{}, f(ctx) })
	if err != nil {
		if answered(err) {
			err = fmt.Errorf("redis %s: %w", name, err)
		} else {
			err = fmt.Errorf("redis %s: %w: %w", name, balancer.ErrUnavailable, err)
		}
	}
	if s.config.OnCall != nil {
		s.config.OnCall(name, time.Since(start), err)
	}
	return err
}

// eval runs one script. An unexpected shape of the reply is the reader's to report.
func (s *Store) eval(ctx context.Context, sc script, args ...any) (any, error) {
	var v any
	err := s.call(ctx, sc.name, func(ctx context.Context) error {
		var err error
		v, err = sc.run.Run(ctx, s.client, []string{s.keys.prefix}, args...).Result()
		return err
	})
	return v, err
}

// evalList runs a script that returns an array.
func (s *Store) evalList(ctx context.Context, sc script, args ...any) (reply, error) {
	v, err := s.eval(ctx, sc, args...)
	if err != nil {
		return reply{}, err
	}
	r := newReply(v)
	return r, r.failed(sc)
}

// evalFlag runs a script that returns a number.
func (s *Store) evalFlag(ctx context.Context, sc script, args ...any) (bool, error) {
	v, err := s.eval(ctx, sc, args...)
	if err != nil {
		return false, err
	}
	n, ok := v.(int64)
	if !ok {
		return false, fmt.Errorf("redis %s: reply is %T, not a number", sc.name, v)
	}
	return n != 0, nil
}

// awayPrefixes are the answers of a server that cannot serve just now.
var awayPrefixes = [...]string{
	"LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "NOREPLICAS", "MISCONF", "OOM", "BUSY", "NOAUTH", "WRONGPASS", "NOPERM",
	"ERR max number of clients reached", "UNBLOCKED",
}

// answered reports whether err came from a server that works: a wrong type, a fault in a script, an unfit server. Such an error says nothing
// about whether Redis is there.
func answered(err error) bool {
	if _, ok := errors.AsType[unfit](err); ok {
		return true
	}
	e, ok := errors.AsType[redis.Error](err)
	if !ok {
		return false
	}
	for _, prefix := range awayPrefixes {
		if strings.HasPrefix(e.Error(), prefix) {
			return false
		}
	}
	return true
}

// unfit says why a server must not be used.
type unfit string

func (u unfit) Error() string { return string(u) }
