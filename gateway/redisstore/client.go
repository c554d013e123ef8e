package redisstore

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/url"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/redis/go-redis/v9/maintnotifications"
)

const (
	// dialTimeout is longer than a call's: a connection that took too long for the call that wanted it serves the next one.
	dialTimeout = 3 * time.Second
	// idleTimeout lets the connections of a burst go, and a firewall in between forget none that is still in the pool.
	idleTimeout = 5 * time.Minute
)

// poolSize is plenty: a call holds its connection for a fraction of a millisecond.
func poolSize() int { return max(16, 10*runtime.GOMAXPROCS(0)) }

// checkURL reports whether newClient would accept the URL.
func checkURL(text string) error {
	_, _, err := parseURL(text)
	return err
}

// parseURL returns one of the two kinds of options.
func parseURL(text string) (*redis.Options, *redis.FailoverOptions, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, nil, errURL
	}
	if u.Query().Has("master_name") {
		o, err := redis.ParseFailoverURL(text)
		if err != nil || o.MasterName == "" || o.RouteByLatency || o.RouteRandomly || o.ReplicaOnly {
			return nil, nil, errURL
		}
		return nil, o, nil
	}
	o, err := redis.ParseURL(text)
	if err != nil {
		return nil, nil, errURL
	}
	return o, nil, nil
}

// newClient makes the client of a config with defaults. It does not connect. The library's own log lines are switched off, since they go to
// stderr past every logger and only repeat the errors that calls return. The client never retries: see the package comment. RESP2
// needs no greeting, so a new connection costs no round trip more.
func newClient(c Config) (*redis.Client, error) {
	single, sentinel, err := parseURL(c.URL)
	if err != nil {
		return nil, err
	}
	logging.Disable()
	if o := sentinel; o != nil {
		o.Dialer, o.Protocol, o.MaxRetries, o.ContextTimeoutEnabled = c.Dialer, 2, -1, true
		o.DialTimeout, o.DialerRetries, o.ConnMaxIdleTime = dialTimeout, 1, idleTimeout
		o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = c.Timeout, c.Timeout, c.Timeout
		o.PoolSize, o.PipelinePoolSize, o.DisableIdentity = poolSize(), -1, true
		o.TLSConfig = atLeastTLS12(o.TLSConfig)
		return redis.NewFailoverClient(o), nil
	}
	o := single
	o.Dialer, o.Protocol, o.MaxRetries, o.ContextTimeoutEnabled = c.Dialer, 2, -1, true
	o.DialTimeout, o.DialerRetries, o.ConnMaxIdleTime = dialTimeout, 1, idleTimeout
	o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = c.Timeout, c.Timeout, c.Timeout
	o.PoolSize, o.PipelinePoolSize, o.DisableIdentity = poolSize(), -1, true
	o.TLSConfig = atLeastTLS12(o.TLSConfig)
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return redis.NewClient(o), nil
}

func atLeastTLS12(c *tls.Config) *tls.Config {
	if c != nil && c.MinVersion < tls.VersionTLS12 {
		c.MinVersion = tls.VersionTLS12
	}
	return c
}

// checkServer refuses a server that would lose state or does not know our commands. What it may not or cannot read, it lets pass: managed
// services and miniredis hide parts of INFO.
func checkServer(ctx context.Context, client *redis.Client) error {
	if info, err := client.Info(ctx, "server").Result(); err == nil {
		if mode := infoField(info, "redis_mode"); mode == "cluster" {
			return unfit("server is in cluster mode: use a single server or Sentinel")
		}
		major, _, _ := strings.Cut(infoField(info, "redis_version"), ".")
		if n, err := strconv.Atoi(major); err == nil && n < 7 {
			return unfit(fmt.Sprintf("version %d is too old: use 7 or newer", n))
		}
	}
	if info, err := client.Info(ctx, "memory").Result(); err == nil {
		if policy := infoField(info, "maxmemory_policy"); policy != "" && policy != "noeviction" {
			return unfit(fmt.Sprintf("maxmemory-policy %s would forget leases: set noeviction", policy))
		}
	}
	return nil
}

// infoField finds "name:value" in the text of INFO.
func infoField(info, name string) string {
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), name+":"); ok {
			return value
		}
	}
	return ""
}
