// Package fakephone is a phone that can be scripted: it speaks the dialect of llama-server b10587 over TLS, works at the pace of a
// measured or assumed phone, gives deterministic answers that name their prompt, and fails on command while running.
//
// It decides how long a request takes and what goes wrong. It does not know the gateway: a test compares what a caller received
// with [Answer], and asks [Phone.Stats] what the phone saw.
//
// # Time
//
// A prompt of n tokens (about four bytes each, plus a template's overhead) takes n/prefill_short_tps + quad_s*n² seconds, in batches
// of [Config.Batch] tokens; the first token leaves with the last batch and each further one takes 1/decode_tps. Busy slots share the
// phone equally, so a step takes its own time multiplied by the number of working slots. With [Config.Heat] the speed falls to
// f+(1-f)e^(-t/τ) while working and comes back with 4τ. One round trip is spent when a request arrives. All of it, the pings and the
// loading time are divided by [Config.Speed]; transport constants (5 s idle keep-alive, 100 requests a connection) are not.
//
// # States of a request
//
//	arrived -> queued (FIFO, silent, unbounded) -> prefill -> decode -> done
//	              |                                  |          |
//	              +-- client gone: removed           |          +-- client gone: slot free after 15 ms (500 ms unstreamed)
//	                                                 +-- client gone: slot free after the running batch
//
// A slot is free before the last bytes of its answer are written, so a caller who has read them never finds it busy.
//
// # Goroutines
//
// [Phone.Start] starts one goroutine, joined by [Phone.Close]; requests run on the HTTP server's goroutines and have ended when
// Close returns. Everything is usable inside a testing/synctest bubble over [MemListener].
package fakephone
