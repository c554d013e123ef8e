package balancer_test

import (
	"testing"
	"time"

	"phonebank/balancer"
)

// longJob takes about two minutes on a phone of 60 tokens a second.
func longJob() *balancer.Ticket {
	return &balancer.Ticket{ID: "t", Model: "m", PromptTokens: 7000, OutputTokens: 10, Slots: 1}
}

func verdict(f *balancer.Fleet) balancer.Verdict {
	rules := balancer.DefaultRules()
	return rules.Choose(f, longJob(), epoch).Verdict
}

func TestFleetFollowsGrantsAndEnds(t *testing.T) {
	t.Parallel()
	one := phone{id: "a", prefill: 60, decode: 9, slots: 2, state: balancer.Ready}
	v := one.view()
	f := balancer.NewFleet(balancer.DefaultRules(), balancer.NewSnapshot(epoch, []balancer.View{v}, nil))
	if busy := f.Occupy("a", 1, epoch.Add(time.Minute)); busy != 1 || !f.HasFree("m", epoch) {
		t.Errorf("one grant: %d busy, free %v, want 1, true", busy, f.HasFree("m", epoch))
	}
	if busy := f.Occupy("a", 1, epoch.Add(20*time.Second)); busy != 2 || f.HasFree("m", epoch) || verdict(f) != balancer.Wait {
		t.Errorf("two grants: %d busy, free %v, verdict %v, want 2, false, Wait", busy, f.HasFree("m", epoch), verdict(f))
	}
	if got := f.PredictWait(longJob(), 0, epoch); got != 20*time.Second {
		t.Errorf("the next waits %v, want 20s", got)
	}
	f.Release("a", 1) // the one predicted to end first
	if got := verdict(f); got != balancer.Grant {
		t.Errorf("after an end: verdict %v, want Grant", got)
	}
	f.Occupy("a", 1, epoch.Add(90*time.Second))
	if got := f.PredictWait(longJob(), 0, epoch); got != time.Minute {
		t.Errorf("the next waits %v, want 1m0s", got)
	}
	f.Release("a", 5)
	if !f.HasFree("m", epoch) || f.Occupy("a", 2, epoch) != 2 || f.HasFree("m", epoch) {
		t.Error("a ticket of two slots must take both")
	}
	if f.Occupy("nobody", 1, epoch) != 0 {
		t.Error("an unknown replica is at work")
	}
	f.Release("nobody", 1)
	if f.Snapshot().Views[0].Depth() != 0 {
		t.Error("the snapshot was changed")
	}
}

func TestHasFreeCountsUsablePhonesOnly(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		phone phone
		want  bool
	}{
		{"ready", phone{id: "a", state: balancer.Ready}, true},
		{"suspect", phone{id: "a", state: balancer.Suspect}, true},
		{"down", phone{id: "a", state: balancer.Down}, false},
		{"joining", phone{id: "a", state: balancer.Joining}, false},
		{"draining", phone{id: "a", state: balancer.Draining}, false},
		{"left alone", phone{id: "a", state: balancer.Ready, alone: time.Second}, false},
		{"busy", phone{id: "a", state: balancer.Ready, busyFor: []time.Duration{time.Second}}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := fleet(tt.phone).HasFree("m", epoch); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
			if fleet(tt.phone).HasFree("other", epoch) {
				t.Error("another model has a free phone")
			}
		})
	}
}

func TestCorrect(t *testing.T) {
	t.Parallel()
	busy := []time.Duration{time.Minute}
	tests := []struct {
		name   string
		phones []phone
		free   []balancer.ReplicaID
		bound  int
		want   balancer.Verdict
	}{
		{"listed: it has a slot after all", []phone{{id: "a", state: balancer.Ready, busyFor: busy}}, []balancer.ReplicaID{"a"}, 16, balancer.Grant},
		{"not on a whole list: it has none", []phone{{id: "a", state: balancer.Ready}}, nil, 16, balancer.Wait},
		{"not on a list that was cut: nothing is known", []phone{{id: "a", state: balancer.Ready}, {id: "b", state: balancer.Ready, busyFor: busy}},
			[]balancer.ReplicaID{"b"}, 1, balancer.Grant},
		{"unknown", []phone{{id: "a", state: balancer.Ready}}, []balancer.ReplicaID{"new"}, 16, balancer.Wait},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := fleet(tt.phones...)
			f.Correct("m", tt.free, tt.bound, epoch)
			if got := verdict(f); got != tt.want {
				t.Errorf("verdict %v, want %v", got, tt.want)
			}
		})
	}
}

func TestPredictWait(t *testing.T) {
	t.Parallel()
	service := func(prefill float64) time.Duration {
		return time.Duration((0.4 + 7000/prefill + 10/9.0) * float64(time.Second))
	}
	f := fleet(
		phone{id: "a", prefill: 60, decode: 9, state: balancer.Ready, busyFor: []time.Duration{30 * time.Second}},
		phone{id: "b", prefill: 60, decode: 9, state: balancer.Ready, busyFor: []time.Duration{50 * time.Second}},
		phone{id: "c", prefill: 60, decode: 9, state: balancer.Down},
	)
	for position, want := range []time.Duration{30 * time.Second, 30*time.Second + service(60)/2, 30*time.Second + service(60)} {
		if got := f.PredictWait(longJob(), position, epoch); (got - want).Abs() > time.Millisecond {
			t.Errorf("at place %d: %v, want %v", position, got, want)
		}
	}
	if got := fleet(phone{id: "c", state: balancer.Down}).PredictWait(longJob(), 3, epoch); got != 0 {
		t.Errorf("nobody serves: %v, want 0", got)
	}
}

