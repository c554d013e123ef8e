package fakephone

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
)

// Kind names a fault.
type Kind string

// Faults of the connection. They apply to every new connection; idle connections are closed when they are set.
const (
	Refuse        Kind = "refuse"         // the port is closed (over a listener given to Serve: as Reset); Times does not apply
	Reset         Kind = "reset"          // RST right after accept, which a client meets in the TLS handshake
	HangHandshake Kind = "hang-handshake" // accepted, then silence; such connections are reset by Clear
	Freeze        Kind = "freeze"         // SIGSTOP: connects succeed, nothing answers, streams stand still until Clear; Times does not apply
)

// Faults instead of an answer. They strike when a request has been read, without taking a slot.
const (
	HangHeaders     Kind = "hang-headers"     // not a byte
	ResetHeaders    Kind = "reset-headers"    // RST
	EOFHeaders      Kind = "eof-headers"      // closes before the headers, as a tunnel does when the server behind it is down
	Status503       Kind = "status-503"       // busy in words
	Loading         Kind = "loading"          // 503 "Loading model", on every path unless Scope says otherwise
	Status429       Kind = "status-429"       // too many requests
	Status500       Kind = "status-500"       // server_error
	Unauthorized401 Kind = "unauthorized-401" // as with a wrong key
	HTML            Kind = "html"             // 200 text/html
	HTML502         Kind = "html-502"         // 502 text/html
	ErrorIn200      Kind = "error-in-200"     // 200 application/json with an error object
	Respond         Kind = "respond"          // Status, ContentType and Body as they are
)

// Faults of the answer. A request decides for them when it starts.
const (
	JSONForStream  Kind = "json-for-stream" // application/json although a stream was asked for
	EmptyAnswer    Kind = "empty-answer"    // 200 and no content
	WrongAnswer    Kind = "wrong-answer"    // the answer to another prompt
	NoDone         Kind = "no-done"         // finish_reason but no [DONE]
	DoneNoFinish   Kind = "done-no-finish"  // [DONE] but no finish_reason
	GzipBody       Kind = "gzip-body"       // compressed although nobody asked
	ChunkSplit     Kind = "chunk-split"     // one byte in each write
	TruncateLength Kind = "truncate-length" // Content-Length longer than the body; a stream ends after After chunks
)

// Faults in mid-answer. They strike a running request once After content chunks are out (with After 0: after a chunk that has only the
// role), or, with Batches, once so many batches of the prompt are done. An answer that is not streamed counts its tokens.
const (
	HangStream  Kind = "hang-stream"  // silence, without pings, until the client leaves
	ResetStream Kind = "reset-stream" // RST
	EOFStream   Kind = "eof-stream"   // the connection is closed inside the chunked body, as a killed process leaves it
	EndStream   Kind = "end-stream"   // the HTTP body ends properly, without finish_reason and [DONE]
	ErrorEvent  Kind = "error-event"  // data: {"error":...}, then the end without [DONE]
)

// Faults of the work. Times does not apply to SlowBy.
const (
	Zombie Kind = "zombie"  // a slot works on to its end after its client has left
	SlowBy Kind = "slow-by" // every step takes Factor times as long
)

var errKind = errors.New("fakephone: unknown fault kind")

// Scope says which requests a fault instead of an answer strikes.
type Scope string

// Scopes. The zero value is completions, for Loading all.
const (
	ScopeCompletions Scope = "completions"
	ScopeProbes      Scope = "probes"
	ScopeAll         Scope = "all"
)

// Fault is one thing that goes wrong until it is cleared or has struck Times times.
type Fault struct {
	Kind Kind `json:"kind"`
	// After is the number of content chunks before a fault in mid-answer strikes.
	After int `json:"after,omitempty"`
	// Batches, when positive, lets a fault in mid-answer strike in the prefill, after so many batches.
	Batches int `json:"batches,omitempty"`
	// Times is how often the fault strikes; 0 is until cleared.
	Times int `json:"times,omitempty"`
	// RetryAfter is the header's value for faults instead of an answer; "" sends none. It is not checked.
	RetryAfter string `json:"retry_after,omitempty"`
	// Status and ContentType are the answer's for Respond; 0 is 200, "" is application/json.
	Status      int    `json:"status,omitempty"`
	ContentType string `json:"content_type,omitempty"`
	// Body replaces the body of a fault instead of an answer, and the data of ErrorEvent.
	Body string `json:"body,omitempty"`
	// Factor is how much slower SlowBy makes the phone; 0 is 10.
	Factor float64 `json:"factor,omitempty"`
	// Scope says which requests a fault instead of an answer strikes.
	Scope Scope `json:"scope,omitempty"`
}

func connectionKinds() []Kind { return []Kind{Refuse, Reset, HangHandshake, Freeze} }

func insteadKinds() []Kind {
	return []Kind{
		HangHeaders, ResetHeaders, EOFHeaders, Status503, Loading, Status429, Status500, Unauthorized401, HTML, HTML502, ErrorIn200, Respond,
	}
}

