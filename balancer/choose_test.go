package balancer_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"phonebank/balancer"
)

var epoch = time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)

// phone describes a view in a test: speeds measured so well that the prior does not count.
type phone struct {
	id       string
	prefill  float64
	decode   float64
	slots    int
	busyFor  []time.Duration
	state    balancer.State
	alone    time.Duration
	endsIn   time.Duration
	context  int
	failures float64 // share
}

func (p phone) view() balancer.View {
	v := balancer.View{
		Replica: balancer.Replica{
			ID: balancer.ReplicaID(p.id), Model: "m", Engine: balancer.LlamaCpp, Slots: max(p.slots, 1), Context: p.context,
			Prior: balancer.Speeds{Prefill: p.prefill, Decode: p.decode},
		},
		Generation: 1,
		State:      p.state,
	}
	if p.alone > 0 {
		v.LeaveAlone = epoch.Add(p.alone)
	}
	if p.endsIn > 0 {
		v.EndsAt = epoch.Add(p.endsIn)
	}
	for _, d := range p.busyFor {
		v.Ends = append(v.Ends, epoch.Add(d))
	}
	if p.failures > 0 {
		v.Learned.Failure = balancer.Sum{Amount: 1000 * p.failures, Seconds: 1000, At: epoch}
	}
	return v
}

func fleet(phones ...phone) *balancer.Fleet {
	var views []balancer.View
	for _, p := range phones {
		views = append(views, p.view())
	}
	return balancer.NewFleet(balancer.DefaultRules(), balancer.NewSnapshot(epoch, views, nil))
}

