// Package relay runs one attempt of one request on one phone, and holds the caller's side of all its attempts.
//
// [Relay.Attempt] sends the request to the phone it was granted, reads the answer event by event, and says in a [Result] how it ended: one
// [Kind] for everything that can happen to a phone behind a tunnel. What to do about a kind (try another phone, tell the caller) is the
// pipeline's business; what it means is decided here, in classify.go, and nowhere else.
//
// [Delivery] is where the answer goes. It commits the caller's status late, hides what the engine adds and the caller did not ask for,
// assembles the answer for callers that do not stream, and knows whether content has reached the caller, after which nothing may be tried
// again.
//
//	leased → connecting → waiting → prefill (progress) → decoding → Done | a failed Kind
//
// One goroutine reads from the phone and writes to the caller, so a caller that does not read slows the phone down and nothing piles up.
// Beside it runs only the keep-alive of a streaming caller, which ends before the handler does.
package relay
