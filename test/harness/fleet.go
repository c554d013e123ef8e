package harness

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"phonebank/test/fakephone"
)

// Model is the one model of a harness fleet, PhoneKey what its phones ask for, and Key and Admin what the gateways ask for.
const (
	Model    = "qwen3.5-9b"
	PhoneKey = "phone-secret-0001"
	Key      = "pb-test-key-0000000000000001"
	AdminKey = "pb-admin-key-000000000000001"
)

// Fleet is a number of fake phones over TLS.
type Fleet struct {
	Phones []*fakephone.Phone
	Speed  float64
	dir    string
}

// StartFleet starts n phones with the profiles in turn, at a speed.
func StartFleet(t testing.TB, n int, speed float64, change ...func(i int, c *fakephone.Config)) *Fleet {
	t.Helper()
	f := &Fleet{Speed: speed, dir: t.TempDir()}
	profiles := fakephone.Profiles()
	for i := range n {
		cfg := fakephone.Config{
			ID: fmt.Sprintf("phone-%03d", i), Model: "qwen", Profile: profiles[i%len(profiles)], Speed: speed, Context: 16384, Key: PhoneKey, Seed: uint64(i + 1),
		}
		for _, f := range change {
			f(i, &cfg)
		}
		p, err := fakephone.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Start("127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = p.Close() }) // may have been killed by the test
		cert := filepath.Join(f.dir, cfg.ID+".crt")
		if err := os.WriteFile(cert, p.CertPEM(), 0o600); err != nil {
			t.Fatal(err)
		}
		f.Phones = append(f.Phones, p)
	}
	return f
}

// Replicas is the fleet's part of a configuration.
func (f *Fleet) Replicas() string {
	var b strings.Builder
	b.WriteString("replicas:\n")
	for _, p := range f.Phones {
		c := p.Config()
		fmt.Fprintf(&b, "  - {id: %s, url: %q, model: %s, engine: llama.cpp, slots: %d, context: %d, key: %s, tls: {ca: %q}, prior: {prefill_tps: %g, decode_tps: %g}}\n",
			c.ID, p.URL(), Model, c.Slots, c.Context, PhoneKey, filepath.Join(f.dir, c.ID+".crt"),
			c.Profile.PrefillShortTPS*f.Speed, c.Profile.DecodeTPS*f.Speed)
	}
	return b.String()
}

// Options of a configuration.
type Options struct {
	Redis     string // URL; empty for the embedded one
	Namespace string

	RedisTimeout string // of one call [250ms]
	Keys         string // lines of auth.keys beside the usual one
	Class        string // of the usual key [chat]
	Extra        string // further top-level YAML
}

// Config is a whole configuration for the fleet, with ports chosen by the system.
func (f *Fleet) Config(o Options) string {
	redis := "{embedded: true}"
	if o.Redis != "" {
		redis = fmt.Sprintf("{url: %q, namespace: %q, timeout: %q}", o.Redis, o.Namespace, cmp.Or(o.RedisTimeout, "250ms"))
	}
	class := o.Class
	if class == "" {
		class = "chat"
	}
	return fmt.Sprintf(`listen: 127.0.0.1:0
admin: {listen: "127.0.0.1:0", key: %s}
redis: %s
time_factor: %g
auth:
  keys:
    - {id: test, key: %s, class: %s}
%s
models:
  - {id: %s, upstream: qwen, context: 16384, max_tokens: 256}
%s
%s`, AdminKey, redis, f.Speed, Key, class, o.Keys, Model, f.Replicas(), o.Extra)
}
