// Package harness starts the built binary with a real or embedded Redis and fake phones, for tests that use a gateway as its users do.
//
// Gateways are processes, so they can be killed and frozen. Phones run in the test's own process, so a test can command and question them.
// Everything is stopped at the end of its test.
package harness
