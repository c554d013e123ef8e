package redisstore

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"phonebank/balancer"
)

// readView reads one element of what views.lua returns.
func readView(r *reply, at time.Time) (balancer.View, error) {
	v := balancer.View{Replica: balancer.Replica{ID: balancer.ReplicaID(r.text())}}
	static, sums, live, cooling := r.list(), r.list(), r.list(), r.list()
	readReplica(&static, &v)
	for sums.more() {
		if err := addSum(&v.Learned, sums.text(), sums.text()); err != nil && sums.err == nil {
			sums.err = err
		}
	}
	if n := len(live.rest) + len(cooling.rest); n > 0 {
		v.Ends = make([]time.Time, 0, n)
	}
	for live.more() {
		v.Ends = append(v.Ends, time.UnixMilli(live.number())) // it occupies its slot even when it is late
	}
	for cooling.more() {
		if end := time.UnixMilli(cooling.number()); end.After(at) {
			v.Ends = append(v.Ends, end)
		}
	}
	if err := errors.Join(r.err, static.err, sums.err, live.err, cooling.err); err != nil {
		return balancer.View{}, fmt.Errorf("replica %s: %w", v.ID, err)
	}
	return v, nil
}

// readReplica reads the fields of the replica's hash, in the order of views.lua.
func readReplica(r *reply, v *balancer.View) {
	v.Model = r.text()
	v.Engine = balancer.Engine(r.text())
	v.Slots = int(r.number())
	v.Context = int(r.number())
	v.EndsAt = fromMillis(r.number())
	v.Prior = balancer.Speeds{Prefill: r.float(), Decode: r.float()}
	v.Generation = r.number()
	v.State = balancer.ParseState(r.text())
	v.Reason = r.text()
	v.Since = fromMillis(r.number())
	v.LeaveAlone = fromMillis(r.number())
}

// addSum reads "amount seconds at_ms" into the place its name says. A name of another version is left alone.
func addSum(l *balancer.Learned, name, text string) error {
	first, rest, _ := strings.Cut(text, " ")
	second, third, _ := strings.Cut(rest, " ")
	amount, err1 := strconv.ParseFloat(first, 64)
	seconds, err2 := strconv.ParseFloat(second, 64)
	at, err3 := strconv.ParseInt(third, 10, 64)
	if err := errors.Join(err1, err2, err3); err != nil || len(name) != 2 {
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
