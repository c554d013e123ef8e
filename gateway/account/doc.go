// Package account turns one finished request into one log line and its metrics, and a fleet into gauges.
//
// It decides what is said and under which names: log keys are in keys.go, metric names in metrics.go. It does not decide where it is said
// (package telemetry) nor what a caller pays (the shared state settles that with the lease).
//
// Labels are from closed sets: configured models, classes, routes, outcomes, kinds, replicas of the fleet. Keys and callers are never
// labels: a metric must stay small whoever calls, and tells nobody about tenants. The log has the id of the key, never the key, and never
// a prompt or an answer. Names start with phonebank_ and share the labels model, class and route, so that they can be joined.
//
// A [Book] starts no goroutine and does no I/O but the log's.
package account
