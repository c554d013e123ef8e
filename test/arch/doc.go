// Package arch holds the tests that keep the shape of the program: which
// package may import which, that every package and every Redis script says what
// it is for, and that tests neither sleep nor claim ports.
//
// The rules read the source with go/parser instead of asking `go list`: the
// test cache cannot see what a child process has read, and would report an old
// "ok" after a forbidden import was added.
package arch