// A phone without a prior is taken for one of the slower ones of its pool.
func TestUnknownPhoneIsTakenForASlowOne(t *testing.T) {
	t.Parallel()
	f := fleet(
		phone{id: "a", prefill: 100, decode: 12, state: balancer.Ready}, phone{id: "b", prefill: 80, decode: 9, state: balancer.Ready},
		phone{id: "c", prefill: 40, decode: 6, state: balancer.Ready}, phone{id: "d", prefill: 20, decode: 3, state: balancer.Ready},
		phone{id: "new", state: balancer.Ready},
	)
	if r, ok := f.Rates("new"); !ok || r.Prefill[0] != 40 || r.Decode[0] != 6 {
		t.Errorf("got %+v, want the lower quartile 40 and 6", r)
	}
	alone := fleet(phone{id: "new", state: balancer.Ready})
	if r, _ := alone.Rates("new"); r.Prefill[0] != 20 || r.Decode[0] != 4 {
		t.Errorf("without a neighbour: got %+v, want the fallback 20 and 4", r)
	}
	if alone.Rank("new") <= f.Rank("a") || alone.Rank("nobody") != 0 {
		t.Errorf("ranks: new %v, a %v, nobody %v", alone.Rank("new"), f.Rank("a"), alone.Rank("nobody"))
	}
	if _, ok := f.Rates("nobody"); ok {
		t.Error("rates of an unknown replica")
	}
}

func TestFleetCountsSlotsAndQueue(t *testing.T) {
	t.Parallel()
	views := []balancer.View{
		phone{id: "a", slots: 2, state: balancer.Ready}.view(), phone{id: "b", state: balancer.Suspect}.view(), phone{id: "c", slots: 4, state: balancer.Down}.view(),
	}
	f := balancer.NewFleet(balancer.DefaultRules(), balancer.NewSnapshot(epoch, views, map[string]int{"m": 7}))
	if f.Slots("m") != 3 || f.Queued("m") != 7 {
		t.Errorf("%d slots, %d queued, want 3, 7", f.Slots("m"), f.Queued("m"))
	}
	f.SetQueued("m", 2)
	if f.Queued("m") != 2 || f.Queued("other") != 0 {
		t.Errorf("%d and %d queued, want 2, 0", f.Queued("m"), f.Queued("other"))
	}
}

// A fleet that lives faster is scheduled alike: whatever is a time or a speed is scaled, whatever is a share is not.
func TestFaster(t *testing.T) {
	t.Parallel()
	rules := balancer.DefaultRules()
	for _, factor := range []float64{0, -1, 1} {
		if rules.Faster(factor) != rules {
			t.Errorf("factor %v changes the rules", factor)
		}
	}
	fast := rules.Faster(20)
	if fast.Margin != rules.Margin || fast.HoldCap != rules.HoldCap || fast.NearTie != rules.NearTie || fast.EndDoubt != rules.EndDoubt {
		t.Errorf("shares were scaled: %+v", fast)
	}
	slow, quick := phone{id: "a", prefill: 60, decode: 9, failures: 0.3}.view(), phone{id: "a", prefill: 1200, decode: 180, failures: 0.3}.view()
	ends := func(d time.Duration) []time.Time { return []time.Time{epoch.Add(d)} }
	slowRates, quickRates := rules.Rates(&slow, balancer.Speeds{}, epoch), fast.Rates(&quick, balancer.Speeds{}, epoch)
	a := rules.Predict(&slow, &slowRates, ends(40*time.Second), longJob(), epoch)
	b := fast.Predict(&quick, &quickRates, ends(2*time.Second), longJob(), epoch)
	if (a.Price-20*b.Price).Abs() > time.Millisecond || (a.Service-20*b.Service).Abs() > time.Millisecond || a.Wait != 20*b.Wait {
		t.Errorf("got %+v, want a twentieth of %+v", b, a)
	}
}

func TestComesFree(t *testing.T) {
	t.Parallel()
	busy := phone{id: "a", prefill: 100, decode: 10, state: balancer.Ready, busyFor: []time.Duration{20 * time.Second}}
	tests := []struct {
		name   string
		phones []phone
		want   time.Duration
	}{
		{"the phone that is free first", []phone{busy}, 20 * time.Second},
		{"the phone that may be asked first", []phone{
			{id: "a", state: balancer.Ready, alone: 30 * time.Second}, {id: "b", state: balancer.Suspect, alone: 7 * time.Second},
			{id: "c", state: balancer.Down, alone: time.Second}}, 7 * time.Second},
		{"nobody knows", []phone{{id: "a", state: balancer.Down}}, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := fleet(tt.phones...).ComesFree(longJob(), epoch); got != tt.want {
				t.Errorf("comes free in %v, want %v", got, tt.want)
			}
		})
	}
}
