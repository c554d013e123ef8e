package fakephone

import (
	"context"
	"errors"
	"net"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// TestFreezeStopsRunningStreams also checks that the stream goes on afterwards.
func TestFreezeStopsRunningStreams(t *testing.T) {
	t.Parallel()
	p, c := overTLS(t, Config{Profile: quick(), Speed: 20})
	resp, err := c.post(t.Context(), chat, strings.Replace(say, "12", "60", 1))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	buf := make([]byte, 1<<16)
	if _, err := resp.Body.Read(buf); err != nil {
		t.Fatal(err)
	}
	setFault(t, p, Fault{Kind: Freeze})
	read := make(chan int, 1000)
	go func() {
		defer close(read)
		for {
			n, err := resp.Body.Read(buf)
			read <- n
			if err != nil {
				return
			}
		}
	}()
	silence := time.NewTimer(200 * time.Millisecond)
	late := 0
	for running := true; running; {
		select {
		case <-read:
			late++
		case <-silence.C:
			running = false
		}
	}
	if late > 2 {
		t.Errorf("%d reads while frozen", late)
	}
	if err := p.Clear(); err != nil {
		t.Fatal(err)
	}
	total := 0
	for n := range read {
		total += n
	}
	if total < 1000 {
		t.Errorf("only %d bytes after the thaw", total)
	}
}

func TestHangingStreamSendsNoPings(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, c := inMemory(t, Config{Profile: quick(), PingInterval: time.Second})
		setFault(t, p, Fault{Kind: HangStream, After: 3})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		start := time.Now()
		resp, err := c.post(ctx, chat, say)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		events, _ := readStream(start, resp.Body)
		if last := events[len(events)-1]; last.data == "" || last.at > time.Second {
			t.Errorf("last event %q at %v, want the third token and then silence", last.data, last.at)
		}
	})
}

func TestSlowBy(t *testing.T) {
	t.Parallel()
	p, c := overTLS(t, fast())
	setFault(t, p, Fault{Kind: SlowBy, Factor: 300})
	start := time.Now()
	if _, err := c.stream(t, chat, say); err != nil {
		t.Fatal(err)
	}
	// 12 steps of 0.1 s / 2000 * 300
	if got := time.Since(start); got < 180*time.Millisecond {
		t.Errorf("took %v, want 0.18 s and more", got)
	}
}

func TestKillResetsAndRestartReturns(t *testing.T) {
	t.Parallel()
	p, c := overTLS(t, Config{Profile: quick(), Speed: 20})
	url, pin := p.URL(), p.PinSHA256()
	errs := make(chan error, 2)
	for range 2 { // one works, one waits
		go func() {
			_, err := c.stream(t, chat, strings.Replace(say, "12", "900", 1))
			errs <- err
		}()
	}
	eventually(t, "one working, one waiting", func() bool { s := p.Stats(); return s.Active == 1 && s.Queued == 1 })
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := <-errs; !isReset(err) {
			t.Errorf("after the kill: %v, want a reset", err)
		}
	}
	if s := p.Stats(); s.Active != 0 || s.Queued != 0 {
		t.Errorf("after the kill: %+v", s)
	}
	if _, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(url, "https://")); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("port of a dead phone: %v, want refused", err)
	}
	for range 3 {
		if err := p.Restart(); err != nil {
			t.Fatal(err)
		}
		if p.URL() != url || p.PinSHA256() != pin {
			t.Fatalf("restarted as %s %s", p.URL(), p.PinSHA256())
		}
		healthy(t, p, c)
	}
}
