package health

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"phonebank/balancer"
)

const healthy = `{"status":"ok"}`

// rig is a prober of one phone in a bubble.
type rig struct {
	store    *memoryStore
	phone    *phone
	reporter *Reporter
	logs     *logLines
	depth    atomic.Int32

	mu    sync.Mutex
	facts []Facts // guarded by mu
}

// run starts a prober of a phone that answers so, and gives the test the bubble's clock.
func run(t *testing.T, answer answerer, test func(t *testing.T, r *rig)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{store: newMemoryStore(id), phone: &phone{answer: answer}, logs: &logLines{}}
		log := slog.New(slog.NewTextHandler(r.logs, nil))
		r.reporter = NewReporter(r.store, Config{}, nil, log)
		header := http.Header{"Authorization": {"Bearer secret"}}
		targets := func(balancer.ReplicaID) (Target, bool) {
			return Target{
				URL: "https://phone.example/v1/", Header: header, Engine: balancer.LlamaCpp, Model: "phone-model",
				Client: &http.Client{Transport: r.phone},
			}, true
		}
		p := NewProber(r.reporter, targets, ProberConfig{
			Depth: func(balancer.ReplicaID) int { return int(r.depth.Load()) },
			Facts: func(_ balancer.ReplicaID, f Facts) {
				r.mu.Lock()
				defer r.mu.Unlock()
				r.facts = append(r.facts, f)
			},
		}, log)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- p.Run(ctx) }()
		test(t, r)
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("run: got %v, want nil", err)
		}
	})
}

func (r *rig) told() []Facts {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.facts)
}

func (r *rig) wants(t *testing.T, want balancer.State) {
	t.Helper()
	synctest.Wait()
	if got := r.store.get(id); got.State != want {
		t.Errorf("got %v (%s), want %v", got.State, got.Reason, want)
	}
}

