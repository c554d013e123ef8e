package fakephone

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// cutLength is the Content-Length of a stream that will be shorter.
const cutLength = 1 << 20

// output is where the work on a request goes: events of a stream, or one JSON answer at the end.
type output interface {
	begin()                                    // a slot has started
	progress(p progress)                       // a batch is done
	role(choice int)                           // the role alone, when a fault strikes before the first token
	token(choice int, text string, t *timings) // one token, with the role if it is the first
	ping()                                     // nothing happened for a while
	finish(choice int, reason string, u usage, t timings)
	end()               // all choices are finished
	fail(data []byte)   // an error, in place of the rest
	refuse(e *apiError) // an error before begin
}

// newOutput chooses the form of the answer; fault is the fault of the answer, if any.
func newOutput(w http.ResponseWriter, r *http.Request, req *request, s shape, fault Fault) output {
	if !req.stream || fault.Kind == JSONForStream {
		n := req.choices()
		return &jsonOutput{w: w, shape: s, fault: fault, texts: make([]strings.Builder, n), reasons: make([]string, n)}
	}
	o := &streamOutput{w: w, flusher: http.NewResponseController(w), shape: s, fault: fault, lazy: req.progress, roles: make([]bool, req.choices())}
	o.to = w
	if fault.Kind == GzipBody {
		o.gz = gzip.NewWriter(w)
		o.to = o.gz
	}
	if c := connOf(r); c != nil {
		o.conn = c
	}
	return o
}

// streamOutput writes server-sent events.
type streamOutput struct {
	w       http.ResponseWriter
	flusher *http.ResponseController
	to      io.Writer
	gz      *gzip.Writer // nil unless the fault compresses
	conn    *conn        // closed after the stream; nil under a foreign server
	shape   shape
	fault   Fault
	lazy    bool // the headers go with the first event
	roles   []bool
}

func (o *streamOutput) begin() {
	h := o.w.Header()
	h.Set("X-Accel-Buffering", "no")
	h.Set("Content-Type", "text/event-stream")
	if o.gz != nil {
		h.Set("Content-Encoding", "gzip")
	}
	if o.fault.Kind == TruncateLength {
		h.Set("Content-Length", strconv.Itoa(cutLength))
	}
	if o.conn != nil {
		o.conn.closeIdle = true
	}
	o.w.WriteHeader(http.StatusOK)
	if !o.lazy {
		_ = o.flusher.Flush()
	}
}

func (o *streamOutput) refuse(e *apiError) { writeError(o.w, e) }

func (o *streamOutput) progress(p progress) { o.send(o.shape.progress(p)) }

func (o *streamOutput) role(choice int) {
	if !o.roles[choice] {
		o.roles[choice] = true
		o.send(o.shape.role(choice))
	}
}

func (o *streamOutput) token(choice int, text string, t *timings) {
	if !o.roles[choice] {
		o.roles[choice] = true
		o.send(o.shape.role(choice), o.shape.token(choice, text, t))
		return
	}
	o.send(o.shape.token(choice, text, t))
}

func (o *streamOutput) ping() { o.put([]byte(":\n\n")) }

func (o *streamOutput) finish(choice int, reason string, u usage, t timings) {
	o.role(choice) // an answer that ends at once has its role all the same
	if o.fault.Kind != DoneNoFinish {
		o.send(o.shape.finish(choice, reason, u, t)...)
	}
}

func (o *streamOutput) end() {
	if o.fault.Kind != NoDone {
		o.send([]byte("[DONE]"))
	}
	if o.gz != nil {
		_ = o.gz.Close() // the client may have left
	}
}

func (o *streamOutput) fail(data []byte) { o.send(data) }

// send writes events in one HTTP chunk; empty ones are left out.
func (o *streamOutput) send(events ...[]byte) {
	var b bytes.Buffer
	for _, e := range events {
		if len(e) > 0 {
			b.WriteString("data: ")
			b.Write(e)
			b.WriteString("\n\n")
		}
	}
	o.put(b.Bytes())
}

// put writes and flushes; errors are ignored since the session learns of a client that left from its context.
func (o *streamOutput) put(b []byte) {
	step := max(1, len(b))
	if o.fault.Kind == ChunkSplit {
		step = 1
	}
	for len(b) > 0 {
		_, _ = o.to.Write(b[:step])
		b = b[step:]
		if o.gz != nil {
			_ = o.gz.Flush()
		}
		if o.flusher.Flush() != nil {
			return
		}
	}
}

// jsonOutput collects the answer and writes it at the end.
type jsonOutput struct {
	w       http.ResponseWriter
	shape   shape
	fault   Fault
	texts   []strings.Builder
	reasons []string
	usage   usage
	timings timings
}

func (o *jsonOutput) begin()             {}
func (o *jsonOutput) progress(progress)  {}
func (o *jsonOutput) role(int)           {}
func (o *jsonOutput) ping()              {}
func (o *jsonOutput) refuse(e *apiError) { writeError(o.w, e) }

func (o *jsonOutput) token(choice int, text string, _ *timings) { o.texts[choice].WriteString(text) }

func (o *jsonOutput) finish(choice int, reason string, u usage, t timings) {
	o.reasons[choice] = reason
	if choice == 0 {
		o.usage, o.timings = u, t
	}
}

func (o *jsonOutput) end() {
	texts := make([]string, len(o.texts))
	for i := range o.texts {
		texts[i] = o.texts[i].String()
	}
	body := o.shape.answer(texts, o.reasons, o.usage, o.timings)
	h := o.w.Header()
	h.Set("Content-Type", jsonType8)
	length := len(body)
	switch o.fault.Kind {
	case TruncateLength:
		length += cutLength
	case GzipBody:
		var b bytes.Buffer
		gz := gzip.NewWriter(&b)
		_, _ = gz.Write(body) // a buffer takes every write
		_ = gz.Close()
		body, length = b.Bytes(), b.Len()
		h.Set("Content-Encoding", "gzip")
	default:
	}
	h.Set("Content-Length", strconv.Itoa(length))
	o.w.WriteHeader(http.StatusOK)
	if o.fault.Kind != ChunkSplit {
		_, _ = o.w.Write(body) // a client that has left does not want it
		return
	}
	flusher := http.NewResponseController(o.w)
	for i := range body {
		_, _ = o.w.Write(body[i : i+1])
		_ = flusher.Flush()
	}
}

func (o *jsonOutput) fail(data []byte) { write(o.w, http.StatusInternalServerError, jsonType8, data) }
