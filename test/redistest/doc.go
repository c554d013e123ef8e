// Package redistest gives a test a Redis of its own: a real redis-server on a unix socket ([Server]), or one inside the process ([Mini]).
// [Each] runs a suite on both, which keeps the second honest. A real one can be frozen, killed and restarted.
//
// The package knows no Redis client: tests bring their own.
package redistest
