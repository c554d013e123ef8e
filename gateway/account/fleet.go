package account

import (
	"context"
	"fmt"
	"maps"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"phonebank/balancer"
)

// Fleet is what the gauges show at a scrape. A replica that is not in it vanishes from the metrics.
type Fleet struct {
	Replicas []Replica
	Queued   map[string]int // waiting requests by model, over all gateways
	Age      time.Duration  // since the shared state was read

	Waiting, Running int // requests of this gateway
	RedisUp          bool
}

// Replica is one phone's part of Fleet.
type Replica struct {
	ID         balancer.ReplicaID
	Model      string
	State      balancer.State
	Depth      int // occupied slots
	Slots      int
	PrefillTPS float64 // of a prompt of 1,000 tokens; 0 when unknown
	DecodeTPS  float64 // with one slot busy; 0 when unknown
}

// Rates tells the speeds the choice reckons with.
type Rates func(balancer.ReplicaID) (balancer.Rates, bool)

// FleetOf reads replicas and queues out of a snapshot; the rest of the Fleet is left to the caller.
func FleetOf(s *balancer.Snapshot, rates Rates) Fleet {
	const prompt = 1000
	f := Fleet{Replicas: make([]Replica, 0, len(s.Views)), Queued: make(map[string]int)}
	maps.Copy(f.Queued, s.Queued)
	for i := range s.Views {
		v := &s.Views[i]
		f.Queued[v.Model] += 0 // an empty queue is shown as 0, not left out
		r := Replica{ID: v.ID, Model: v.Model, State: v.State, Depth: v.Depth(), Slots: v.Slots}
		if speeds, ok := rates(v.ID); ok {
			r.PrefillTPS = speeds.Prefill[balancer.PrefillBucket(prompt)]
			r.DecodeTPS = speeds.Decode[balancer.DecodeBucket(1)]
		}
		f.Replicas = append(f.Replicas, r)
	}
	return f
}

// gauges are what a scrape observes.
type gauges struct {
	state, depth, slots, queue, own, redisUp metric.Int64ObservableGauge
	speed, age                               metric.Float64ObservableGauge
}

// watch registers gauges that ask fleet at every scrape.
func watch(m metric.Meter, fleet func() Fleet) error {
	var (
		g   gauges
		err error
	)
	ints := []struct {
		to         *metric.Int64ObservableGauge
		name, text string
	}{
		{&g.state, metricState, "1 for the state a phone is in, 0 for the others."},
		{&g.depth, metricDepth, "Occupied slots of a phone: live leases and slots that cool after a cancel."},
		{&g.slots, metricSlots, "Slots of a phone."},
		{&g.queue, metricQueue, "Requests that wait for a phone, over all gateways."},
		{&g.own, metricOwn, "Unfinished requests of this gateway."},
		{&g.redisUp, metricRedisUp, "1 while the shared state answers."},
	}
	for _, i := range ints {
		if *i.to, err = m.Int64ObservableGauge(i.name, metric.WithDescription(i.text)); err != nil {
			return fmt.Errorf("make gauge: %w", err)
		}
	}
	g.speed, err = m.Float64ObservableGauge(metricSpeed, metric.WithDescription("Speed of a phone as the choice reckons with it."))
	if err != nil {
		return fmt.Errorf("make gauge: %w", err)
	}
	g.age, err = m.Float64ObservableGauge(metricSnapshot, metric.WithUnit("s"),
		metric.WithDescription("Age of what this gateway knows of the fleet."))
	if err != nil {
		return fmt.Errorf("make gauge: %w", err)
	}
	_, err = m.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		g.observe(o, fleet())
		return nil
	}, g.state, g.depth, g.slots, g.queue, g.own, g.redisUp, g.speed, g.age)
	if err != nil {
		return fmt.Errorf("register gauges: %w", err)
	}
	return nil
}

func (g *gauges) observe(o metric.Observer, f Fleet) {
	for _, r := range f.Replicas {
		g.observeReplica(o, r)
	}
	for model, n := range f.Queued {
		o.ObserveInt64(g.queue, int64(n), metric.WithAttributes(attribute.String("model", model)))
	}
	o.ObserveInt64(g.own, int64(f.Waiting), metric.WithAttributes(attribute.String("phase", "waiting")))
	o.ObserveInt64(g.own, int64(f.Running), metric.WithAttributes(attribute.String("phase", "running")))
	o.ObserveInt64(g.redisUp, truth(f.RedisUp))
	o.ObserveFloat64(g.age, f.Age.Seconds())
}

func (g *gauges) observeReplica(o metric.Observer, r Replica) {
	replica, model := attribute.String("replica", string(r.ID)), attribute.String("model", r.Model)
	for _, s := range balancer.States() {
		o.ObserveInt64(g.state, truth(r.State == s), metric.WithAttributes(replica, model, attribute.String("state", s.String())))
	}
	labels := metric.WithAttributes(replica, model)
	o.ObserveInt64(g.depth, int64(r.Depth), labels)
	o.ObserveInt64(g.slots, int64(r.Slots), labels)
	if r.PrefillTPS > 0 {
		o.ObserveFloat64(g.speed, r.PrefillTPS, metric.WithAttributes(replica, model, attribute.String("phase", "prefill")))
	}
	if r.DecodeTPS > 0 {
		o.ObserveFloat64(g.speed, r.DecodeTPS, metric.WithAttributes(replica, model, attribute.String("phase", "decode")))
	}
}

func truth(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
