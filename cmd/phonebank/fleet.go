package main

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"phonebank/balancer"
	"phonebank/gateway"
	"phonebank/gateway/account"
	"phonebank/gateway/openai"
	"phonebank/gateway/relay"
	"phonebank/health"
)

// The functions here translate the configuration into what each room wants.

func modelsOf(cfg *Config) []gateway.Model {
	var models []gateway.Model
	for _, m := range cfg.Models {
		out := gateway.Model{ID: m.ID, Upstream: m.Upstream, Context: m.Context, MaxTokens: m.MaxTokens}
		for _, f := range m.Defaults {
			out.Defaults = append(out.Defaults, openai.Field{Name: f.Name, Raw: f.Raw})
		}
		models = append(models, out)
	}
	return models
}

func replicasOf(cfg *Config) []balancer.Replica {
	var replicas []balancer.Replica
	for _, r := range cfg.Replicas {
		replicas = append(replicas, balancer.Replica{
			ID: balancer.ReplicaID(r.ID), Model: r.Model, Engine: balancer.Engine(r.Engine), Slots: r.Slots, Context: r.Context,
			Prior:  balancer.Speeds{Prefill: r.Prior.PrefillTPS, Decode: r.Prior.DecodeTPS},
			EndsAt: r.EndsAt,
		})
	}
	return replicas
}

func patienceOf(p PatienceConfig) map[balancer.Class]time.Duration {
	return map[balancer.Class]time.Duration{
		balancer.Guard: p.Guard, balancer.Chat: p.Chat, balancer.Review: p.Review, balancer.Batch: p.Batch,
	}
}

func directoryOf(cfg *Config) (*relay.Directory, error) {
	upstream := make(map[string]string, len(cfg.Models))
	for _, m := range cfg.Models {
		upstream[m.ID] = m.Upstream
	}
	endpoints := make(map[balancer.ReplicaID]*relay.Endpoint, len(cfg.Replicas))
	for _, r := range cfg.Replicas {
		u, err := url.Parse(strings.TrimSuffix(strings.TrimSuffix(r.URL, "/"), "/v1"))
		if err != nil {
			return nil, fmt.Errorf("replica %s: url: %w", r.ID, err)
		}
		trust, err := trustOf(r.TLS)
		if err != nil {
			return nil, fmt.Errorf("replica %s: tls: %w", r.ID, err)
		}
		e := &relay.Endpoint{URL: u, Key: string(r.Key), Model: upstream[r.Model], Trust: trust, Engine: balancer.Engine(r.Engine), Header: make(http.Header)}
		for name, value := range r.Headers {
			e.Header.Set(name, string(value))
		}
		endpoints[balancer.ReplicaID(r.ID)] = e
	}
	return relay.NewDirectory(endpoints), nil
}

func trustOf(c TLSConfig) (relay.Trust, error) {
	t := relay.Trust{Pin: c.Pin, Insecure: c.Insecure}
	if c.CA == "" {
		return t, nil
	}
	text, err := os.ReadFile(string(c.CA))
	if err != nil {
		return t, fmt.Errorf("ca: %w", err)
	}
	t.CA = x509.NewCertPool()
	if !t.CA.AppendCertsFromPEM(text) {
		return t, fmt.Errorf("ca: %s holds no certificate", c.CA)
	}
	return t, nil
}

// newProber gives the probes a transport of their own: small, and closed before the engine closes it.
func newProber(cfg *Config, reporter *health.Reporter, d *relay.Directory, room *balancer.Dispatcher, log *slog.Logger) *health.Prober {
	client := &http.Client{Transport: relay.NewTransport(d, relay.TransportConfig{Connect: cfg.Health.Timeout, PerHost: 1})}
	targets := func(id balancer.ReplicaID) (health.Target, bool) {
		e, ok := d.Lookup(id)
		if !ok {
			return health.Target{}, false
		}
		header := e.Header.Clone()
		if e.Key != "" {
			header.Set("Authorization", "Bearer "+e.Key)
		}
		return health.Target{URL: e.URL.String(), Header: header, Engine: e.Engine, Model: e.Model, Client: client,
			WrongIdentity: func(err error) bool { return errors.Is(err, relay.ErrPin) }}, true
	}
	return health.NewProber(reporter, targets, health.ProberConfig{
		Interval: cfg.Health.Interval,
		Timeout:  cfg.Health.Timeout,
		Depth: func(id balancer.ReplicaID) int {
			if v := room.Snapshot().Find(id); v != nil {
				return v.Depth()
			}
			return 0
		},
	}.Faster(cfg.TimeFactor), log)
}

// keepFleet enters the configured phones into the shared table, again whenever they are missing there: after the state was lost.
func (a *app) keepFleet(ctx context.Context) error {
	ticker := time.NewTicker(2 * time.Second)
	defer ticker.Stop()
	joined := false
	for {
		if !joined || a.missing() {
			if err := a.store.Join(ctx, a.phones); err != nil {
				joined = false
				a.log.Warn("join replicas", "error", err)
			} else {
				joined = true
				a.room.SoonStale()
			}
		}
		a.breakers.Retain(func(id balancer.ReplicaID) bool { return a.room.Snapshot().Find(id) != nil })
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

func (a *app) missing() bool {
	snap := a.room.Snapshot()
	for i := range a.phones {
		if snap.Find(a.phones[i].ID) == nil {
			return true
		}
	}
	return false
}

// fleet is what the metrics show of the fleet.
func (a *app) fleet() account.Fleet {
	if a.room == nil {
		return account.Fleet{} // scraped before everything was built
	}
	snap := a.room.Snapshot()
	f := account.FleetOf(snap, a.room.Rates)
	f.Waiting, f.Running = a.room.Load()
	f.Age = a.room.Now().Sub(snap.At)
	f.RedisUp = a.store.Healthy()
	return f
}
