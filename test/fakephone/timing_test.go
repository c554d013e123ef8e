package fakephone

import (
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// ask is a chat request of a prompt of exactly n tokens on the phone, with a long answer.
func ask(n int, fields string) string {
	size := 4*(n-8) - len("LENGTH=100 ")
	return fmt.Sprintf(`{"messages":[{"role":"user","content":"LENGTH=100 %s"}]%s}`, strings.Repeat("a", size), fields)
}

const chat = "/v1/chat/completions"

func TestTimingOfStream(t *testing.T) {
	t.Parallel()
	for _, speed := range []float64{1, 20} {
		t.Run(fmt.Sprintf("%gx", speed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				_, c := inMemory(t, Config{Profile: quick(), Speed: speed})
				events, err := c.stream(t, chat, ask(1200, `,"stream":true,"return_progress":true,"max_tokens":3,"stream_options":{"include_usage":true}`))
				if err != nil {
					t.Fatal(err)
				}
				// 100 tokens/s in batches of 512, then 10 tokens/s, the first of them free
				want := []float64{0, 5.12, 10.24, 12, 12, 12, 12.1, 12.2, 12.2, 12.2, 12.2}
				for i, e := range events {
					if i < len(want) && !near(e.at, time.Duration(want[i]/speed*float64(time.Second))) {
						t.Errorf("event %d at %v, want %.2f s / %g: %s", i, e.at, want[i], speed, e.data)
					}
				}
				if len(events) != len(want) {
					t.Errorf("got %d events, want %d", len(events), len(want))
				}
				last := events[len(events)-2]
				if got := time.Duration(float64(last.Timings.PromptMS) * 1e6); !near(got, time.Duration(12/speed*1e9)) {
					t.Errorf("prompt_ms = %v, want 12 s / %g", got, speed)
				}
				if got, want := float64(last.Timings.PredictedPerSecond), 10*speed; math.Abs(got-want) > 0.1 {
					t.Errorf("predicted_per_second = %v, want %v", got, want)
				}
				if last.Usage.PromptTokens != 1200 || last.Usage.CompletionTokens != 3 {
					t.Errorf("usage = %+v, want 1200 and 3", last.Usage)
				}
			})
		})
	}
}

func TestPrefillTakesWhatTheProfileSays(t *testing.T) {
	t.Parallel()
	for _, p := range Profiles() {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				_, c := inMemory(t, Config{Profile: p})
				events, err := c.stream(t, chat, ask(7000, `,"stream":true,"max_tokens":1,"sse_ping_interval":-1`))
				if err != nil {
					t.Fatal(err)
				}
				got := events[len(events)-2].Timings
				want := 7000 / p.Prefill7kTPS * 1000
				if math.Abs(float64(got.PromptMS)-want)/want > 0.02 {
					t.Errorf("7,000 tokens took %v ms, want %v", got.PromptMS, want)
				}
				rtt := events[0].at - time.Duration(float64(got.PromptMS)*1e6)
				if rtt < ms(p.RTTMS-p.JitterMS)-time.Millisecond || rtt > ms(p.RTTMS+p.JitterMS)+time.Millisecond {
					t.Errorf("round trip %v, want %v ± %v ms", rtt, p.RTTMS, p.JitterMS)
				}
			})
		})
	}
}

func ms(f float64) time.Duration { return time.Duration(f * float64(time.Millisecond)) }

func TestSlotsShareThePhone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		profile := quick()
		profile.Slots = 4
		p, c := inMemory(t, Config{Profile: profile})
		ends := make(chan time.Duration, 4)
		start := time.Now()
		for range 4 {
			go func() {
				_, _ = c.stream(t, chat, ask(100, `,"stream":true,"max_tokens":11`))
				ends <- time.Since(start)
			}()
		}
		for range 4 {
			// four prompts of 1 s at a quarter of the speed, then ten steps of 0.4 s
			if got := <-ends; !near(got, 8*time.Second) {
				t.Errorf("one of four ended after %v, want 8s", got)
			}
		}
		if s := p.Stats(); s.PeakActive != 4 || s.PeakLive != 4 || s.Waited != 0 || s.Completed != 4 {
			t.Errorf("stats = %+v, want 4 active and live at once, none waited, 4 completed", s)
		}
	})
}

