package health

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"phonebank/balancer"
)

var epoch = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

// A fresh record of each state meets each kind once. Every cell is written down: a new state or kind fails until it is decided.
func TestNextDecidesEveryStateAndKind(t *testing.T) {
	t.Parallel()
	const (
		joining, ready, suspect, down, draining = balancer.Joining, balancer.Ready, balancer.Suspect, balancer.Down, balancer.Draining
	)
	tests := map[Kind]map[balancer.State]balancer.State{
		None:          {joining: joining, ready: ready, suspect: suspect, down: down, draining: draining},
		Alive:         {joining: ready, ready: ready, suspect: ready, down: suspect, draining: draining},
		ProbeBusy:     {joining: joining, ready: ready, suspect: suspect, down: down, draining: draining},
		Unreachable:   {joining: joining, ready: suspect, suspect: suspect, down: down, draining: draining},
		Refused:       {joining: down, ready: down, suspect: down, down: down, draining: draining},
		Served:        {joining: ready, ready: ready, suspect: ready, down: suspect, draining: draining},
		Offline:       {joining: down, ready: down, suspect: down, down: down, draining: draining},
		Silent:        {joining: joining, ready: suspect, suspect: suspect, down: down, draining: draining},
		Broken:        {joining: joining, ready: ready, suspect: suspect, down: down, draining: draining},
		Busy:          {joining: joining, ready: ready, suspect: suspect, down: down, draining: draining},
		Misconfigured: {joining: down, ready: down, suspect: down, down: down, draining: draining},
		Unclear:       {joining: joining, ready: ready, suspect: suspect, down: down, draining: draining},
		Tripped:       {joining: joining, ready: suspect, suspect: suspect, down: down, draining: draining},
	}
	for _, kind := range Kinds() {
		for _, state := range balancer.States() {
			want, ok := tests[kind][state]
			if !ok {
				t.Errorf("%v + %v is not decided", state, kind)
				continue
			}
			r := Record{Generation: 3, Version: 7, State: state, Since: epoch}
			got := Next(r, Evidence{Kind: kind, At: epoch.Add(time.Minute), Reason: "seen"}, Config{})
			if got.State != want {
				t.Errorf("%v + %v: got %v, want %v", state, kind, got.State, want)
			}
			if got.Generation != 3 || got.Version != 7 {
				t.Errorf("%v + %v: got generation %d, version %d; want them untouched", state, kind, got.Generation, got.Version)
			}
			if wantSince := map[bool]time.Time{true: epoch.Add(time.Minute), false: epoch}[want != state]; !got.Since.Equal(wantSince) {
				t.Errorf("%v + %v: got since %v, want %v", state, kind, got.Since, wantSince)
			}
			if got.State == ready && got.Reason != "" {
				t.Errorf("%v + %v: ready with reason %q", state, kind, got.Reason)
			}
		}
	}
}

// step is one piece of evidence some time after the one before.
type step struct {
	after time.Duration
	kind  Kind
	want  balancer.State
}

