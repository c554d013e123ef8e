// Package cases holds tests of single requests through the built binary: what went wrong for others, tried on one or two phones over TLS.
// A phone fails in one way, and the test looks at what its caller saw, at what the other phone was given, and at the phone's way back.
package cases
