// Package health decides whether a phone is well.
//
// It turns evidence (probes, and what requests saw) into the state all gateways share, by one pure function, [Next]; a [Store] commits the
// result only if the record has not changed meanwhile. [Prober] asks each phone once an interval, whichever gateway holds the turn. A probe
// never runs a completion and never takes a slot; "busy" is not "dead".
//
//	joining ── probe answered ──► ready ── 1 miss, 3 failures, a local trip ──► suspect
//	   │                           ▲ │                                          │ │  ▲
//	   │ 2 misses, 5 failures,     │ │   a success; or a probe answered, after  │ │  │
//	   │ offline, turned away      └─┼── the pause its failures ask for ────────┘ │  │
//	   │                             │                                            │  │ a probe answered, after
//	   └────────► down ◄─────────────┴────────────────────────────────────────────┘  │ that pause; a late success
//	               └─────────────────────────────────────────────────────────────────┘
//
//	draining: whatever happens; only an operator or a new join ends it
//
// The pieces: [Next] is the table above. [Reporter] applies evidence to the shared record and keeps the good news of busy phones out of
// Redis. [Prober] is the one part with goroutines; Run owns and joins them. [Breakers] is this process's own trip: it acts within one
// attempt, without the shared state, and what it learns is published as [Tripped].
//
// What it does not decide: what an answer to a request means (gateway/relay), and which phone gets a request (balancer).
package health