func TestNextOverTime(t *testing.T) {
	t.Parallel()
	const probe = 5 * time.Second
	tests := []struct {
		name  string
		start balancer.State
		steps []step
	}{
		{"two missed probes are down, two answered ones bring it back", balancer.Ready, []step{
			{probe, Unreachable, balancer.Suspect}, {probe, Unreachable, balancer.Down}, {probe, Unreachable, balancer.Down},
			{probe, Alive, balancer.Suspect}, {probe, Alive, balancer.Ready},
		}},
		{"one missed probe is forgiven by the next", balancer.Ready, []step{
			{probe, Unreachable, balancer.Suspect}, {probe, Alive, balancer.Ready}, {probe, Unreachable, balancer.Suspect},
		}},
		{"a joining phone gets no work on the strength of silence", balancer.Joining, []step{
			{probe, Unreachable, balancer.Joining}, {probe, Unreachable, balancer.Down},
		}},
		{"loading is not failing, however long it takes", balancer.Joining, []step{
			{probe, ProbeBusy, balancer.Joining}, {40 * time.Second, ProbeBusy, balancer.Joining}, {40 * time.Second, ProbeBusy, balancer.Joining},
			{40 * time.Second, ProbeBusy, balancer.Joining}, {probe, Alive, balancer.Ready},
		}},
		{"failures in a row make suspect, then down; answered probes do not excuse them", balancer.Ready, []step{
			{time.Second, Broken, balancer.Ready}, {probe, Alive, balancer.Ready}, {time.Second, Broken, balancer.Ready},
			{probe, Alive, balancer.Ready}, {time.Second, Broken, balancer.Suspect}, {probe, Alive, balancer.Suspect},
			{time.Second, Broken, balancer.Suspect}, {time.Second, Broken, balancer.Down},
		}},
		{"a success between resets them", balancer.Ready, []step{
			{0, Broken, balancer.Ready}, {0, Broken, balancer.Ready}, {time.Second, Served, balancer.Ready},
			{0, Broken, balancer.Ready}, {0, Broken, balancer.Ready}, {0, Broken, balancer.Suspect}, {time.Second, Served, balancer.Ready},
		}},
		{"the pause doubles with each relapse", balancer.Ready, []step{
			{0, Broken, balancer.Ready}, {0, Broken, balancer.Ready}, {0, Broken, balancer.Suspect},
			{9 * time.Second, Alive, balancer.Suspect}, {time.Second, Alive, balancer.Ready},
			{0, Broken, balancer.Suspect}, {19 * time.Second, Alive, balancer.Suspect}, {time.Second, Alive, balancer.Ready},
			{0, Broken, balancer.Down}, {39 * time.Second, Alive, balancer.Down}, {time.Second, Alive, balancer.Suspect},
			{39 * time.Second, Alive, balancer.Suspect}, {time.Second, Served, balancer.Ready},
		}},
		{"offline is down at once and back soon", balancer.Ready, []step{
			{0, Offline, balancer.Down}, {probe, Alive, balancer.Suspect}, {probe, Alive, balancer.Ready},
		}},
		{"four requests lost in one outage weigh as one", balancer.Ready, []step{
			{0, Offline, balancer.Down}, {0, Offline, balancer.Down}, {0, Broken, balancer.Down}, {0, Silent, balancer.Down},
			{probe, Alive, balancer.Suspect}, {probe, Alive, balancer.Ready},
		}},
		{"silent twice is down", balancer.Ready, []step{{0, Silent, balancer.Suspect}, {time.Second, Silent, balancer.Down}}},
		{"500s make suspect, never down: maybe it is one caller's request", balancer.Ready, []step{
			{0, Unclear, balancer.Ready}, {0, Unclear, balancer.Ready}, {0, Unclear, balancer.Suspect}, {0, Unclear, balancer.Suspect},
			{0, Unclear, balancer.Suspect}, {0, Unclear, balancer.Suspect}, {time.Minute, Alive, balancer.Ready},
		}},
		{"busy never counts", balancer.Ready, []step{
			{0, Busy, balancer.Ready}, {0, Busy, balancer.Ready}, {0, Busy, balancer.Ready}, {0, Busy, balancer.Ready}, {0, Busy, balancer.Ready},
		}},
		{"misconfigured needs a pause, refused probes keep it down", balancer.Ready, []step{
			{0, Misconfigured, balancer.Down}, {probe, Alive, balancer.Down}, {time.Minute, Refused, balancer.Down},
			{probe, Alive, balancer.Suspect}, {10 * time.Second, Alive, balancer.Ready},
		}},
		{"a probe sent before the phone went down proves nothing", balancer.Ready, []step{
			{time.Minute, Offline, balancer.Down}, {-time.Second, Alive, balancer.Down},
		}},
		{"a phone that streams is not ejected by slow health answers", balancer.Ready, []step{
			{0, Alive, balancer.Ready}, {2 * time.Second, Unreachable, balancer.Ready}, {time.Second, Alive, balancer.Ready},
			{2 * time.Second, Unreachable, balancer.Ready},
		}},
		{"a late success of a phone that is down is doubt, not proof", balancer.Ready, []step{
			{0, Offline, balancer.Down}, {time.Second, Served, balancer.Suspect}, {probe, Alive, balancer.Ready},
		}},
		{"draining stays", balancer.Draining, []step{
			{0, Offline, balancer.Draining}, {probe, Alive, balancer.Draining}, {probe, Served, balancer.Draining},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			at := epoch
			r := Record{State: tt.start, Since: at}
			for i, s := range tt.steps {
				at = at.Add(s.after)
				r = Next(r, Evidence{Kind: s.kind, At: at}, Config{})
				if r.State != s.want {
					t.Fatalf("step %d, %v: got %v, want %v (%+v)", i, s.kind, r.State, s.want, r)
				}
			}
		})
	}
}

func TestNextBoundsLeaveAlone(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name        string
		kind        Kind
		asked, want time.Duration
	}{
		{"said nothing", Busy, 0, 5 * time.Second},
		{"nearly nothing", Busy, time.Millisecond, time.Second},
		{"its word", Busy, 30 * time.Second, 30 * time.Second},
		{"a day", Busy, 24 * time.Hour, 2 * time.Minute},
		{"negative", Busy, -time.Hour, 5 * time.Second},
		{"loading", ProbeBusy, 10 * time.Second, 10 * time.Second},
	}
	for _, tt := range tests {
		for _, state := range balancer.States() {
			got := Next(Record{State: state}, Evidence{Kind: tt.kind, At: epoch, LeaveAlone: tt.asked}, Config{}).LeaveAlone
			if want := epoch.Add(tt.want); !got.Equal(want) {
				t.Errorf("%s, %v: got %v, want %v", tt.name, state, got, want)
			}
		}
	}
	earlier := Next(Record{LeaveAlone: epoch.Add(time.Minute)}, Evidence{Kind: Busy, At: epoch}, Config{})
	if want := epoch.Add(time.Minute); !earlier.LeaveAlone.Equal(want) {
		t.Errorf("a shorter wish: got %v, want the longer one kept, %v", earlier.LeaveAlone, want)
	}
}

