// Package openai is the wire format: it reads what callers and engines say in
// OpenAI's dialect and writes what the gateway says back.
//
// It decides three things and no more. What a request asks for ([ParseHead]),
// which bytes of a body or a chunk change on the way ([Head.Splice],
// [AppendChunk]), and what one event of a stream means ([Events],
// [ParseChunk], [Assembler]). It never decides whether a request is allowed,
// where it runs, or what a failure costs.
//
// Bytes go through, a parser reads beside them. Nothing here builds a tree of
// a body: a one-pass scanner validates the bytes and remembers where members
// start and end, and edits are spliced between those places. Number spelling,
// member order, escapes and unknown members therefore survive.
//
//	body  --ParseHead--> Head --Splice--> bytes for the engine
//	phone --Events-----> Event --ParseChunk--> Chunk (what it means)
//	                           --AppendChunk-> bytes for a streaming caller
//	                           --Assembler---> body for one who does not stream
//
// Requests are read strictly, because llama-server answers malformed JSON and
// bad UTF-8 with a 500 that looks like a broken phone. Engines are read
// leniently: a chunk with half a character in it is still relayed.
//
// The package does no I/O beyond the io.Reader given to [Events], starts no
// goroutines, and keeps no state between calls. Values are not safe for
// concurrent use unless said otherwise; distinct values are independent.
package openai
