package main

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"phonebank/auth"
	"phonebank/auth/limit"
)

// The validate methods check what a type cannot say, and change nothing. They
// run after decoding even when that found faults, so that all are listed.

var (
	idPattern        = regexp.MustCompile(`^[A-Za-z0-9._:-]{1,64}$`)
	namespacePattern = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`) // no braces: it becomes a hash tag
)

const badID = "is not a name; use 1 to 64 of A-Z a-z 0-9 . _ : -"

func (c *Config) validate(f *collector) {
	if validListen(f, "listen", c.Listen) && c.Listen == c.Admin.Listen && !strings.HasSuffix(c.Listen, ":0") { // port 0: the system picks two
		f.add("admin.listen", "is the same as listen; operators need an address of their own")
	}
	c.Admin.validate(f)
	c.Redis.validate(f)
	c.Auth.validate(f)
	models := validModels(f, c.Models)
	validReplicas(f, c.Replicas, models)
	if b := c.Limits.BodyBytes; b < 1<<10 || b > 1<<30 {
		f.add("limits.body_bytes", "is out of range; want 1KiB to 1GiB")
	}
	c.Queue.validate(f)
	c.Health.validate(f)
	if c.TimeFactor <= 0 || c.TimeFactor > 1000 {
		f.add("time_factor", "is out of range; want more than 0 and at most 1000, and 1 for real phones")
	}
	oneOf(f, "log.format", c.Log.Format, "json", "text")
	oneOf(f, "log.level", c.Log.Level, "debug", "info", "warn", "error")
}

func (a AdminConfig) validate(f *collector) {
	if validListen(f, "admin.listen", a.Listen) && !isLoopback(host(a.Listen)) && a.Key == "" && a.JWT == nil {
		f.add("admin.listen", "is reachable from other machines and nothing guards it; set admin.key or admin.jwt, or use 127.0.0.1")
	}
	validSecret(f, "admin.key", a.Key, false)
	if a.JWT != nil {
		a.JWT.validate(f)
	}
}

func (j JWTConfig) validate(f *collector) {
	if j.Audience == "" {
		f.add("admin.jwt.audience", "is required: without it a token made for any other service would do")
	}
	const key = "admin.jwt.public_key"
	if j.PublicKey == "" {
		f.add(key, "is required; name a PEM file")
		return
	}
	c, err := AdminConfig{JWT: &j}.operators()
	if err != nil {
		f.add(key, "%v", err)
		return
	}
	c.JWT.Audience = "any" // has a fault of its own; here only the key is in question
	if _, err := auth.NewAdmin(c); err != nil {
		f.add(key, "cannot be used: %v", err)
	}
}

func (r RedisConfig) validate(f *collector) {
	if r.Timeout <= 0 || r.Timeout > 30*time.Second {
		f.add("redis.timeout", "is out of range; use more than 0 and at most 30s")
	}
	if !namespacePattern.MatchString(r.Namespace) {
		f.add("redis.namespace", "is not a name; use 1 to 64 of A-Z a-z 0-9 . _ -")
	}
	if r.URL == "" {
		if f.has("redis.url") {
			f.add("redis.url", "is empty; remove it for an embedded Redis")
		}
		return
	}
	if r.Embedded {
		f.add("redis.embedded", "contradicts redis.url; keep one")
	}
	// A parse error would quote the URL and the password in it.
	u, err := url.Parse(string(r.URL))
	if err != nil || !slices.Contains([]string{"redis", "rediss", "unix"}, u.Scheme) || (u.Host == "" && u.Scheme != "unix") {
		f.add("redis.url", "is not a Redis URL; write redis://HOST:PORT/DB, rediss:// for TLS, or unix:///PATH")
	}
}

func (a AuthConfig) validate(f *collector) {
	if len(a.Keys) == 0 && !a.Open {
		f.add("auth.keys", "nobody could call; list at least one key, or set auth.open: true to let everybody in")
	}
	ids, secrets := map[string]int{}, map[Secret]int{}
	for i, k := range a.Keys {
		path := fmt.Sprintf("auth.keys[%d]", i)
		if validID(f, path, k.ID, ids, i) && k.ID == auth.AnonymousID {
			f.add(path+".id", "is reserved for callers without a key; choose another")
		}
		if validSecret(f, path+".key", k.Key, true) {
			if first, taken := secrets[k.Key]; taken {
				f.add(path+".key", "is the same as auth.keys[%d].key; every key needs its own", first)
			} else {
				secrets[k.Key] = i
			}
		}
		oneOf(f, path+".class", k.Class, "guard", "chat", "review", "batch")
		between(f, path+".limits.requests_per_minute", k.Limits.RequestsPerMinute, 0, limit.MaxLimit)
		between(f, path+".limits.tokens_per_minute", k.Limits.TokensPerMinute, 0, limit.MaxLimit)
		between(f, path+".limits.concurrent", k.Limits.Concurrent, 0, limit.MaxLimit)
	}
}

func (q QueueConfig) validate(f *collector) {
	between(f, "queue.max", q.Max, 1, 1_000_000)
	if f.has("queue.per_key") && (q.PerKey < 1 || q.PerKey > q.Max) {
		f.add("queue.per_key", "is out of range; want 1 to queue.max, %d", q.Max)
	}
}

func (h HealthConfig) validate(f *collector) {
	if h.Interval <= 0 {
		f.add("health.interval", "must be more than 0")
		return
	}
	if f.has("health.timeout") && (h.Timeout <= 0 || h.Timeout > h.Interval) {
		f.add("health.timeout", "is out of range; want more than 0 and at most health.interval, %v", h.Interval)
	}
}

// validID checks an id and that it is the first of its list.
func validID(f *collector, path, id string, seen map[string]int, i int) bool {
	path += ".id"
	if id == "" {
		f.add(path, "is required")
		return false
	}
	if !idPattern.MatchString(id) {
		f.add(path, badID)
		return false
	}
	if first, taken := seen[id]; taken {
		f.add(path, "is the same as that of entry [%d]; every entry needs its own", first)
		return false
	}
	seen[id] = i
	return true
}

// validSecret checks a credential that is sent in a header. One that is set
// must not be empty: that is a variable somebody forgot, not a wish.
func validSecret(f *collector, path string, s Secret, required bool) bool {
	switch {
	case s == "" && f.has(path):
		f.add(path, "is empty")
	case s == "" && required:
		f.add(path, "is required")
	case len(s) > 4<<10 || strings.ContainsFunc(string(s), func(r rune) bool { return r <= ' ' || r > '~' }):
		f.add(path, "cannot be sent in a header; use at most 4096 visible ASCII characters without spaces")
	default:
		return true
	}
	return false
}

func validListen(f *collector, path, address string) bool {
	_, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		f.add(path, "is not an address; write HOST:PORT, as in 127.0.0.1:8080")
	}
	return err == nil
}

// host returns the host of HOST:PORT.
func host(address string) string {
	h, _, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	return h
}

func isLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

func oneOf(f *collector, path, value string, choices ...string) {
	if slices.Contains(choices, value) {
		return
	}
	f.add(path, "is none of %s%s", strings.Join(choices, ", "), didYouMean(value, choices))
}

func between(f *collector, path string, n, least, most int) {
	if n < least || n > most {
		f.add(path, "is out of range; want %d to %d", least, most)
	}
}
