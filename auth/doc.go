// Package auth says who is calling: it turns the credentials of a request into
// a [Principal] (callers of the API) or an [Operator] (people at the admin
// listener).
//
// It does not decide what they may spend (package limit) or which routes they
// may use. It starts no goroutines, keeps no secret in the clear, and no error
// or value it returns holds a secret or a hash of one. All types are immutable
// after construction and safe for concurrent use.
//
// Static keys are looked up by their SHA-256 and compared in constant time.
// Tokens are JWTs whose algorithm is fixed by the type of the one configured
// public key: nothing in a token's header chooses a key or an algorithm.
package auth