func TestProberLearnsWhatAPhoneIs(t *testing.T) {
	run(t, recorded(t, map[string]string{"/health": "health-ready.http", "/props": "props.http"}), func(t *testing.T, r *rig) {
		r.wants(t, balancer.Ready)
		want := []Facts{{Models: []string{"phone-model"}, Build: "b10587-3f545becc", Slots: 1, Context: 4096}}
		if diff := cmp.Diff(want, r.told()); diff != "" {
			t.Errorf("facts (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"/health", "/props"}, r.phone.paths()); diff != "" {
			t.Errorf("asked (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"", "Bearer secret"}, r.phone.keys); diff != "" {
			t.Errorf("keys sent (-want +got):\n%s", diff)
		}
	})
}

// A phone that loads for two minutes gets no work meanwhile, and works afterwards without anybody's help.
func TestProberWaitsForLoading(t *testing.T) {
	run(t, recorded(t, map[string]string{"/health": "health-loading.http"}), func(t *testing.T, r *rig) {
		for range 24 {
			time.Sleep(5 * time.Second)
			r.wants(t, balancer.Joining)
		}
		r.phone.says(status(200, healthy))
		time.Sleep(6 * time.Second)
		r.wants(t, balancer.Ready)
	})
}

func TestProberKeepsWorkFromAPhoneThatReloads(t *testing.T) {
	run(t, status(200, healthy), func(t *testing.T, r *rig) {
		r.wants(t, balancer.Ready)
		r.phone.says(recorded(t, map[string]string{"/health": "health-loading.http"}))
		time.Sleep(6 * time.Second)
		synctest.Wait()
		for range 60 {
			time.Sleep(time.Second)
			synctest.Wait()
			if rec := r.store.get(id); rec.State != balancer.Ready || !rec.LeaveAlone.After(time.Now()) {
				t.Fatalf("got %v, left alone until %v; want ready and left alone at %v", rec.State, rec.LeaveAlone, time.Now())
			}
		}
	})
}

func TestProberFindsARefusedKey(t *testing.T) {
	run(t, recorded(t, map[string]string{"/health": "health-ready.http", "/props": "props-nokey.http"}), func(t *testing.T, r *rig) {
		r.wants(t, balancer.Down)
		if got := r.store.get(id).Reason; !strings.Contains(got, "refuses its key") || strings.Contains(got, "secret") {
			t.Errorf("reason: got %q", got)
		}
		if r.logs.count("state=down") != 1 {
			t.Error("want one warning")
		}
		time.Sleep(time.Minute)
		r.wants(t, balancer.Down)
		if r.logs.count("state=down") != 1 {
			t.Error("want no second warning")
		}
		r.phone.says(status(200, healthy))
		time.Sleep(30 * time.Second)
		r.wants(t, balancer.Ready)
	})
}

func TestProberWarnsOnceOfAnotherModel(t *testing.T) {
	run(t, status(200, `{"model_alias":"other","total_slots":1}`), func(t *testing.T, r *rig) {
		time.Sleep(10 * time.Minute)
		r.wants(t, balancer.Ready)
		if got := r.logs.count("another model"); got != 1 || len(r.told()) < 2 {
			t.Errorf("got %d warnings for %d answers, want 1 for several", got, len(r.told()))
		}
	})
}

func TestProberFollowsAPhoneDownAndUp(t *testing.T) {
	run(t, status(200, healthy), func(t *testing.T, r *rig) {
		r.wants(t, balancer.Ready)
		r.phone.says(hang)
		time.Sleep(10 * time.Second)
		r.wants(t, balancer.Suspect)
		time.Sleep(5 * time.Second)
		r.wants(t, balancer.Down)
		r.phone.says(status(200, healthy))
		time.Sleep(6 * time.Second)
		r.wants(t, balancer.Suspect)
		time.Sleep(5 * time.Second)
		r.wants(t, balancer.Ready)
	})
}

// Live traffic makes probes needless: they would only take a slow phone's time.
func TestProberSkipsPhonesThatServe(t *testing.T) {
	run(t, status(200, healthy), func(t *testing.T, r *rig) {
		r.wants(t, balancer.Ready)
		before := len(r.phone.paths())
		for range 60 {
			time.Sleep(time.Second)
			if err := r.reporter.Report(t.Context(), id, 1, Evidence{Kind: Alive}); err != nil {
				t.Fatal(err)
			}
		}
		if got := len(r.phone.paths()) - before; got > 1 {
			t.Errorf("got %d questions in a minute of work, want none", got)
		}
	})
}

// /health hangs while the phone generates; events come slower than probes.
func TestProberDoesNotEjectAPhoneAtWork(t *testing.T) {
	run(t, status(200, healthy), func(t *testing.T, r *rig) {
		r.wants(t, balancer.Ready)
		r.depth.Store(1)
		r.phone.says(hang)
		for range 20 {
			time.Sleep(15 * time.Second)
			r.wants(t, balancer.Ready)
			if err := r.reporter.Report(t.Context(), id, 1, Evidence{Kind: Alive}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute) // now the stream is silent too
		r.wants(t, balancer.Down)
	})
}

func TestProberAsksOnceAnInterval(t *testing.T) {
	run(t, status(200, healthy), func(t *testing.T, r *rig) {
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		paths := r.phone.paths()
		probes := 0
		for _, p := range paths {
			if p == "/health" {
				probes++
			} else if p != "/props" {
				t.Errorf("asked for %s", p)
			}
		}
		if probes < 50 || probes > 61 {
			t.Errorf("got %d probes in 5 min, want about 60", probes)
		}
		if details := len(paths) - probes; details > probes/2 {
			t.Errorf("got %d questions for detail in %d probes, want few", details, probes)
		}
	})
}

func TestProberOutlastsALostStore(t *testing.T) {
	run(t, status(200, healthy), func(t *testing.T, r *rig) {
		r.wants(t, balancer.Ready)
		r.store.mu.Lock()
		r.store.down = true
		r.store.mu.Unlock()
		time.Sleep(time.Minute)
		r.store.mu.Lock()
		r.store.down = false
		r.store.mu.Unlock()
		r.phone.says(status(502, "<html>"))
		time.Sleep(30 * time.Second)
		r.wants(t, balancer.Down)
	})
}
