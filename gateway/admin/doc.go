// Package admin is the operators' side of the gateway: what runs, how well, and the profiles of the process.
//
// It belongs on a listener of its own, by default on loopback. Who may do what:
//
//	/livez, /readyz          anybody
//	/metrics, /admin/v1/*    viewer
//	/debug/pprof/*           operator
//
// Without configured credentials, people at the same machine are viewers and nobody else is anything. "The same machine" must be meant:
// the listener is on loopback, the request came from loopback, no proxy forwarded it, and it names the listener as its host, so that a web
// page cannot reach us through a name of its own (DNS rebinding).
//
// The package reads; it changes nothing yet. It starts no goroutines.
package admin