// Case: a phone answers 503 within milliseconds, for ever. It is left alone longer each time, however well its probes do, until it has served.
func TestAlwaysBusyIsLeftAloneLonger(t *testing.T) {
	t.Parallel()
	r, at := Record{State: balancer.Ready}, epoch
	for _, want := range []time.Duration{5, 10, 20, 40, 80, 120, 120} {
		for range 3 { // requests turned away together count as one
			r = Next(r, Evidence{Kind: Busy, At: at}, Config{})
		}
		if got := r.LeaveAlone.Sub(at); got != want*time.Second {
			t.Errorf("left alone for %v, want %v", got, want*time.Second)
		}
		r = Next(r, Evidence{Kind: Alive, At: at}, Config{})
		at = r.LeaveAlone
	}
	said := Next(r, Evidence{Kind: Busy, At: at, LeaveAlone: 3 * time.Second}, Config{})
	if got := said.LeaveAlone.Sub(at); got != 3*time.Second || said.Busy != r.Busy {
		t.Errorf("a phone that says for how long: %v, %d times busy, want 3s, %d", got, said.Busy, r.Busy)
	}
	r = Next(Next(r, Evidence{Kind: Served, At: at}, Config{}), Evidence{Kind: Busy, At: at}, Config{})
	if got := r.LeaveAlone.Sub(at); got != 5*time.Second {
		t.Errorf("after it has served: %v, want 5s", got)
	}
}

// Whatever has happened, a phone whose probes are answered again is ready within a bounded time, without anybody's help.
func TestEveryHistoryHasAWayBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		cfg := Config{}.withDefaults()
		r := Record{State: rapid.SampledFrom(balancer.States()).Draw(t, "start"), Since: epoch}
		start, at := r.State, epoch
		for range rapid.IntRange(0, 60).Draw(t, "events") {
			at = at.Add(time.Duration(rapid.IntRange(-4, 20).Draw(t, "seconds")) * time.Second)
			e := Evidence{Kind: rapid.SampledFrom(Kinds()).Draw(t, "kind"), At: at}
			before := r
			r = Next(r, e, cfg)
			if before.State == balancer.Joining && r.State == balancer.Suspect {
				t.Fatalf("a phone never proved gets work after %v", e.Kind)
			}
			if start == balancer.Draining && r.State != balancer.Draining {
				t.Fatalf("%v ended draining", e.Kind)
			}
			if r.LeaveAlone.Sub(at) > cfg.MaxLeaveAlone+4*time.Second*60 {
				t.Fatalf("left alone for %v", r.LeaveAlone.Sub(at))
			}
		}
		if start == balancer.Draining {
			return
		}
		limit := at.Add(2*cfg.MaxPause + 4*time.Minute + time.Minute)
		for r.State != balancer.Ready {
			at = at.Add(5 * time.Second)
			if at.After(limit) {
				t.Fatalf("not back: %+v", r)
			}
			r = Next(r, Evidence{Kind: Alive, At: at}, cfg)
		}
	})
}

// A shared clock that was set back must not freeze the record.
func TestNextSurvivesAClockSetBack(t *testing.T) {
	t.Parallel()
	ahead := epoch.Add(24 * time.Hour)
	r := Record{State: balancer.Down, Since: ahead, LastGood: ahead, Failures: 5}
	r = Next(r, Evidence{Kind: Alive, At: epoch}, Config{})
	if r.State != balancer.Suspect || !r.LastGood.Equal(epoch) {
		t.Errorf("got %v, last good %v; want suspect, %v", r.State, r.LastGood, epoch)
	}
}

func TestReasonIsBounded(t *testing.T) {
	t.Parallel()
	long := make([]byte, 10_000)
	for i := range long {
		long[i] = "\xc3\xa9"[i%2]
	}
	got := Next(Record{State: balancer.Ready}, Evidence{Kind: Offline, At: epoch, Reason: string(long)}, Config{}).Reason
	if len(got) > 200 {
		t.Errorf("got a reason of %d bytes, want at most 200", len(got))
	}
}

func TestFasterScalesEveryTime(t *testing.T) {
	t.Parallel()
	slow, fast := Config{}.withDefaults(), Config{}.Faster(20)
	want := slow
	for _, d := range []*time.Duration{&want.Pause, &want.MaxPause, &want.LeaveAlone, &want.MinLeaveAlone, &want.MaxLeaveAlone, &want.Proof, &want.Fresh} {
		*d /= 20
	}
	if diff := cmp.Diff(want, fast); diff != "" {
		t.Errorf("faster config (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(slow, Config{}.Faster(0)); diff != "" {
		t.Errorf("a factor of 0 changes something (-want +got):\n%s", diff)
	}
}
