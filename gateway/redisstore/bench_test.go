package redisstore

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"phonebank/auth/limit"
	"phonebank/balancer"
	"phonebank/test/redistest"
)

var benchLimits = limit.Limits{RequestsPerMinute: limit.MaxLimit, TokensPerMinute: limit.MaxLimit, Concurrent: 1_000_000}

// fleet joins n ready phones.
func fleet(b *testing.B, s *Store, n int) []balancer.Candidate {
	b.Helper()
	c := make([]balancer.Candidate, n)
	for i := range c {
		c[i] = phone(b, s, balancer.ReplicaID(fmt.Sprintf("p%d", i)), 4)
	}
	return c
}

func benchTicket(n int64) balancer.Ticket {
	tk := ticket(int(n))
	tk.Arrived = time.Now()
	return tk
}

func check(b *testing.B, err error) {
	if err != nil {
		b.Error(err)
	}
}

// The way of a request that finds a free phone: two round trips.
func BenchmarkAdmitFinish(b *testing.B) {
	s := openOn(b, redistest.Server(b), Config{})
	c := fleet(b, s, 100)
	var count atomic.Int64
	b.SetParallelism(16)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			n := count.Add(1)
			o := offer(benchTicket(n), fmt.Sprintf("L%d", n), c[n%100], c[(n+1)%100])
			_, p, err := s.Admit(b.Context(), gw1, "shop", benchLimits, limit.Cost{Requests: 1, Tokens: 7000}, o)
			check(b, err)
			f := balancer.Finish{By: gw1, Ticket: o.Ticket.ID, Tokens: 6900, Samples: []balancer.Sample{{Kind: "p", Bucket: 2, Amount: 7000, Seconds: 90}}}
			if p.Lease != nil {
				f.Lease = p.Lease.ID
			}
			_, err = s.Finish(b.Context(), f)
			check(b, err)
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "requests/s")
}

// The way of a request that waits and is matched by another gateway: four round trips.
func BenchmarkQueueAssignTakeFinish(b *testing.B) {
	s := openOn(b, redistest.Server(b), Config{})
	c := fleet(b, s, 100)
	var count atomic.Int64
	b.SetParallelism(16)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			n := count.Add(1)
			o := offer(benchTicket(n), "")
			_, _, err := s.Admit(b.Context(), gw1, "shop", benchLimits, limit.Cost{Requests: 1, Tokens: 7000}, o)
			check(b, err)
			l, err := s.Assign(b.Context(), gw2, o.Ticket.ID, fmt.Sprintf("L%d", n), []balancer.Candidate{c[n%100], c[(n+1)%100]}, false)
			check(b, err)
			f := balancer.Finish{By: gw1, Ticket: o.Ticket.ID, Tokens: 6900}
			if l != nil {
				f.Lease = l.ID
				_, err = s.Take(b.Context(), gw1, o.Ticket.ID, l.ID)
				check(b, err)
			}
			_, err = s.Finish(b.Context(), f)
			check(b, err)
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "requests/s")
}

// One after the other: what a single request pays.
func BenchmarkAdmitFinishAlone(b *testing.B) {
	s := openOn(b, redistest.Server(b), Config{})
	c := fleet(b, s, 10)
	b.ReportAllocs()
	n := int64(0)
	for b.Loop() {
		n++
		o := offer(benchTicket(n), "L", c[0])
		_, _, err := s.Admit(b.Context(), gw1, "shop", benchLimits, limit.Cost{Requests: 1, Tokens: 7000}, o)
		check(b, err)
		_, err = s.Finish(b.Context(), balancer.Finish{By: gw1, Ticket: o.Ticket.ID, Lease: "L", Tokens: 6900})
		check(b, err)
	}
}

func BenchmarkSnapshot(b *testing.B) {
	for _, n := range []int{1000, 10000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s := openOn(b, redistest.Server(b), Config{})
			c := fleet(b, s, n)
			for i := range c {
				o := offer(benchTicket(int64(i)), "L", c[i])
				_, _, err := s.Admit(b.Context(), gw1, "shop", limit.Limits{}, limit.Cost{}, o)
				check(b, err)
			}
			b.ReportAllocs()
			for b.Loop() {
				_, err := s.Snapshot(b.Context())
				check(b, err)
			}
		})
	}
}
