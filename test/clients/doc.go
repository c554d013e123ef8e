// Package clients runs OpenAI's own SDKs, for Go, Python and Node.js, against
// the built gateway and fake phones.
//
// Each SDK runs one script of calls: list models, chat, stream without and with
// usage, a wait longer than several keep-alives, a wrong key, a limit with the
// SDK's own retry, and a stream that is given up. A script prints one JSON
// object a step and knows nothing of the gateway but its address and keys, so
// it runs against any OpenAI endpoint:
//
//	BASE_URL API_KEY MODEL   where, who and what
//	LIMITED_KEY              a key that a few requests a minute exhaust
//	WAIT_WORDS               length of a prompt that makes the caller wait
//
// Between the SDK and the gateway sits a tap, which counts what the SDK hides:
// its retries, and the comments that kept its connection alive.
package clients
