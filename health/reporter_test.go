package health

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"phonebank/balancer"
)

const id = balancer.ReplicaID("phone-01")

func readyStore() *memoryStore {
	s := newMemoryStore(id)
	s.set(id, func(r *Record) { r.State = balancer.Ready })
	return s
}

func TestReportSparesTheStoreGoodNews(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := readyStore()
		p := NewReporter(s, Config{}, nil, quiet())
		const seconds = 10
		for range seconds * 100 {
			if err := p.Report(t.Context(), id, 1, Evidence{Kind: Served}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Millisecond)
		}
		if s.writes > seconds/2+1 || s.reads > seconds/2+1 {
			t.Errorf("1,000 successes in 10 s: got %d writes and %d reads, want at most 6", s.writes, s.reads)
		}
		if age := time.Since(s.get(id).LastGood); age > 2*time.Second {
			t.Errorf("last good is %v old, want at most 2 s", age)
		}
	})
}

func TestReportWritesWhatMatters(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := readyStore()
		p := NewReporter(s, Config{}, nil, quiet())
		report := func(k Kind) {
			t.Helper()
			if err := p.Report(t.Context(), id, 1, Evidence{Kind: k}); err != nil {
				t.Fatal(err)
			}
		}
		report(Served)
		report(Broken)
		report(Served)
		if got := s.get(id).Failures; got != 0 {
			t.Errorf("a success right after a failure: got %d failures, want 0", got)
		}
		report(Offline)
		if got := s.get(id).State; got != balancer.Down {
			t.Errorf("offline: got %v, want down", got)
		}
		writes := s.writes
		report(Offline)
		report(None)
		if s.writes != writes {
			t.Errorf("repeated and empty evidence: got %d writes, want none", s.writes-writes)
		}
	})
}

func TestReportDropsOtherGenerations(t *testing.T) {
	t.Parallel()
	s := readyStore()
	p := NewReporter(s, Config{}, nil, quiet())
	if err := p.Report(t.Context(), id, 0, Evidence{Kind: Offline}); err != nil {
		t.Fatal(err)
	}
	if err := p.Report(t.Context(), "gone", 1, Evidence{Kind: Offline}); err != nil {
		t.Fatal(err)
	}
	if got := s.get(id).State; got != balancer.Ready {
		t.Errorf("got %v, want ready: the evidence was about another generation", got)
	}
}

func TestReportRetriesWhenContended(t *testing.T) {
	t.Parallel()
	s := readyStore()
	s.meddle = func(r *Record) { r.Failures = 2 }
	p := NewReporter(s, Config{}, nil, quiet())
	if err := p.Report(t.Context(), id, 1, Evidence{Kind: Broken}); err != nil {
		t.Fatal(err)
	}
	if r := s.get(id); r.Failures != 3 || r.State != balancer.Suspect {
		t.Errorf("got %d failures, %v; want both gateways' evidence: 3, suspect", r.Failures, r.State)
	}
}

func TestReportLosesNothingUnderRace(t *testing.T) {
	t.Parallel()
	s := readyStore()
	cfg := Config{FailuresSuspect: 1000, FailuresDown: 1000}
	var lost int
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			p := NewReporter(s, cfg, nil, quiet())
			for range 20 {
				err := p.Report(context.Background(), id, 1, Evidence{Kind: Broken})
				if errors.Is(err, ErrContended) {
					mu.Lock()
					lost++
					mu.Unlock()
				} else if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if got := s.get(id).Failures + lost; got != 160 {
		t.Errorf("got %d failures counted or reported as lost, want 160", got)
	}
}

func TestReportOutlivesItsRequestAndSaysWhenItFails(t *testing.T) {
	t.Parallel()
	s := readyStore()
	p := NewReporter(s, Config{}, nil, quiet())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.Report(ctx, id, 1, Evidence{Kind: Offline}); err != nil || s.get(id).State != balancer.Down {
		t.Errorf("after the request ended: got %v, %v; want down", err, s.get(id).State)
	}
	s.down = true
	if err := p.Report(t.Context(), id, 1, Evidence{Kind: Broken}); !errors.Is(err, balancer.ErrUnavailable) {
		t.Errorf("without the shared state: got %v, want ErrUnavailable", err)
	}
}
