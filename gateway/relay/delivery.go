package relay

import (
	"bytes"
	"errors"
	"net/http"
	"strconv"
	"sync"
	"time"

	"phonebank/gateway/openai"
)

// Limits of one answer.
const (
	maxHeld   = 256 << 10 // bytes of events held back before the first content
	maxAnswer = 32 << 20  // bytes of an assembled or unstreamed answer
)

// errCallerGone means writing to the caller failed.
var errCallerGone = errors.New("caller has gone")

// Delivery is the caller's side of one request, over all its attempts. The status is committed as late as the caller can bear: with the
// first content, or, when the caller streams, with the first comment. Methods may be called concurrently.
type Delivery struct {
	w     http.ResponseWriter
	rc    *http.ResponseController
	head  *openai.Head
	edits openai.ChunkEdits
	start time.Time
	write time.Duration

	mu        sync.Mutex
	committed bool // status and headers are out
	content   bool // content is out
	ended     bool
	lastWrite time.Time
	held      []byte            // edited events before the first content of this attempt
	asm       *openai.Assembler // for callers that do not stream
	scratch   []byte
	late      []note          // headers that were not known at the commit
	progress  openai.Progress // of the prefill, as last told
}

type note struct{ name, value string }

// NewDelivery prepares the answer to a caller who asked as in head, at start. model is the name the caller sees.
func NewDelivery(w http.ResponseWriter, head *openai.Head, model string, start time.Time, c Clocks) *Delivery {
	return &Delivery{
		w:    w,
		rc:   http.NewResponseController(w),
		head: head,
		edits: openai.ChunkEdits{
			Model:        model,
			DropUsage:    head.Stream && !head.IncludeUsage,
			DropTimings:  !head.WantsTimings,
			DropProgress: !head.WantsProgress,
		},
		start:     start,
		write:     c.Write,
		lastWrite: start,
	}
}

// Committed reports whether the caller has a status already.
func (d *Delivery) Committed() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.committed
}

// Note sets a response header, or, once the status is committed, a comment at the end of the stream.
func (d *Delivery) Note(name, value string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.committed {
		d.w.Header().Set(name, value)
		return
	}
	for i := range d.late {
		if d.late[i].name == name {
			d.late[i].value = value
			return
		}
	}
	d.late = append(d.late, note{name, value})
}

// begin starts an attempt: what an earlier one left undelivered is forgotten.
func (d *Delivery) begin() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.held = d.held[:0]
	d.progress = openai.Progress{}
	d.asm = nil
	if !d.head.Stream {
		d.asm = openai.NewAssembler(d.head.Endpoint, maxAnswer)
		d.asm.Usage.Prompts = d.head.Prompts
	}
}

// delivered reports whether content has reached the caller.
func (d *Delivery) delivered() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.content
}

// Progress tells how many tokens of the prompt the phone has read, and of how many; zeros when it has not said.
func (d *Delivery) Progress() (processed, total int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.progress.Processed, d.progress.Total
}

// event passes one event on. Before the first content it is only held.
func (d *Delivery) event(ev openai.Event, c openai.Chunk) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if c.Progress != nil {
		d.progress = *c.Progress
	}
	if d.asm != nil {
		return d.asm.Add(ev.Data)
	}
	if c.Progress != nil && d.edits.DropProgress && !c.Content && !c.Finished {
		return nil // a role-only chunk the engine made for its progress
	}
	if c.Usage != nil && d.edits.DropUsage && c.Choices == 0 {
		return nil // the usage chunk the caller did not ask for
	}
	d.scratch = appendEvent(d.scratch[:0], ev, d.edits)
	if !c.Content && !d.content {
		if len(d.held)+len(d.scratch) > maxHeld {
			return openai.ErrEventTooLarge
		}
		d.held = append(d.held, d.scratch...)
		return nil
	}
	d.commitLocked("text/event-stream")
	d.content = true
	if len(d.held) > 0 {
		d.held = append(d.held, d.scratch...)
		err := d.writeLocked(d.held, !ev.More)
		d.held = nil
		return err
	}
	return d.writeLocked(d.scratch, !ev.More)
}

