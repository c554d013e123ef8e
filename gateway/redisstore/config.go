package redisstore

import (
	"cmp"
	"context"
	"errors"
	"net"
	"time"
)

// Config says where Redis is. Only URL is required (and not even that by OpenEmbedded); zero values mean the defaults in brackets.
type Config struct {
	// URL is redis://, rediss:// (TLS) or unix://. With a query parameter master_name it names Sentinels, more of them in addr parameters:
	// redis://10.0.0.1:26379/0?master_name=mymaster&addr=10.0.0.2:26379
	URL string
	// Namespace separates worlds on one server ["phonebank"]; 1 to 64 of [A-Za-z0-9._:-].
	Namespace string
	// Dialer replaces the network, for example by a net.Pipe.
	Dialer func(ctx context.Context, network, addr string) (net.Conn, error)

	Timeout     time.Duration // of one call [250 ms]; raise it if Redis is far away, a new connection needs several round trips
	BeatTTL     time.Duration // an owner silent for that long is dead [12 s]; it should beat three times within it
	OfferTTL    time.Duration // an offer not taken for that long goes back to the queue [3 s]
	PulseGap    time.Duration // two ticks further apart than that mean Redis was away [3 s]
	Turn        time.Duration // how long the turn of Tick stays with its holder [1.5 s]
	CancelBound time.Duration // how long a phone may work on after its connection is gone [5 s]
	MaxLife     time.Duration // hard end of tickets that name none [24 h]

	// OnCall, if set, is told of every script or read: its name, how long it took, and the error the caller gets.
	OnCall func(script string, d time.Duration, err error)
}

func (c Config) withDefaults() Config {
	c.Namespace = cmp.Or(c.Namespace, "phonebank")
	c.Timeout = cmp.Or(c.Timeout, 250*time.Millisecond)
	c.BeatTTL = cmp.Or(c.BeatTTL, 12*time.Second)
	c.OfferTTL = cmp.Or(c.OfferTTL, 3*time.Second)
	c.PulseGap = cmp.Or(c.PulseGap, 3*time.Second)
	c.Turn = cmp.Or(c.Turn, 1500*time.Millisecond)
	c.CancelBound = cmp.Or(c.CancelBound, 5*time.Second)
	c.MaxLife = cmp.Or(c.MaxLife, 24*time.Hour)
	return c
}

// Validate reports what is wrong with the values, all at once.
func (c Config) Validate() error {
	var errs []error
	if err := checkURL(c.URL); err != nil {
		errs = append(errs, err)
	}
	if _, err := newKeys(c.withDefaults().Namespace); err != nil {
		errs = append(errs, err)
	}
	for _, d := range []time.Duration{c.Timeout, c.BeatTTL, c.OfferTTL, c.PulseGap, c.Turn, c.CancelBound, c.MaxLife} {
		if d < 0 {
			errs = append(errs, errors.New("redis: durations must not be negative"))
			break
		}
	}
	return errors.Join(errs...)
}

// errURL never quotes the URL, which may hold a password.
var errURL = errors.New("redis url: use redis://[user:password@]host:port/db, rediss://... or unix:///path/to.sock")
