package fakephone

import (
	"cmp"
	"errors"
	"fmt"
	"time"
)

const (
	defaultContext = 8192
	defaultBatch   = 512
	defaultBuild   = "b10587-3f545becc"
	defaultPing    = 30 * time.Second
)

// Config describes one fake phone. The zero value is a usable phone of the first profile at life speed.
type Config struct {
	// ID names the phone in its certificate and seeds its jitter; "" is "phone".
	ID string
	// Model is the alias the phone reports; "" is the profile's model. As with llama-server, a request's own model is ignored.
	Model string
	// Profile sets speed, slots and round trip; the zero value is the first of [Profiles].
	Profile Profile
	// Speed is how many times faster than life the phone is; 0 is 1.
	Speed float64
	// Slots is the number of requests worked on at once; 0 is the profile's.
	Slots int
	// Context is the context of each slot in tokens; 0 is 8192.
	Context int
	// Batch is the number of prompt tokens of one uninterruptible prefill step; 0 is 512.
	Batch int
	// Key must be sent as "Authorization: Bearer <key>" or X-Api-Key on every path but /health; "" asks for none.
	Key string
	// Build is reported as build_info and system_fingerprint; "" is "b10587-3f545becc".
	Build string
	// Load is how long after its start the phone answers 503 "Loading model" on every path; divided by Speed.
	Load time.Duration
	// Seed makes jitter and ids repeatable.
	Seed uint64
	// Heat lets the phone throttle as its profile says.
	Heat bool
	// PingInterval is the silence after which a stream gets a ping when the request does not say; 0 is 30 s, negative is off.
	PingInterval time.Duration
	// Hosts are further names and addresses of the certificate; localhost and the loopback addresses are always in it.
	Hosts []string
	// CertPEM and KeyPEM are the certificate to use; both empty: one is made.
	CertPEM, KeyPEM []byte
}

// Validate reports every value no phone can have, with the field's name.
func (c Config) Validate() error {
	var errs []error
	check := func(ok bool, field string, value any) {
		if !ok {
			errs = append(errs, fmt.Errorf("fakephone: %s: bad value %v", field, value))
		}
	}
	check(c.Speed >= 0, "Speed", c.Speed)
	check(c.Slots >= 0 && c.Slots <= 1024, "Slots", c.Slots)
	check(c.Context >= 0, "Context", c.Context)
	check(c.Batch >= 0, "Batch", c.Batch)
	check(c.Load >= 0, "Load", c.Load)
	check((len(c.CertPEM) == 0) == (len(c.KeyPEM) == 0), "CertPEM/KeyPEM", "one without the other")
	if c.Profile.Name != "" || c.Profile.DecodeTPS != 0 {
		check(c.Profile.PrefillShortTPS > 0, "Profile.PrefillShortTPS", c.Profile.PrefillShortTPS)
		check(c.Profile.DecodeTPS > 0, "Profile.DecodeTPS", c.Profile.DecodeTPS)
	}
	return errors.Join(errs...)
}

// withDefaults returns c with every zero value that has a default replaced by it.
func (c Config) withDefaults() Config {
	if c.Profile.DecodeTPS == 0 {
		if all := Profiles(); len(all) > 0 {
			c.Profile = all[0]
		}
	}
	c.ID = cmp.Or(c.ID, "phone")
	c.Model = cmp.Or(c.Model, c.Profile.Model, "model")
	c.Speed = cmp.Or(c.Speed, 1)
	c.Slots = max(1, cmp.Or(c.Slots, c.Profile.Slots))
	c.Context = cmp.Or(c.Context, defaultContext)
	c.Batch = cmp.Or(c.Batch, defaultBatch)
	c.Build = cmp.Or(c.Build, defaultBuild)
	c.PingInterval = cmp.Or(c.PingInterval, defaultPing)
	return c
}

// scaled converts a duration of life to one of this phone.
func (c Config) scaled(d time.Duration) time.Duration {
	return time.Duration(float64(d) / c.Speed)
}
