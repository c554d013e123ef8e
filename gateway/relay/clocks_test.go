package relay

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestClocksFollowTheWork(t *testing.T) {
	t.Parallel()
	c := DefaultClocks()
	tests := []struct{ predicted, want time.Duration }{
		{0, 30 * time.Second},
		{5 * time.Second, 30 * time.Second},
		{time.Minute, 3 * time.Minute},
		{time.Hour, 15 * time.Minute},
	}
	for _, tt := range tests {
		if got := c.first(tt.predicted); got != tt.want {
			t.Errorf("first(%v) = %v, want %v", tt.predicted, got, tt.want)
		}
	}
}

func TestFasterClocks(t *testing.T) {
	t.Parallel()
	c := DefaultClocks()
	if got := c.Faster(0); got != c {
		t.Errorf("Faster(0) = %+v, want no change", got)
	}
	fast := c.Faster(20)
	if fast.HeadersMax != 45*time.Second || fast.Gap != 2250*time.Millisecond || fast.Headers != 2*time.Second || fast.Ping != 2*time.Second {
		t.Errorf("Faster(20) = %+v, want a twentieth, at least 2 s", fast)
	}
	if fast.Write != c.Write || fast.Drain != c.Drain || fast.Patience != c.Patience {
		t.Errorf("Faster(20) = %+v, want the caller's side and the factor as they were", fast)
	}
}

func TestWatchdog(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		dog := newWatchdog(10*time.Second, cancel)
		time.Sleep(9 * time.Second)
		dog.allow(10 * time.Second)
		time.Sleep(9 * time.Second)
		dog.stop()
		time.Sleep(time.Hour)
		if ctx.Err() != nil {
			t.Fatal("struck though it was fed and stopped")
		}
		dog.allow(time.Second)
		time.Sleep(time.Second)
		synctest.Wait()
		if !errors.Is(context.Cause(ctx), errClock) {
			t.Errorf("got cause %v, want errClock", context.Cause(ctx))
		}
	})
}

func TestKeepAlive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, c := newDelivery(t, streamed)
		ctx, leave := context.WithCancel(t.Context())
		ended := make(chan struct{})
		asked := 0
		go func() {
			defer close(ended)
			d.KeepAlive(ctx, 10*time.Second, 20*time.Second, func() string { asked++; return "queued" })
		}()
		expect := func(at string, comments int) {
			t.Helper()
			synctest.Wait()
			if got := strings.Count(c.text(), ": queued\n"); got != comments {
				t.Errorf("%s: got %d comments, want %d", at, got, comments)
			}
		}
		time.Sleep(10*time.Second - 1)
		expect("just before the first", 0)
		if d.Committed() {
			t.Error("committed before the first comment")
		}
		time.Sleep(time.Nanosecond)
		expect("after 10 s", 1)
		time.Sleep(20 * time.Second)
		expect("after 30 s", 2)

		time.Sleep(15 * time.Second)
		d.begin()
		if err := pass(t, d, helloEvent); err != nil { // an event breaks the silence
			t.Fatal(err)
		}
		time.Sleep(19 * time.Second)
		expect("19 s after an event", 2)
		time.Sleep(time.Second)
		expect("20 s after an event", 3)
		if asked != 3 {
			t.Errorf("asked for the status %d times, want 3", asked)
		}
		leave()
		<-ended
	})
}

func TestKeepAliveEnds(t *testing.T) {
	t.Parallel()
	t.Run("at once without a stream", func(t *testing.T) {
		t.Parallel()
		d, _ := newDelivery(t, unstreamed)
		d.KeepAlive(t.Context(), time.Hour, time.Hour, func() string { return "" })
	})
	t.Run("with its caller", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			d, c := newDelivery(t, streamed)
			c.leave()
			start := time.Now()
			d.KeepAlive(t.Context(), 10*time.Second, 10*time.Second, func() string { return "queued" })
			if took := time.Since(start); took != 10*time.Second {
				t.Errorf("ended after %v, want 10s", took)
			}
		})
	})
}
