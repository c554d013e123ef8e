package health

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"phonebank/balancer"
)

var errPhone = errors.New("phone failed")

// attempt uses the breaker once.
func attempt(t *testing.T, b *Breakers, failure error) (tripped bool) {
	t.Helper()
	done, err := b.Allow(id)
	if err != nil {
		t.Fatalf("allow: got %v, want leave", err)
	}
	return done(failure)
}

func TestBreakerTripsAndComesBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := NewBreakers(BreakersConfig{})
		for i := range 5 {
			if got, want := attempt(t, b, errPhone), i == 4; got != want {
				t.Errorf("failure %d: got tripped %v, want %v", i+1, got, want)
			}
		}
		if _, err := b.Allow(id); !errors.Is(err, ErrTripped) {
			t.Errorf("while resting: got %v, want ErrTripped", err)
		}
		if _, err := b.Allow("other"); err != nil {
			t.Errorf("another phone: got %v, want leave", err)
		}
		time.Sleep(10*time.Second + time.Millisecond)

		// Half open: one may try, the rest go elsewhere; a caller who leaves gives the try back.
		done, err := b.Allow(id)
		if err != nil {
			t.Fatalf("after the rest: got %v, want leave", err)
		}
		for range 50 {
			if _, err := b.Allow(id); !errors.Is(err, ErrTripped) {
				t.Fatalf("second try: got %v, want ErrTripped", err)
			}
		}
		done(fmt.Errorf("relay: %w", context.Canceled))
		if !b.Resting(id) {
			t.Error("a cancelled try closed the breaker")
		}
		attempt(t, b, nil)
		if b.Resting(id) {
			t.Error("a success left the breaker open")
		}
	})
}

func TestBreakerIgnoresWhatSaysNothing(t *testing.T) {
	t.Parallel()
	b := NewBreakers(BreakersConfig{})
	for range 20 {
		if attempt(t, b, context.Canceled) || attempt(t, b, fmt.Errorf("busy: %w", ErrNeutral)) {
			t.Fatal("tripped by cancelled and neutral ends")
		}
	}
	for range 4 {
		attempt(t, b, errPhone)
	}
	attempt(t, b, nil)
	for range 4 {
		if attempt(t, b, errPhone) {
			t.Fatal("tripped by failures with a success between")
		}
	}
}

func TestBreakerFailuresMinutesApartCount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := NewBreakers(BreakersConfig{})
		var tripped bool
		for range 5 {
			done, err := b.Allow(id)
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(5 * time.Minute) // a review that stalls
			tripped = done(errPhone)
		}
		if !tripped {
			t.Error("five long failures in a row did not trip")
		}
	})
}

func TestBreakerDoneCountsOnce(t *testing.T) {
	t.Parallel()
	b := NewBreakers(BreakersConfig{Failures: 2})
	done, err := b.Allow(id)
	if err != nil {
		t.Fatal(err)
	}
	done(errPhone)
	if done(errPhone) || b.Resting(id) {
		t.Error("one attempt counted twice")
	}
}

func TestBreakersForgetReplicasThatLeft(t *testing.T) {
	t.Parallel()
	b := NewBreakers(BreakersConfig{})
	for i := range 100 {
		done, err := b.Allow(balancer.ReplicaID(fmt.Sprint("phone-", i)))
		if err != nil {
			t.Fatal(err)
		}
		done(nil)
	}
	b.Retain(func(r balancer.ReplicaID) bool { return r == "phone-7" })
	if len(b.all) != 1 {
		t.Errorf("got %d breakers, want 1", len(b.all))
	}
}
