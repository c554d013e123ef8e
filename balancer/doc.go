// Package balancer decides where a request runs and when.
//
// It holds the vocabulary of the fleet ([Replica], [View], [Snapshot], [Ticket], [Lease]), the cost model that turns a ticket and a
// replica into predicted seconds, the order of the queue and the choice of a replica. Those are pure functions over values: no I/O, no
// goroutines, no clock but the time they are given, so a simulator can drive the very same code in virtual time.
//
// The one part with goroutines is [Dispatcher], the waiting room of one gateway. It owns the tickets of its own callers, listens for
// assignments and matches queue heads with free slots. The shared state itself lives behind [Store]: Go computes a decision, one script
// commits it or refuses it. A stale [Snapshot] therefore costs a retry, never a wrong grant.
//
//	           Admit                      Assign                  Take / local grant
//	caller ──────────► queued ───────────────────────► offered ─────────────────────► running
//	   │                 ▲  ▲                             │ not taken in 3 s             │
//	   │ granted at once │  └─────────────────────────────┘                              │
//	   │                 └──────────────── Finish(Requeue): the phone was lost ──────────┤
//	   └──────────────────────────────────► running ─────────────────────────────────────┴─► ended (Finish)
//
// What it does not decide: who may call (auth), what a phone's answer means (gateway/relay), whether a phone is well (health).
package balancer