func TestChoose(t *testing.T) {
	t.Parallel()
	const sec = time.Second
	ready, suspect, down := balancer.Ready, balancer.Suspect, balancer.Down
	long := balancer.Ticket{ID: "t", Model: "m", PromptTokens: 7000, OutputTokens: 10, Slots: 1}
	with := func(f func(*balancer.Ticket)) balancer.Ticket {
		ticket := long
		f(&ticket)
		return ticket
	}
	tests := []struct {
		name    string
		phones  []phone
		ticket  balancer.Ticket
		queued  int
		verdict balancer.Verdict
		want    []string // candidates, best first
	}{
		{"empty pool", nil, long, 0, balancer.Empty, nil},
		{"fastest idle first", []phone{{id: "slow", prefill: 30, decode: 5, state: ready}, {id: "fast", prefill: 80, decode: 9, state: ready}}, long, 0,
			balancer.Grant, []string{"fast", "slow"}},
		{"all busy", []phone{{id: "a", prefill: 80, decode: 9, state: ready, busyFor: []time.Duration{sec}}}, long, 0, balancer.Wait, nil},
		{"margin: holds for a far faster phone about to be free", []phone{
			{id: "slow", prefill: 20, decode: 4, state: ready},
			{id: "fast", prefill: 400, decode: 45, state: ready, busyFor: []time.Duration{5 * sec}}}, long, 0,
			balancer.Hold, nil},
		{"margin: a busy phone that is not much better is not waited for", []phone{
			{id: "slow", prefill: 50, decode: 8, state: ready},
			{id: "fast", prefill: 80, decode: 9, state: ready, busyFor: []time.Duration{5 * sec}}}, long, 0,
			balancer.Grant, []string{"slow"}},
		{"margin: backlog makes holding dearer", []phone{
			{id: "slow", prefill: 50, decode: 8, state: ready},
			{id: "fast", prefill: 200, decode: 20, state: ready, busyFor: []time.Duration{5 * sec}}}, long, 5,
			balancer.Grant, []string{"slow"}},
		{"hold is capped", []phone{
			{id: "slow", prefill: 20, decode: 4, state: ready},
			{id: "fast", prefill: 400, decode: 45, state: ready, busyFor: []time.Duration{5 * sec}}},
			with(func(t *balancer.Ticket) { t.HeldSince = epoch.Add(-10 * time.Minute) }), 0,
			balancer.Grant, []string{"slow"}},
		{"deadline rule: only the busy phone meets it", []phone{
			{id: "slow", prefill: 50, decode: 8, state: ready},
			{id: "fast", prefill: 80, decode: 9, state: ready, busyFor: []time.Duration{5 * sec}}},
			with(func(t *balancer.Ticket) { t.Deadline = epoch.Add(100 * sec) }), 0,
			balancer.Hold, nil},
		{"a phone that has failed the ticket comes last, and only if nothing else is feasible", []phone{
			{id: "fast", prefill: 80, decode: 9, state: ready}, {id: "slow", prefill: 30, decode: 5, state: ready}},
			with(func(t *balancer.Ticket) { t.Tried = []balancer.ReplicaID{"fast"} }), 0, balancer.Grant, []string{"slow"}},
		{"the same phone again when it is the only one", []phone{{id: "fast", prefill: 80, decode: 9, state: ready}},
			with(func(t *balancer.Ticket) { t.Tried = []balancer.ReplicaID{"fast"} }), 0, balancer.Grant, []string{"fast"}},
		{"not the same phone again while it is suspect", []phone{{id: "fast", prefill: 80, decode: 9, state: suspect}},
			with(func(t *balancer.Ticket) { t.Tried = []balancer.ReplicaID{"fast"} }), 0, balancer.Never, nil},
		{"suspect only when no ready one is feasible", []phone{
			{id: "a", prefill: 80, decode: 9, state: suspect}, {id: "b", prefill: 30, decode: 5, state: ready}}, long, 0, balancer.Grant, []string{"b"}},
		{"suspect rather than nothing", []phone{{id: "a", prefill: 80, decode: 9, state: suspect}, {id: "b", prefill: 30, decode: 5, state: down}}, long, 0,
			balancer.Grant, []string{"a"}},
		{"left alone", []phone{{id: "a", prefill: 80, decode: 9, state: ready, alone: sec}}, long, 0, balancer.Empty, nil},
		{"deployment ends first", []phone{{id: "a", prefill: 80, decode: 9, state: ready, endsIn: time.Minute}}, long, 0, balancer.Never, nil},
		{"short work still fits before the end", []phone{{id: "a", prefill: 80, decode: 9, state: ready, endsIn: time.Minute}},
			with(func(t *balancer.Ticket) { t.PromptTokens = 200 }), 0, balancer.Grant, []string{"a"}},
		{"context too small", []phone{{id: "a", prefill: 80, decode: 9, state: ready, context: 2048}}, long, 0, balancer.Never, nil},
		{"too few slots", []phone{{id: "a", prefill: 80, decode: 9, state: ready}}, with(func(t *balancer.Ticket) { t.Slots = 2 }), 0, balancer.Never, nil},
		{"a failing phone looks slower", []phone{
			{id: "flaky", prefill: 80, decode: 9, state: ready, failures: 0.7}, {id: "steady", prefill: 60, decode: 9, state: ready}}, long, 0,
			balancer.Grant, []string{"steady", "flaky"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := fleet(tt.phones...)
			f.SetQueued("m", tt.queued)
			rules := balancer.DefaultRules()
			got := rules.Choose(f, &tt.ticket, epoch)
			if got.Verdict != tt.verdict {
				t.Errorf("verdict = %v, want %v", got.Verdict, tt.verdict)
			}
			var ids []string
			for _, c := range got.Candidates {
				ids = append(ids, string(c.Replica))
			}
			if diff := cmp.Diff(tt.want, ids); diff != "" {
				t.Errorf("candidates (-want +got):\n%s", diff)
			}
		})
	}
}

// Equal phones must not all be tried in the same order, and every gateway must try them alike.
func TestChooseSpreadsTies(t *testing.T) {
	t.Parallel()
	var phones []phone
	for i := range 20 {
		phones = append(phones, phone{id: fmt.Sprintf("p%02d", i), prefill: 50, decode: 8, state: balancer.Ready})
	}
	rules := balancer.DefaultRules()
	first := make(map[balancer.ReplicaID]int)
	for i := range 200 {
		ticket := balancer.Ticket{ID: fmt.Sprintf("t%d", i), Model: "m", PromptTokens: 1000, OutputTokens: 10, Slots: 1}
		a := rules.Choose(fleet(phones...), &ticket, epoch)
		b := rules.Choose(fleet(phones...), &ticket, epoch)
		if diff := cmp.Diff(a, b); diff != "" {
			t.Fatalf("two gateways disagree:\n%s", diff)
		}
		if len(a.Candidates) != balancer.MaxCandidates {
			t.Fatalf("%d candidates, want %d", len(a.Candidates), balancer.MaxCandidates)
		}
		first[a.Candidates[0].Replica]++
	}
	for id, n := range first {
		if n > 40 {
			t.Errorf("%s came first %d times of 200: the hash does not spread", id, n)
		}
	}
	if len(first) < 15 {
		t.Errorf("only %d of 20 equal phones ever came first", len(first))
	}
}