func TestHeat(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		profile := quick()
		profile.ThrottleF, profile.ThrottleTauS = 0.5, 10
		_, c := inMemory(t, Config{Profile: profile, Heat: true, Context: 100_000})
		events, err := c.stream(t, chat, strings.Replace(ask(100, `,"stream":true,"timings_per_token":true`), "LENGTH=100", "LENGTH=900", 1))
		if err != nil {
			t.Fatal(err)
		}
		gap := func(i int) time.Duration { return events[i+1].at - events[i].at }
		if got := gap(5); got > 120*time.Millisecond {
			t.Errorf("cold step took %v, want about 0.11 s", got)
		}
		if got := gap(800); got < 195*time.Millisecond {
			t.Errorf("hot step took %v, want about 0.2 s", got)
		}
		pass(400 * time.Second) // in the bubble: ten times the cooling constant
		events, err = c.stream(t, chat, ask(100, `,"stream":true,"max_tokens":4`))
		if err != nil {
			t.Fatal(err)
		}
		if got := events[2].at - events[1].at; got > 120*time.Millisecond {
			t.Errorf("step after cooling took %v, want about 0.11 s", got)
		}
	})
}

func TestPings(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, fields string
		want         []time.Duration
	}{
		{"default", ``, []time.Duration{30 * time.Second, 60 * time.Second}},
		{"of the request", `,"sse_ping_interval":25`, []time.Duration{25 * time.Second, 50 * time.Second, 75 * time.Second}},
		{"off", `,"sse_ping_interval":-1`, nil},
		{"put off by progress", `,"return_progress":true,"sse_ping_interval":45`, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				_, c := inMemory(t, Config{Profile: quick(), Batch: 4000, Context: 10000})
				events, err := c.stream(t, chat, ask(8000, `,"stream":true,"max_tokens":1`+tt.fields))
				if err != nil {
					t.Fatal(err)
				}
				var got []time.Duration
				for _, e := range events {
					if e.data == "" {
						got = append(got, e.at)
					}
				}
				if !slices.EqualFunc(got, tt.want, near) {
					t.Errorf("pings at %v, want %v", got, tt.want)
				}
			})
		})
	}
}

func TestQueueIsSilentAndFirstComeFirstServed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, c := inMemory(t, Config{Profile: quick(), PingInterval: time.Second})
		type end struct {
			i           int
			header, end time.Duration
		}
		ends := make(chan end, 5)
		for i := range 5 {
			start := time.Now()
			go func() {
				resp, err := c.post(t.Context(), chat, ask(400, `,"stream":true,"max_tokens":1`))
				if err != nil {
					t.Error(err)
					return
				}
				defer resp.Body.Close()
				header := time.Since(start)
				_, _ = io.Copy(io.Discard, resp.Body)
				ends <- end{i, header, time.Since(start)}
			}()
			synctest.Wait()
		}
		for i := range 5 {
			e := <-ends
			if want := time.Duration(i) * 4 * time.Second; e.i != i || !near(e.header, want) || !near(e.end, want+4*time.Second) {
				t.Errorf("request %d ended as number %d, headers at %v, want %v", e.i, i, e.header, want)
			}
		}
		s := p.Stats()
		if s.PeakQueued != 4 || s.Waited != 4 || s.WaitedLive != 4 || s.PeakActive != 1 || s.Queued != 0 {
			t.Errorf("stats = %+v, want 4 queued, all of them over-commits", s)
		}
	})
}