// appendEvent writes a whole event with its data edited in place: every other byte of it stays.
func appendEvent(dst []byte, ev openai.Event, e openai.ChunkEdits) []byte {
	at := bytes.Index(ev.Raw, ev.Data)
	if at < 0 { // data over several lines: JSON does not care, so it becomes one
		dst = append(dst, "data: "...)
		from := len(dst)
		dst = openai.AppendChunk(dst, ev.Data, e)
		for i := from; i < len(dst); i++ {
			if dst[i] == '\n' {
				dst[i] = ' '
			}
		}
		return append(dst, "\n\n"...)
	}
	dst = append(dst, ev.Raw[:at]...)
	dst = openai.AppendChunk(dst, ev.Data, e)
	return append(dst, ev.Raw[at+len(ev.Data):]...)
}

// complete ends a whole answer. Its last bytes stay in the server's buffer until the handler returns: by then the request's slot and its
// key's concurrency are free again, so a caller that sends its next request at once is not refused for this one.
func (d *Delivery) complete() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ended = true
	if d.asm != nil {
		body, err := d.asm.Body(d.edits)
		if err != nil {
			return err
		}
		return d.bodyLocked(body)
	}
	d.commitLocked("text/event-stream")
	tail := d.held
	d.held = nil
	for _, n := range d.late {
		tail = append(append(append(append(append(tail, ": "...), n.name...), ": "...), n.value...), '\n')
	}
	tail = append(tail, "data: [DONE]\n\n"...)
	return d.writeLocked(tail, false)
}

// body delivers an answer the phone did not stream.
func (d *Delivery) body(raw []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ended = true
	return d.bodyLocked(openai.AppendChunk(nil, raw, d.edits))
}

func (d *Delivery) bodyLocked(body []byte) error {
	d.w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	d.commitLocked("application/json")
	d.content = true
	return d.writeLocked(body, false)
}

// Fail tells the caller: with e's own status and the headers that prepare sets while that is possible, else as the stream's last event.
// Nothing may follow it, and it is not followed by [DONE].
func (d *Delivery) Fail(e *openai.Error, prepare func(http.Header)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended {
		return
	}
	d.ended = true
	if d.committed {
		_ = d.writeLocked(e.Event(), false) // a caller that has gone needs no error
		return
	}
	body := e.Body()
	prepare(d.w.Header())
	d.w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	d.committed = true
	d.w.Header().Set("Content-Type", "application/json")
	d.processingLocked()
	d.w.WriteHeader(e.Status)
	_ = d.writeLocked(body, false)
}

// Comment tells a streaming caller that its request is alive, and commits the status. The line ends without a blank one: some SDKs take a
// comment followed by a blank line for an event, and fail on its empty data.
func (d *Delivery) Comment(text string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.commentLocked(text)
}

func (d *Delivery) commentLocked(text string) error {
	if d.ended || !d.head.Stream {
		return nil
	}
	d.commitLocked("text/event-stream")
	return d.writeLocked([]byte(": "+text+"\n"), true)
}

func (d *Delivery) commitLocked(contentType string) {
	if d.committed {
		return
	}
	d.committed = true
	h := d.w.Header()
	h.Set("Content-Type", contentType)
	if d.head.Stream {
		h.Set("Cache-Control", "no-cache, no-transform")
		h.Set("X-Accel-Buffering", "no")
	}
	d.processingLocked()
	d.w.WriteHeader(http.StatusOK)
}

func (d *Delivery) processingLocked() {
	d.w.Header().Set("openai-processing-ms", strconv.FormatInt(time.Since(d.start).Milliseconds(), 10))
}

func (d *Delivery) writeLocked(p []byte, flush bool) error {
	d.lastWrite = time.Now()
	// Not every writer has deadlines (tests); a caller that does not read is then bounded by the server's own.
	_ = d.rc.SetWriteDeadline(d.lastWrite.Add(d.write))
	if _, err := d.w.Write(p); err != nil {
		return errCallerGone
	}
	if flush {
		if err := d.rc.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
			return errCallerGone
		}
		_ = d.rc.SetWriteDeadline(time.Time{}) // on HTTP/2 a deadline that passes between writes would end the stream
	}
	return nil
}
