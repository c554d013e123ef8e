package openai

import (
	"bytes"
	"errors"
	"io"
	"iter"
)

// ErrEventTooLarge ends a stream that holds an event larger than the limit.
var ErrEventTooLarge = errors.New("openai: event is larger than the limit")

// Event is one event of a stream, or one comment or blank line between events.
// Its slices are valid until the next iteration.
type Event struct {
	// Raw is the exact bytes, terminator included. The Raws of a stream, in
	// order, are the stream.
	Raw []byte
	// Data is the data lines joined by line feeds, nil without any.
	Data []byte
	// Name is the event field, "" for OpenAI's own streams.
	Name string
	// Comment says that Raw is a comment line or a blank line outside of an
	// event. Clients must not see a blank line of its own: some dispatch an
	// empty event on it.
	Comment bool
	// Partial says that the stream ended before the blank line that ends an
	// event. Data may be cut anywhere.
	Partial bool
	// More says that another event is complete in the buffer, so a relay may
	// put off its flush.
	More bool
}

// Done reports whether the event is OpenAI's end mark, [DONE]. A partial event
// counts too: some servers end without a line feed.
func (e Event) Done() bool {
	return string(bytes.TrimSpace(e.Data)) == "[DONE]"
}

// Events splits a stream of server-sent events. An event is yielded as soon as
// its blank line has been read, a comment line as soon as its line end has.
// Lines end in LF, CRLF or CR, also mixed.
//
// The end of r ends the sequence; an unterminated rest is yielded before, with
// Partial set. Any other read error is yielded, and drops an unterminated rest.
// An event with a Raw of more than maxEvent bytes ends the sequence with
// [ErrEventTooLarge]. Memory is bounded by that, and small between large events.
func Events(r io.Reader, maxEvent int) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		p := splitter{limit: maxEvent, r: r}
		p.run(yield)
	}
}

const (
	minBuffer = 4 << 10
	// keepBuffer is the largest buffer kept once a large event has gone. A
	// thousand open streams must not each hold on to their largest event.
	keepBuffer = 64 << 10
	// maxEmptyReads is how often a reader may return nothing before it is
	// taken for broken.
	maxEmptyReads = 100
)

// splitter holds unread bytes in buf[start:], of which the line scan has seen
// buf[start:line] as whole lines and buf[line:scanned] as no line end.
type splitter struct {
	r     io.Reader
	limit int

	buf     []byte
	start   int // first byte of the event being collected
	line    int // first byte of the line being collected
	scanned int
	lf      int // see nextLF
	eof     bool

	fields   bool // the event has a line that is no comment
	bareCR   bool // the previous line of this event ended in CR without LF
	bom      bool // the start of the stream has been looked at for a BOM
	joined   []byte
	lastName string
}

func (p *splitter) run(yield func(Event, error) bool) {
	end, ok := 0, false
	for {
		for !ok {
			if end, ok = p.next(); ok {
				break
			}
			if len(p.buf)-p.start > p.limit {
				yield(Event{}, ErrEventTooLarge)
				return
			}
			if p.eof {
				p.rest(yield)
				return
			}
			if err := p.read(); err != nil && !errors.Is(err, io.EOF) {
				yield(Event{}, err)
				return
			}
		}
		if end-p.start > p.limit {
			yield(Event{}, ErrEventTooLarge)
			return
		}
		raw := p.buf[p.start:end]
		p.start = end
		end, ok = p.next() // looking ahead reads nothing, so raw stays valid
		e := p.parse(raw)
		e.More = ok
		if !yield(e, nil) {
			return
		}
	}
}

// rest yields what stands behind the last complete event of a stream.
func (p *splitter) rest(yield func(Event, error) bool) {
	if p.start == len(p.buf) {
		return
	}
	e := p.parse(p.buf[p.start:])
	e.Partial = !e.Comment
	yield(e, nil)
}

// next finds the end of the event that starts at p.start, false if more bytes
// are needed. What it has seen it does not look at again.
func (p *splitter) next() (end int, ok bool) {
	if p.line < p.start {
		p.line, p.scanned = p.start, p.start
	}
	for {
		text, after, ok := p.lineEnd()
		if !ok {
			return 0, false
		}
		blank, comment := text == p.line, p.buf[p.line] == ':'
		if !p.bom && text-p.line == len(byteOrderMark) && string(p.buf[p.line:text]) == byteOrderMark {
			blank = true
		}
		p.bom = true
		p.bareCR = p.buf[after-1] == '\r'
		p.line, p.scanned = after, after
		if blank || comment && !p.fields {
			p.fields, p.bareCR = false, false
			return after, true
		}
		p.fields = true
	}
}

