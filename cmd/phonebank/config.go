package main

import (
	"cmp"
	"time"
)

// Config is the whole configuration file. A key that is absent keeps its
// default; every default is usable. [Load] returns only configurations without
// a fault.
type Config struct {
	Listen       string        `yaml:"listen"` // default 127.0.0.1:8080
	Admin        AdminConfig   `yaml:"admin"`
	Redis        RedisConfig   `yaml:"redis"`
	Auth         AuthConfig    `yaml:"auth"`
	Models       []Model       `yaml:"models"`   // at least one, ids unique
	Replicas     []Replica     `yaml:"replicas"` // ids unique; may be empty
	Limits       LimitsConfig  `yaml:"limits"`
	Queue        QueueConfig   `yaml:"queue"`
	CommitAfter  time.Duration `yaml:"commit_after"`  // default 10s: a waiting stream gets its 200 then
	DrainTimeout time.Duration `yaml:"drain_timeout"` // default 30s: how long a stopping gateway lets streams finish
	Health       HealthConfig  `yaml:"health"`
	Log          LogConfig     `yaml:"log"`
	TimeFactor   float64       `yaml:"time_factor"` // default 1; above 1 only for fake phones that live faster
}

// AdminConfig is the operators' listener. With neither a key nor JWT it must be
// a loopback address, and everybody there may look and do nothing else.
type AdminConfig struct {
	Listen string     `yaml:"listen"` // default 127.0.0.1:8081
	Key    Secret     `yaml:"key"`
	JWT    *JWTConfig `yaml:"jwt"` // nil: no tokens
}

// JWTConfig says which tokens operators may come with.
type JWTConfig struct {
	PublicKey Path          `yaml:"public_key"` // PEM; ES256 or EdDSA follows from it
	Audience  string        `yaml:"audience"`   // required
	Issuer    string        `yaml:"issuer"`     // empty: any
	Leeway    time.Duration `yaml:"leeway"`     // default none
}

// RedisConfig is where shared state lives. An empty URL means the embedded
// Redis, which lives and dies with the process.
type RedisConfig struct {
	URL       Secret `yaml:"url"`       // may hold a password
	Namespace string `yaml:"namespace"` // default phonebank
	Embedded  bool   `yaml:"embedded"`  // embedded on purpose: no warning
	// Timeout of one call, default 250ms. Longer means that requests wait longer before they hear that Redis is away.
	Timeout time.Duration `yaml:"timeout"`
}

// AuthConfig is who may call.
type AuthConfig struct {
	Open bool        `yaml:"open"` // callers without a key are let in, as "anonymous"
	Keys []KeyConfig `yaml:"keys"`
}

// KeyConfig is one static API key.
type KeyConfig struct {
	ID     string    `yaml:"id"`
	Key    Secret    `yaml:"key"`
	Class  string    `yaml:"class"` // guard, chat, review or batch; default chat
	Limits KeyLimits `yaml:"limits"`
}

// KeyLimits are what a key may spend. Zero means unlimited.
type KeyLimits struct {
	RequestsPerMinute int `yaml:"requests_per_minute"`
	TokensPerMinute   int `yaml:"tokens_per_minute"`
	Concurrent        int `yaml:"concurrent"` // accepted and unfinished requests, queued ones included
}

// Model is a name callers use.
type Model struct {
	ID        string `yaml:"id"`
	Upstream  string `yaml:"upstream"`   // the name the phones use; default the id
	Context   int    `yaml:"context"`    // tokens, default 8192
	MaxTokens int    `yaml:"max_tokens"` // output cap when the caller gave none; default 1024, or half a small context
	Defaults  Fields `yaml:"defaults"`   // request fields set where the caller did not
}

// Replica is one phone.
type Replica struct {
	ID      string            `yaml:"id"`
	URL     string            `yaml:"url"`
	Model   string            `yaml:"model"`   // the id of a listed model
	Engine  string            `yaml:"engine"`  // llama.cpp, mnn or openai; default llama.cpp
	Slots   int               `yaml:"slots"`   // default 1
	Context int               `yaml:"context"` // tokens a slot holds; 0: the model's
	Key     Secret            `yaml:"key"`     // sent to the phone as Bearer
	TLS     TLSConfig         `yaml:"tls"`
	Prior   Prior             `yaml:"prior"`
	EndsAt  time.Time         `yaml:"ends_at"` // end of the deployment; zero: not known
	Labels  map[string]string `yaml:"labels"`
	Headers map[string]Secret `yaml:"headers"` // sent to the phone with every request
}

