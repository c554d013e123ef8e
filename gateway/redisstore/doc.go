// Package redisstore keeps the state that all gateways share in Redis: the replica table, the queue, the leases, the health records and
// the callers' buckets. It is the only package that talks to Redis.
//
// [Store] implements balancer.Store, health.Store and health.Registry, and admits requests ([Store.Admit]). Each decision is one script in
// lua/ and one round trip; Go computes what should happen, the script commits it or refuses it. Scripts read the time with TIME, so the
// gateways' clocks do not matter for leases, limits, offers or heartbeats.
//
// # Keys
//
// Every key starts with the hash tag "{namespace}:". A script gets that prefix as KEYS[1] and derives all other keys from it and from ids
// in ARGV. They all live in one slot, which is what makes undeclared keys sound; a server in cluster mode is refused at start nevertheless,
// because the client used here would not follow its redirections. What each key holds, and who removes it, stands in keys.go.
//
// # When Redis is slow, away or restarted
//
// Each call has its own deadline (250 ms) that the caller's cancellation does not shorten: a cancelled context would close the connection in
// the middle of a reply. A breaker opens after five failures in a row and lets one call through a second later; meanwhile calls fail at once.
// All of that wraps balancer.ErrUnavailable. An error of a script itself (a wrong type, a bug) does not: Redis has answered, waiting will not help.
//
// Nothing is retried under the caller, since a lost reply does not tell whether the script has run. Instead the scripts can be repeated: an
// admission with a known ticket charges nothing and returns its place, assigning or taking the same lease again returns it, and a second
// finish finds nothing to end. What was lost for good is made up for: an admission, grant, take or finish whose reply never came is noted and
// settled by the next [Store.Tick] that succeeds, so a frozen Redis that later runs what was already given up leaks no slot.
//
// A server that was away, frozen or replaced shows as a gap in the pulse that every Tick leaves. Nothing is reaped for one BeatTTL then. One
// that came back empty answers [Store.Beat] with known = false: join the replicas again, then restore what is still served.
//
// # Goroutines
//
// [Store.Notices] starts one goroutine that ends with its context; the go-redis client keeps its pool. [Store.Close] ends the rest.
package redisstore