// lineEnd finds the end of the current line: its text ends at text, the next
// line starts at after. A CR that is the last byte read may be half of a CRLF,
// so it waits for one more byte, unless it is a blank line after a line that
// ended in CR alone: waiting there would hold back the event until the next.
func (p *splitter) lineEnd() (text, after int, ok bool) {
	p.lf = nextLF(p.buf, p.scanned, p.lf)
	cr := bytes.IndexByte(p.buf[p.scanned:p.lf], '\r')
	switch {
	case cr < 0 && p.lf == len(p.buf):
		p.scanned = len(p.buf)
		return 0, 0, false
	case cr < 0:
		return p.lf, p.lf + 1, true
	}
	text = p.scanned + cr
	switch {
	case text == p.line && p.bareCR:
		return text, text + 1, true
	case text+1 < len(p.buf) && p.buf[text+1] == '\n':
		return text, text + 2, true
	case text+1 < len(p.buf) || p.eof:
		return text, text + 1, true
	}
	p.scanned = text // look at the CR again
	return 0, 0, false
}

// nextLF is the offset of the first line feed at or behind from, len(d) if
// there is none. lf is the previous answer for the same data, perhaps shorter
// then: without it, many lines that end in CR would each search all the rest.
func nextLF(d []byte, from, lf int) int {
	lf = max(lf, from)
	if lf == len(d) || d[lf] == '\n' {
		return lf
	}
	if i := bytes.IndexByte(d[lf:], '\n'); i >= 0 {
		return lf + i
	}
	return len(d)
}

// read fills the buffer with at least one byte. At the end of the stream it
// sets eof.
func (p *splitter) read() error {
	p.room()
	for range maxEmptyReads {
		n, err := p.r.Read(p.buf[len(p.buf):cap(p.buf)])
		p.buf = p.buf[:len(p.buf)+n]
		if err == io.EOF {
			p.eof = true
		}
		if n > 0 && err != nil && err != io.EOF {
			p.r = failed{err} // what came before the error is looked at first
			err = nil
		}
		if n > 0 || err != nil {
			return err
		}
	}
	return io.ErrNoProgress
}

// failed is a reader that has nothing left but its error.
type failed struct{ err error }

func (f failed) Read([]byte) (int, error) { return 0, f.err }

// room moves the unread bytes to the front of a buffer of fitting size.
func (p *splitter) room() {
	rest := p.buf[p.start:]
	size := cap(p.buf)
	switch {
	case size > keepBuffer && len(rest) < keepBuffer/2:
		size = minBuffer
	case size == 0:
		size = minBuffer
	}
	for size-len(rest) < minBuffer/4 {
		size *= 2
	}
	switch {
	case size != cap(p.buf):
		p.buf = append(make([]byte, 0, size), rest...)
	case p.start > 0 && cap(p.buf)-len(p.buf) < minBuffer/4 || len(rest) == 0:
		p.buf = append(p.buf[:0], rest...)
	default:
		return
	}
	p.line -= p.start
	p.scanned -= p.start
	p.lf = max(0, p.lf-p.start)
	p.start = 0
}

const byteOrderMark = "\xEF\xBB\xBF"

// parse reads the fields of one event.
func (p *splitter) parse(raw []byte) Event {
	e := Event{Raw: raw, Comment: true}
	lines, lf := 0, 0
	for rest := bytes.TrimPrefix(raw, []byte(byteOrderMark)); len(rest) > 0; {
		var line []byte
		line, rest, lf = cutLine(rest, lf)
		if len(line) == 0 || line[0] == ':' {
			continue
		}
		e.Comment = false
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(name) {
		case "data":
			switch lines++; lines {
			case 1:
				e.Data = value
			case 2: // rare: only now the lines are copied together
				p.joined = append(p.joined[:0], e.Data...)
				fallthrough
			default:
				p.joined = append(append(p.joined, '\n'), value...)
				e.Data = p.joined
			}
		case "event":
			if p.lastName != string(value) {
				p.lastName = string(value)
			}
			e.Name = p.lastName
		}
	}
	if cap(p.joined) > keepBuffer && lines < 2 {
		p.joined = nil
	}
	return e
}

// cutLine splits off the first line, without its end. lf is the answer for the
// line before, 0 at first.
func cutLine(d []byte, lf int) (line, rest []byte, next int) {
	lf = nextLF(d, 0, lf)
	text, after := lf, min(lf+1, len(d))
	if cr := bytes.IndexByte(d[:lf], '\r'); cr >= 0 {
		text = cr
		if cr+1 < lf { // a CR of its own
			after = cr + 1
		}
	}
	return d[:text], d[after:], max(0, lf-after)
}