func answerKinds() []Kind {
	return []Kind{JSONForStream, EmptyAnswer, WrongAnswer, NoDone, DoneNoFinish, GzipBody, ChunkSplit, TruncateLength}
}

func streamKinds() []Kind { return []Kind{HangStream, ResetStream, EOFStream, EndStream, ErrorEvent} }

// Kinds returns every kind of fault.
func Kinds() []Kind {
	return slices.Concat(connectionKinds(), insteadKinds(), answerKinds(), streamKinds(), []Kind{Zombie, SlowBy})
}

func (f Fault) validate() error {
	if !slices.Contains(Kinds(), f.Kind) {
		return fmt.Errorf("%w %q", errKind, f.Kind)
	}
	if !slices.Contains([]Scope{"", ScopeCompletions, ScopeProbes, ScopeAll}, f.Scope) {
		return fmt.Errorf("fakephone: unknown scope %q", f.Scope)
	}
	if f.After < 0 || f.Batches < 0 || f.Times < 0 || f.Factor < 0 || f.Status != 0 && (f.Status < 200 || f.Status > 999) {
		return errors.New("fakephone: negative or impossible number in fault")
	}
	return nil
}

// covers reports whether a fault instead of an answer strikes a probe or a completion.
func (f Fault) covers(probe bool) bool {
	scope := f.Scope
	if scope == "" && f.Kind == Loading {
		scope = ScopeAll
	}
	return scope == ScopeAll || probe == (scope == ScopeProbes)
}

// slowdown is what SlowBy multiplies times with.
func (f Fault) slowdown() float64 {
	if f.Factor == 0 {
		return 10
	}
	return f.Factor
}

// faults is the one fault that is switched on.
type faults struct {
	stats *counters

	mu    sync.Mutex // guards all below
	fault Fault
	on    bool
	left  int           // strikes left; negative: no limit
	thaw  chan struct{} // closed to end a Freeze; nil when not frozen
}

func (f *faults) set(fault Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.thawLocked()
	f.fault, f.on, f.left = fault, true, -1
	if fault.Times > 0 {
		f.left = fault.Times
	}
	if fault.Kind == Freeze {
		f.thaw = make(chan struct{})
		f.stats.add(func(s *Stats) { s.Struck++ })
	}
}

func (f *faults) clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.thawLocked()
	f.on = false
}

func (f *faults) thawLocked() {
	if f.thaw != nil {
		close(f.thaw)
		f.thaw = nil
	}
}

// frozen returns a channel that is closed when the phone thaws, or nil when it is not frozen.
func (f *faults) frozen() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.thaw
}

// strike takes one strike of the fault if it is on and match agrees.
func (f *faults) strike(match func(Fault) bool) (Fault, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.on || f.left == 0 || !match(f.fault) {
		return Fault{}, false
	}
	if f.left > 0 {
		f.left--
	}
	f.stats.add(func(s *Stats) { s.Struck++ })
	return f.fault, true
}

// slow returns the factor by which steps are slowed down.
func (f *faults) slow() float64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.on && f.fault.Kind == SlowBy {
		return f.fault.slowdown()
	}
	return 1
}

// response is a fault's answer.
type response struct {
	status      int
	contentType string
	body        string
}

// response returns what a fault instead of an answer sends; ok is false for faults that send nothing.
func (f Fault) response() (r response, ok bool) {
	const page = "<!doctype html><html><head><title>Bad gateway</title></head><body><h1>Bad gateway</h1></body></html>"
	fromError := func(e *apiError) response { return response{e.status, jsonType8, string(e.body())} }
	switch f.Kind {
	case Status503:
		r = fromError(&apiError{status: http.StatusServiceUnavailable, kind: "unavailable_error", message: "no slot available"})
	case Loading:
		r = fromError(errLoading())
	case Status429:
		r = fromError(&apiError{status: http.StatusTooManyRequests, kind: "rate_limit_error", message: "Too many requests"})
	case Status500:
		r = fromError(serverError("Internal error"))
	case Unauthorized401:
		r = fromError(errKey())
	case HTML:
		r = response{http.StatusOK, "text/html; charset=utf-8", page}
	case HTML502:
		r = response{http.StatusBadGateway, "text/html; charset=utf-8", page}
	case ErrorIn200:
		r = fromError(serverError("Internal error"))
		r.status = http.StatusOK
	case Respond:
		r = response{http.StatusOK, jsonType8, ""}
	default:
		return response{}, false
	}
	if f.Body != "" {
		r.body = f.Body
	}
	if f.Kind == Respond && f.Status != 0 {
		r.status = f.Status
	}
	if f.Kind == Respond && f.ContentType != "" {
		r.contentType = f.ContentType
	}
	return r, true
}

// waitThaw blocks while the phone is frozen. It returns errKilled if dead is closed first, and whether it had to wait.
func (f *faults) waitThaw(dead <-chan struct{}) (waited bool, err error) {
	for {
		thaw := f.frozen()
		if thaw == nil {
			return waited, nil
		}
		waited = true
		select {
		case <-thaw:
		case <-dead:
			return true, errKilled
		}
	}
}
