package account

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"phonebank/balancer"
)

func view(id string, s balancer.State, depth int) balancer.View {
	return balancer.View{
		Replica: balancer.Replica{ID: balancer.ReplicaID(id), Model: "qwen", Slots: 4},
		State:   s,
		Ends:    make([]time.Time, depth),
	}
}

func rates(id balancer.ReplicaID) (balancer.Rates, bool) {
	var r balancer.Rates
	r.Prefill[balancer.PrefillBucket(1000)], r.Decode[0] = 60, 9
	return r, id != "phone-2"
}

func TestFleetOf(t *testing.T) {
	t.Parallel()
	s := balancer.NewSnapshot(time.Now(), []balancer.View{view("phone-1", balancer.Ready, 1), view("phone-2", balancer.Down, 0)},
		map[string]int{"llama": 3})
	want := Fleet{
		Replicas: []Replica{
			{ID: "phone-1", Model: "qwen", State: balancer.Ready, Depth: 1, Slots: 4, PrefillTPS: 60, DecodeTPS: 9},
			{ID: "phone-2", Model: "qwen", State: balancer.Down, Slots: 4},
		},
		Queued: map[string]int{"llama": 3, "qwen": 0},
	}
	if diff := cmp.Diff(want, FleetOf(s, rates)); diff != "" {
		t.Errorf("fleet (-want +got):\n%s", diff)
	}
	if s.Queued["qwen"]++; len(s.Queued) != 2 {
		t.Errorf("the snapshot's queues were changed: %v", s.Queued)
	}
}

func TestScrapeShowsTheFleet(t *testing.T) {
	t.Parallel()
	fleet := Fleet{
		Replicas: []Replica{
			{ID: "phone-1", Model: "qwen", State: balancer.Suspect, Depth: 2, Slots: 4, PrefillTPS: 60, DecodeTPS: 9},
			{ID: "phone-2", Model: "qwen", State: balancer.Joining, Slots: 1},
		},
		Queued: map[string]int{"qwen": 5}, Age: 1500 * time.Millisecond, Waiting: 3, Running: 2, RedisUp: true,
	}
	d := newDesk(t, func() Fleet { return fleet })
	scrape := d.scrape(t)
	wantSeries(t, scrape,
		`phonebank_replica_state{model="qwen",replica="phone-1",state="suspect"} 1`,
		`phonebank_replica_state{model="qwen",replica="phone-1",state="ready"} 0`,
		`phonebank_replica_state{model="qwen",replica="phone-2",state="joining"} 1`,
		`phonebank_replica_depth{model="qwen",replica="phone-1"} 2`,
		`phonebank_replica_slots{model="qwen",replica="phone-1"} 4`,
		`phonebank_replica_tokens_per_second{model="qwen",phase="prefill",replica="phone-1"} 60`,
		`phonebank_replica_tokens_per_second{model="qwen",phase="decode",replica="phone-1"} 9`,
		`phonebank_queue_length{model="qwen"} 5`,
		`phonebank_gateway_requests{phase="waiting"} 3`,
		`phonebank_gateway_requests{phase="running"} 2`,
		`phonebank_redis_up 1`,
		`phonebank_fleet_age_seconds 1.5`,
	)
	if strings.Contains(scrape, `phase="decode",replica="phone-2"`) {
		t.Error("a speed nobody knows is shown")
	}

	fleet = Fleet{Replicas: fleet.Replicas[1:]}
	scrape = d.scrape(t)
	if strings.Contains(scrape, "phone-1") {
		t.Error("a replica that left is still shown")
	}
	wantSeries(t, scrape, `phonebank_redis_up 0`)
}

// A thousand phones are shown whole, also when they come back under new names all day.
func TestScrapeOfAThousandChangingPhones(t *testing.T) {
	t.Parallel()
	generation := 0
	d := newDesk(t, func() Fleet {
		f := Fleet{}
		for i := range 1000 {
			f.Replicas = append(f.Replicas, Replica{ID: balancer.ReplicaID(fmt.Sprintf("p-%d-%d", generation, i)), Model: "qwen", Slots: 1})
		}
		return f
	})
	for generation = range 2 {
		scrape := d.scrape(t)
		if got := strings.Count(scrape, "\nphonebank_replica_state{"); got != 5000 {
			t.Errorf("generation %d: got %d series of states, want 5,000", generation, got)
		}
		if strings.Contains(scrape, "overflow") {
			t.Error("the limit of series was reached")
		}
	}
}