// TLSConfig says whom to trust at the other end. The zero value trusts the
// system's authorities.
type TLSConfig struct {
	CA       Path   `yaml:"ca"`       // PEM certificates
	Pin      string `yaml:"pin"`      // sha256/<base64 of the public key's hash>
	Insecure bool   `yaml:"insecure"` // trusts anybody, and allows http://
}

// Prior is the speed a phone is credited with until it has been measured.
type Prior struct {
	PrefillTPS float64 `yaml:"prefill_tps"` // tokens a second, default 60
	DecodeTPS  float64 `yaml:"decode_tps"`  // tokens a second, default 9
}

// LimitsConfig bounds every request, whoever sends it.
type LimitsConfig struct {
	BodyBytes Size `yaml:"body_bytes"` // default 10MiB
}

// QueueConfig bounds the shared queue.
type QueueConfig struct {
	Max      int            `yaml:"max"`     // waiting requests, default 10000
	PerKey   int            `yaml:"per_key"` // of one key, default 2000 or max if that is less
	Patience PatienceConfig `yaml:"patience"`
}

// PatienceConfig is how long a request of each class waits for a phone. Zero
// means without end.
type PatienceConfig struct {
	Guard  time.Duration `yaml:"guard"`  // default 10s
	Chat   time.Duration `yaml:"chat"`   // default 60s
	Review time.Duration `yaml:"review"` // default 540s: SDKs give up after 600s
	Batch  time.Duration `yaml:"batch"`  // default without end
}

// HealthConfig is how phones are probed.
type HealthConfig struct {
	Interval time.Duration `yaml:"interval"` // default 5s
	Timeout  time.Duration `yaml:"timeout"`  // default 4s, or four fifths of a short interval
}

// LogConfig is how the log is written.
type LogConfig struct {
	Format string `yaml:"format"` // json or text; default json
	Level  string `yaml:"level"`  // debug, info, warn or error; default info
}

// The setDefaults methods run before a value is decoded, so that the file
// overrides them, and on every element of a list.

func (c *Config) setDefaults() {
	c.Listen = "127.0.0.1:8080"
	c.Admin.Listen = "127.0.0.1:8081"
	c.Redis.Namespace = "phonebank"
	c.Redis.Timeout = 250 * time.Millisecond
	c.Limits.BodyBytes = 10 << 20
	c.Queue.Max = 10_000
	c.Queue.Patience = PatienceConfig{Guard: 10 * time.Second, Chat: time.Minute, Review: 9 * time.Minute}
	c.CommitAfter = 10 * time.Second
	c.DrainTimeout = 30 * time.Second
	c.Health.Interval = 5 * time.Second
	c.Log = LogConfig{Format: "json", Level: "info"}
	c.TimeFactor = 1
}

func (k *KeyConfig) setDefaults() { k.Class = "chat" }

func (m *Model) setDefaults() { m.Context = 8192 }

func (r *Replica) setDefaults() {
	r.Engine, r.Slots = "llama.cpp", 1
	r.Prior = Prior{PrefillTPS: 60, DecodeTPS: 9}
}

// resolve fills in the defaults that follow from other fields, so that changing
// one field never makes another field's default wrong. It runs after validation.
func (c *Config) resolve() {
	contexts := make(map[string]int, len(c.Models))
	for i := range c.Models {
		m := &c.Models[i]
		m.Upstream = cmp.Or(m.Upstream, m.ID)
		m.MaxTokens = cmp.Or(m.MaxTokens, min(1024, max(1, m.Context/2)))
		contexts[m.ID] = m.Context
	}
	for i := range c.Replicas {
		r := &c.Replicas[i]
		r.Context = cmp.Or(r.Context, contexts[r.Model])
	}
	c.Queue.PerKey = cmp.Or(c.Queue.PerKey, min(2_000, c.Queue.Max))
	c.Health.Timeout = cmp.Or(c.Health.Timeout, min(4*time.Second, c.Health.Interval*4/5))
}
