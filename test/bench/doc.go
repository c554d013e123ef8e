// Package bench measures an OpenAI endpoint under load and reports what its
// callers would have felt.
//
// Two kinds of load:
//
//   - closed loop ([Config.Concurrency] callers, each sending its next request
//     when the last one has ended): finds the greatest throughput;
//   - open loop ([Config.Rate] arrivals a second, whether or not earlier ones
//     have ended): finds the latency at a given load. Latency counts from the
//     moment a request was due, so a stalled server cannot hide its stall by
//     slowing the generator down (no coordinated omission). How late the
//     generator itself was is reported beside it: a large [Report.Lag] with
//     room left in flight means the generator, not the server, was the limit.
//
// The package deliberately parses answers with a reader of its own instead of
// gateway/openai: the thing that measures must not share the bugs of the thing
// measured.
//
// [Upstream] is the other end: a server that gives llama-server's answers at
// once, so that what is measured is what stands in front of it.
package bench