func TestCancelFreesTheSlot(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name     string
		fields   string
		after    time.Duration // of the request
		wantFree time.Duration // after the cancel
		fault    Kind
	}{
		{"streamed, in decode", `,"stream":true`, 13050 * time.Millisecond, 15 * time.Millisecond, ""},
		{"not streamed, in decode", ``, 13050 * time.Millisecond, 50 * time.Millisecond, ""}, // the end of the token comes first
		{"in prefill, after the batch", `,"stream":true`, 6 * time.Second, 4240 * time.Millisecond, ""},
		{"zombie works to its end", `,"stream":true,"max_tokens":21`, 6 * time.Second, 8 * time.Second, Zombie},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p, c := inMemory(t, Config{Profile: quick()})
				if tt.fault != "" {
					if err := p.SetFault(Fault{Kind: tt.fault}); err != nil {
						t.Fatal(err)
					}
				}
				ctx, cancel := context.WithTimeout(t.Context(), tt.after)
				defer cancel()
				resp, err := c.post(ctx, chat, ask(1200, tt.fields))
				if err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
				}
				left := time.Now()
				synctest.Wait()
				if s := p.Stats(); s.Cancelled != 1 || s.Active != 1 {
					t.Fatalf("right after the cancel: %+v, want it noticed and the slot busy", s)
				}
				for p.Stats().Active > 0 && time.Since(left) < time.Minute {
					pass(time.Millisecond)
				}
				if got := time.Since(left); (got - tt.wantFree).Abs() > 2*time.Millisecond {
					t.Errorf("slot free after %v, want %v", got, tt.wantFree)
				}
				if s := p.Stats(); s.Completed != 0 || s.PeakLive != 1 {
					t.Errorf("stats = %+v", s)
				}
			})
		})
	}
}

func TestWaitBehindDeadClientIsNoOvercommit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, c := inMemory(t, Config{Profile: quick()})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.post(ctx, chat, ask(400, ``)); err == nil {
			t.Fatal("answered too soon")
		}
		if _, err := c.stream(t, chat, ask(100, `,"stream":true,"max_tokens":1`)); err != nil {
			t.Fatal(err)
		}
		if s := p.Stats(); s.Waited != 1 || s.WaitedLive != 0 {
			t.Errorf("waited %d, live %d; want 1, 0", s.Waited, s.WaitedLive)
		}
	})
}

func TestLeavingTheQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, c := inMemory(t, Config{Profile: quick(), Slots: 2})
		go func() { _, _ = c.stream(t, chat, ask(400, `,"stream":true,"max_tokens":1`)) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		go func() { _, _ = c.post(ctx, chat, ask(100, `,"n":2,"max_tokens":1`)) }() // needs both slots, so it waits
		synctest.Wait()
		start := time.Now()
		if _, err := c.stream(t, chat, ask(100, `,"stream":true,"max_tokens":1`)); err != nil {
			t.Fatal(err)
		}
		// behind the leaver for 1 s, then 1 s of work shared with the first
		if got := time.Since(start); !near(got, 3*time.Second) {
			t.Errorf("the one behind ended after %v, want 3s", got)
		}
		if s := p.Stats(); s.Cancelled != 1 || s.Queued != 0 {
			t.Errorf("stats = %+v, want one cancelled, none queued", s)
		}
	})
}

func TestLoading(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, c := inMemory(t, Config{Profile: quick(), Load: 40 * time.Second, Speed: 20, Key: "k"})
		status := func() int {
			resp, err := c.get(t.Context(), "/health")
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			_, _ = io.Copy(io.Discard, resp.Body)
			return resp.StatusCode
		}
		if code, body := c.whole(t, chat, ask(100, ``)); code != http.StatusServiceUnavailable || !strings.Contains(string(body), "Loading model") {
			t.Errorf("while loading: %d %s", code, body)
		}
		if got := status(); got != http.StatusServiceUnavailable {
			t.Errorf("health while loading: %d", got)
		}
		pass(2 * time.Second) // in the bubble
		if got := status(); got != http.StatusOK {
			t.Errorf("health after loading: %d", got)
		}
	})
}
