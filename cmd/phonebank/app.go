package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"phonebank/auth"
	"phonebank/balancer"
	"phonebank/gateway"
	"phonebank/gateway/account"
	"phonebank/gateway/admin"
	"phonebank/gateway/redisstore"
	"phonebank/gateway/relay"
	"phonebank/gateway/telemetry"
	"phonebank/health"
)

// app is one gateway: its rooms, built and not yet running.
type app struct {
	cfg      *Config
	log      *slog.Logger
	tel      *telemetry.Telemetry
	store    *redisstore.Store
	room     *balancer.Dispatcher
	gateway  *gateway.Gateway
	prober   *health.Prober
	breakers *health.Breakers
	phones   []balancer.Replica
	public   *http.Server
	admin    *http.Server
	onPublic net.Listener
	onAdmin  net.Listener
}

// newApp builds the rooms and opens the listeners and the shared state. Nothing runs yet; an error has released everything.
func newApp(ctx context.Context, cfg *Config, log *slog.Logger) (_ *app, err error) {
	a := &app{cfg: cfg, log: log, breakers: health.NewBreakers(health.BreakersConfig{})}
	defer func() {
		if err != nil {
			a.release(context.WithoutCancel(ctx))
		}
	}()
	if a.tel, err = telemetry.New(ctx, telemetry.Config{Service: "phonebank", Version: version()}); err != nil {
		return nil, err
	}
	book, err := account.New(a.tel.Meter(), log, a.fleet)
	if err != nil {
		return nil, err
	}
	if a.store, err = openStore(ctx, cfg, book, log); err != nil {
		return nil, err
	}
	a.room = balancer.NewDispatcher(a.store, balancer.Config{
		Owner:  balancer.Owner("gw-" + balancer.NewID()),
		Rules:  balancer.DefaultRules().Faster(cfg.TimeFactor),
		Bounds: balancer.Bounds{Pool: cfg.Queue.Max, Key: cfg.Queue.PerKey},
		Avoid:  a.breakers.Resting,
	}, log)
	directory, err := directoryOf(cfg)
	if err != nil {
		return nil, err
	}
	reporter := health.NewReporter(a.store, health.Config{}.Faster(cfg.TimeFactor), a.room.Now, log)
	a.prober = newProber(cfg, reporter, directory, a.room, log)
	if err := a.buildEdge(directory, reporter, book); err != nil {
		return nil, err
	}
	if err := a.buildAdmin(); err != nil {
		return nil, err
	}
	return a, a.listen(ctx)
}

func openStore(ctx context.Context, cfg *Config, book *account.Book, log *slog.Logger) (*redisstore.Store, error) {
	rc := redisstore.Config{URL: string(cfg.Redis.URL), Namespace: cfg.Redis.Namespace, Timeout: cfg.Redis.Timeout, OnCall: book.RedisCall}
	if rc.URL != "" {
		return redisstore.Open(ctx, rc, log)
	}
	if !cfg.Redis.Embedded {
		log.Warn("no redis configured: the embedded one lives and dies with this process, and no second gateway can share it")
	}
	return redisstore.OpenEmbedded(ctx, rc, log)
}

func (a *app) buildEdge(d *relay.Directory, reporter *health.Reporter, book *account.Book) error {
	keys, err := auth.NewKeys(a.cfg.Auth.callers())
	if err != nil {
		return fmt.Errorf("auth: %w", err)
	}
	clocks := relay.DefaultClocks().Faster(a.cfg.TimeFactor)
	a.phones = replicasOf(a.cfg)
	a.gateway = gateway.New(gateway.Deps{
		Auth:     keys,
		Admitter: a.store,
		Room:     a.room,
		Relay:    relay.New(relay.NewTransport(d, relay.TransportConfig{PerHost: 256}), clocks),
		Phones:   d,
		Health:   reporter,
		Breakers: a.breakers,
		Book:     book,
		Log:      a.log,
	}, gateway.Config{
		Models:      modelsOf(a.cfg),
		Body:        int64(a.cfg.Limits.BodyBytes),
		Patience:    patienceOf(a.cfg.Queue.Patience),
		CommitAfter: a.cfg.CommitAfter,
		CommentGap:  min(a.cfg.CommitAfter, 10*time.Second),
		Clocks:      clocks,
		CancelBound: time.Duration(float64(time.Second) / max(a.cfg.TimeFactor, 1)),
	})
	a.public = newServer(a.gateway.Handler(a.ready), a.log)
	return nil
}

func (a *app) buildAdmin() error {
	credentials, err := a.cfg.Admin.operators()
	if err != nil {
		return fmt.Errorf("admin: %w", err)
	}
	operators, err := auth.NewAdmin(credentials)
	if err != nil {
		return fmt.Errorf("admin: %w", err)
	}
	handler, err := admin.New(admin.Config{
		Listen:    a.cfg.Admin.Listen,
		Operators: operators,
		Fleet:     a.room,
		Log:       a.log,
		Ready:     a.checks,
		Metrics:   a.tel.Handler(),
		About: func(id balancer.ReplicaID) admin.About {
			return admin.About{Resting: a.breakers.Resting(id)}
		},
	})
	if err != nil {
		return fmt.Errorf("admin: %w", err)
	}
	a.admin = newServer(handler, a.log)
	return nil
}

