package redisstore

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"phonebank/balancer"
	"phonebank/health"
)

// record reads the fields of a replica's hash. The first field that is not what join.lua and set_health.lua write sticks in err.
type record struct {
	fields map[string]string
	err    error
}

func (r *record) integer(name string) int64 {
	n, err := strconv.ParseInt(r.fields[name], 10, 64)
	if err != nil && r.err == nil {
		r.err = fmt.Errorf("field %s: %w", name, err)
	}
	return n
}

func (r *record) float(name string) float64 {
	x, err := strconv.ParseFloat(r.fields[name], 64)
	if err != nil && r.err == nil {
		r.err = fmt.Errorf("field %s: %w", name, err)
	}
	return x
}

func (r *record) time(name string) time.Time { return fromMillis(r.integer(name)) }

func decodeView(id string, fields, sums map[string]string) (balancer.View, error) {
	r := record{fields: fields}
	v := balancer.View{
		Replica: balancer.Replica{
			ID:      balancer.ReplicaID(id),
			Model:   fields["model"],
			Engine:  balancer.Engine(fields["engine"]),
			Slots:   int(r.integer("slots")),
			Context: int(r.integer("context")),
			Prior:   balancer.Speeds{Prefill: r.float("prefill"), Decode: r.float("decode")},
			EndsAt:  r.time("ends"),
		},
		Generation: r.integer("gen"),
		State:      balancer.ParseState(fields["state"]),
		Reason:     fields["reason"],
		Since:      r.time("since"),
		LeaveAlone: r.time("until"),
	}
	for name, text := range sums {
		if err := addSum(&v.Learned, name, text); err != nil && r.err == nil {
			r.err = err
		}
	}
	if r.err != nil {
		return balancer.View{}, fmt.Errorf("redis replica %s: %w", id, r.err)
	}
	return v, nil
}

// addSum reads "amount seconds at_ms" into the place its name says.
func addSum(l *balancer.Learned, name, text string) error {
	f := strings.Fields(text)
	if len(name) != 2 || len(f) != 3 {
		return fmt.Errorf("sum %q is malformed", name)
	}
	amount, err1 := strconv.ParseFloat(f[0], 64)
	seconds, err2 := strconv.ParseFloat(f[1], 64)
	at, err3 := strconv.ParseInt(f[2], 10, 64)
	if err1 != nil || err2 != nil || err3 != nil {
		return fmt.Errorf("sum %q is malformed", name)
	}
	sum := balancer.Sum{Amount: amount, Seconds: seconds, At: fromMillis(at)}
	bucket := int(name[1] - '0')
	switch kind := balancer.SampleKind(name[:1]); {
	case kind == balancer.PrefillSample && bucket < balancer.PrefillBuckets:
		l.Prefill[bucket] = sum
	case kind == balancer.DecodeSample && bucket < balancer.DecodeBuckets:
		l.Decode[bucket] = sum
	case kind == balancer.OverheadSample:
		l.Overhead = sum
	case kind == balancer.FailureSample:
		l.Failure = sum
	}
	return nil
}

func decodeHealth(fields map[string]string) (health.Record, error) {
	r := record{fields: fields}
	h := health.Record{
		Generation: r.integer("gen"),
		Version:    r.integer("version"),
		State:      balancer.ParseState(fields["state"]),
		Reason:     fields["reason"],
		Since:      r.time("since"),
		LeaveAlone: r.time("until"),
		Misses:     int(r.integer("misses")),
		Failures:   int(r.integer("failures")),
		LastGood:   r.time("good"),
	}
	return h, r.err
}