func TestRatesLearn(t *testing.T) {
	t.Parallel()
	rules := balancer.DefaultRules()
	v := phone{id: "a", prefill: 60, decode: 9}.view()
	base := balancer.Speeds{Prefill: 20, Decode: 4}
	if got := rules.Rates(&v, base, epoch).Prefill[2]; got != 60 {
		t.Errorf("without evidence: prefill %v, want the prior 60", got)
	}
	v.Learned.Prefill[2] = balancer.Sum{Amount: 7000, Seconds: 200, At: epoch} // 35 tokens a second
	if got := rules.Rates(&v, base, epoch).Prefill[2]; got < 35 || got > 36 {
		t.Errorf("after one long prefill: %v, want about 35", got)
	}
	if got := rules.Rates(&v, base, epoch).Prefill[0]; got < 35 || got > 37 {
		t.Errorf("unmeasured bucket: %v, want the measured neighbour's 35", got)
	}
	later := epoch.Add(3 * time.Hour)
	if got := rules.Rates(&v, base, later).Prefill[2]; got < 59 {
		t.Errorf("three hours later: %v, want back at the prior 60", got)
	}
	v.Prior = balancer.Speeds{}
	if got := rules.Rates(&v, base, later).Decode[0]; got != 4 {
		t.Errorf("no prior: decode %v, want the pool's 4", got)
	}
}

func TestPredictWaitsForTheRightSlot(t *testing.T) {
	t.Parallel()
	rules := balancer.DefaultRules()
	tests := []struct {
		name  string
		slots int
		need  int
		ends  []time.Duration
		want  time.Duration
	}{
		{"idle", 1, 1, nil, 0},
		{"one of two free", 2, 1, []time.Duration{time.Minute}, 0},
		{"the earliest end", 2, 1, []time.Duration{time.Minute, 20 * time.Second}, 20 * time.Second},
		{"two slots wait for the later end", 2, 2, []time.Duration{time.Minute, 20 * time.Second}, time.Minute},
		{"about to end still takes a moment", 1, 1, []time.Duration{time.Millisecond}, time.Second},
		{"overdue by d waits d", 1, 1, []time.Duration{-30 * time.Second}, 30 * time.Second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			v := phone{id: "a", prefill: 60, decode: 9, slots: tt.slots}.view()
			rates := rules.Rates(&v, balancer.Speeds{}, epoch)
			var ends []time.Time
			for _, d := range tt.ends {
				ends = append(ends, epoch.Add(d))
			}
			ticket := balancer.Ticket{PromptTokens: 100, OutputTokens: 10, Slots: tt.need}
			if got := rules.Predict(&v, &rates, ends, &ticket, epoch).Wait; got != tt.want {
				t.Errorf("wait = %v, want %v", got, tt.want)
			}
		})
	}
}

func BenchmarkChoose(b *testing.B) {
	for _, n := range []int{100, 1000, 10000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var phones []phone
			for i := range n {
				phones = append(phones, phone{id: fmt.Sprintf("p%05d", i), prefill: 20 + float64(i%80), decode: 8, state: balancer.Ready, busyFor: make([]time.Duration, i%2)})
			}
			f := fleet(phones...)
			rules := balancer.DefaultRules()
			ticket := balancer.Ticket{ID: "t", Model: "m", PromptTokens: 1000, OutputTokens: 20, Slots: 1}
			b.ReportAllocs()
			for b.Loop() {
				rules.Choose(f, &ticket, epoch)
			}
		})
	}
}