// newServer bounds what a client may hold open without sending. Nothing bounds how long an answer takes: that is per request.
func newServer(h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}

func (a *app) listen(ctx context.Context) (err error) {
	var lc net.ListenConfig
	if a.onPublic, err = lc.Listen(ctx, "tcp", a.cfg.Listen); err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	if a.onAdmin, err = lc.Listen(ctx, "tcp", a.cfg.Admin.Listen); err != nil {
		return fmt.Errorf("admin: listen: %w", err)
	}
	return nil
}

// ready reports why this gateway should not be sent requests.
func (a *app) ready() error {
	if !a.store.Healthy() {
		return errors.New("shared state is not reachable")
	}
	return nil
}

// checks is ready for operators.
func (a *app) checks(context.Context) []admin.Check {
	return []admin.Check{
		{Name: "serving", OK: !a.gateway.Stopping()},
		{Name: "redis", OK: a.store.Healthy(), Detail: a.store.State()},
	}
}

// run serves until ctx ends, then stops: not ready and no new work, streams finish up to the drain time, the rest is cut with an honest
// error, and only then the shared state is let go.
func (a *app) run(ctx context.Context) error {
	rooms, stopRooms := context.WithCancel(context.WithoutCancel(ctx))
	defer stopRooms()
	inside, roomsCtx := errgroup.WithContext(rooms)
	inside.Go(func() error { return a.keepFleet(roomsCtx) })
	inside.Go(func() error { return a.room.Run(roomsCtx) })
	inside.Go(func() error { return a.prober.Run(roomsCtx) })

	// Requests live under their own context, so that those that outlast the drain can be cut with a cause.
	requests, cut := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cut(nil)
	a.public.BaseContext = func(net.Listener) context.Context { return requests }

	outside, outsideCtx := errgroup.WithContext(ctx)
	outside.Go(func() error { return serve(a.public, a.onPublic) })
	outside.Go(func() error { return serve(a.admin, a.onAdmin) })
	outside.Go(func() error {
		<-outsideCtx.Done()
		return a.stop(context.WithoutCancel(ctx), cut)
	})
	a.log.Info("serving", "listen", a.onPublic.Addr().String(), "admin", a.onAdmin.Addr().String(),
		"replicas", len(a.phones), "models", len(a.cfg.Models), "owner", string(a.room.Owner()))

	err := outside.Wait()
	stopRooms()
	err = errors.Join(err, inside.Wait())
	a.release(context.WithoutCancel(ctx))
	return err
}

// serve returns nil after an orderly shutdown.
func serve(s *http.Server, l net.Listener) error {
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// stop drains the listeners. The public one stays open while requests run, so that probes and callers are told, and not just turned away.
func (a *app) stop(ctx context.Context, cut context.CancelCauseFunc) error {
	a.gateway.Stop()
	a.public.SetKeepAlivesEnabled(false)
	a.log.Info("stopping", "drain_timeout", a.cfg.DrainTimeout.String())
	drain, cancel := context.WithTimeout(ctx, a.cfg.DrainTimeout)
	defer cancel()
	a.awaitIdle(drain)
	err := a.public.Shutdown(drain)
	if err != nil {
		const grace = 5 * time.Second // for the error events of what is cut now
		cut(balancer.ErrDraining)
		last, cancel := context.WithTimeout(ctx, grace)
		defer cancel()
		err = a.public.Shutdown(last)
	}
	quick, cancelAdmin := context.WithTimeout(ctx, time.Second)
	defer cancelAdmin()
	_ = a.admin.Shutdown(quick) // a scrape or a profile may be cut
	return err
}

// awaitIdle waits until no accepted request is left, or ctx ends.
func (a *app) awaitIdle(ctx context.Context) {
	poll := time.NewTicker(50 * time.Millisecond)
	defer poll.Stop()
	for {
		if waiting, running := a.room.Load(); waiting+running == 0 {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-poll.C:
		}
	}
}

// release lets go of everything newApp opened.
func (a *app) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	for _, l := range []net.Listener{a.onPublic, a.onAdmin} {
		if l != nil {
			_ = l.Close() // closed already after an orderly stop
		}
	}
	if a.store != nil {
		if a.room != nil {
			_ = a.store.Resign(ctx, a.room.Owner()) // else the owner dies with its TTL
		}
		if err := a.store.Close(); err != nil {
			a.log.Warn("close shared state", "error", err)
		}
	}
	if a.tel != nil {
		_ = a.tel.Shutdown(ctx) // nothing is exported that could be lost
	}
}
