package openai

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"
)

var (
	// ErrAnswerTooLarge means that the chunks hold more than the assembler may.
	ErrAnswerTooLarge = errors.New("openai: answer is larger than the limit")
	// ErrUnfinished means that a choice has no finish reason, or that there is
	// no choice: the stream was cut and no answer may be made of it.
	ErrUnfinished = errors.New("openai: answer is not finished")
)

// Assembler makes the unstreamed answer of streamed chunks. It keeps members
// it does not know, with their last value that is not null; strings are joined
// in their escaped form, so what an engine split inside a character or a
// surrogate pair comes out whole.
//
// Audio deltas are not joined: no engine behind the gateway streams them.
type Assembler struct {
	// Usage sums the usage of all choices. Set Usage.Prompts before the first
	// Add when the request holds several prompts.
	Usage UsageSum

	endpoint Endpoint
	limit    int
	size     int // bytes held
	choices  []*choice
	top      fields
}

// NewAssembler returns an assembler that holds at most about maxBytes.
func NewAssembler(ep Endpoint, maxBytes int) *Assembler {
	return &Assembler{endpoint: ep, limit: maxBytes}
}

// Add takes the data of one event and keeps none of its memory. [DONE] is
// ignored. An error event gives its *[UpstreamError], too much data
// [ErrAnswerTooLarge]; after an error the answer is lost.
func (a *Assembler) Add(data []byte) error {
	if (Event{Data: data}).Done() {
		return nil
	}
	chunk, err := ParseChunk(a.endpoint, data)
	if err != nil {
		return err
	}
	if chunk.Err != nil {
		return chunk.Err
	}
	a.Usage.Add(&chunk)
	var members [24]member
	o, serr := parseLax(data, members[:0])
	if serr != nil { // cannot be: ParseChunk has read it
		return serr
	}
	for i := range o.members {
		m := &o.members[i]
		value := data[m.start:m.end] // not o.raw: the members then stay on the stack
		switch string(m.key) {
		case "choices":
			if m.kind == kindArray {
				a.addChoices(value)
			}
		case "object", "prompt_progress": // only streams have these
		default:
			a.size += a.top.keep(m.key, value)
		}
	}
	if a.size > a.limit {
		return ErrAnswerTooLarge
	}
	return nil
}

func (a *Assembler) addChoices(raw []byte) {
	s := scanner{data: raw, lax: true}
	position := 0
	s.array(func() bool {
		object := s.kind() == kindObject
		value, ok := s.value()
		if ok && object {
			a.addChoice(value, position)
		}
		position++
		return ok
	})
}

func (a *Assembler) addChoice(raw []byte, position int) {
	var members [8]member
	o, err := parseLax(raw, members[:0])
	if err != nil {
		return
	}
	index := position // MNN sends none
	if m := o.find("index"); m != nil && m.kind == kindNumber {
		index = toInt(raw[m.start:m.end])
	}
	c := a.choice(index)
	for i := range o.members {
		m := &o.members[i]
		a.size += c.add(a.endpoint, m.key, m.kind, raw[m.start:m.end])
	}
}

// choice finds the choice of that index, or makes it, in order.
func (a *Assembler) choice(index int) *choice {
	i, found := slices.BinarySearchFunc(a.choices, index, func(c *choice, index int) int { return c.index - index })
	if !found {
		a.size += 512 // what an empty choice costs, so that their number is bounded too
		a.choices = slices.Insert(a.choices, i, &choice{index: index})
	}
	return a.choices[i]
}

// Body returns the answer as the engine would have sent it unstreamed, with
// the edits made. Usage is the sum over all choices. Without a finish reason
// for every choice seen it fails with [ErrUnfinished].
func (a *Assembler) Body(edits ChunkEdits) ([]byte, error) {
	if len(a.choices) == 0 {
		return nil, ErrUnfinished
	}
	b := append(make([]byte, 0, a.size+256), `{"choices":[`...)
	for i, c := range a.choices {
		if c.finish == nil {
			return nil, ErrUnfinished
		}
		if i > 0 {
			b = append(b, ',')
		}
		b = c.append(b, a.endpoint)
	}
	b = append(b, `],"object":"chat.completion"`...)
	if a.endpoint == Completions {
		b = append(b[:len(b)-len(`"chat.completion"`)], `"text_completion"`...)
	}
	b = a.top.append(b)
	b = append(b, '}')
	if total, ok := a.Usage.Total(); ok && a.Usage.records > 1 && edits.Usage == nil {
		edits.Usage = &total
	}
	if !utf8.Valid(b) { // streams are read leniently, an answer must be JSON
		b = bytes.ToValidUTF8(b, []byte("\uFFFD"))
	}
	return AppendChunk(nil, b, edits), nil
}

// fields are members in the order they were first seen.
type fields []field

type field struct {
	name string
	raw  []byte
}

// keep sets a member and returns by how many bytes the fields have grown. Null
// replaces nothing.
func (f *fields) keep(name, raw []byte) int {
	for i := range *f {
		g := &(*f)[i]
		if g.name != string(name) {
			continue
		}
		if raw[0] == 'n' || bytes.Equal(g.raw, raw) {
			return 0
		}
		grown := len(raw) - len(g.raw)
		g.raw = append(g.raw[:0], raw...)
		return grown
	}
	if len(*f) >= maxMembers {
		return math.MaxInt32 // over any limit
	}
	*f = append(*f, field{name: string(name), raw: bytes.Clone(raw)})
	return len(name) + len(raw) + 48
}

// append writes ,"name":value for each.
func (f fields) append(dst []byte) []byte {
	for i := range f {
		dst = append(dst, ',')
		dst = appendQuoted(dst, f[i].name)
		dst = append(dst, ':')
		dst = append(dst, f[i].raw...)
	}
	return dst
}

// appendName writes a name that needs no escapes.
func appendName(dst []byte, name string) []byte {
	dst = append(dst, '"')
	dst = append(dst, name...)
	return append(dst, `":`...)
}

func appendIndex(dst []byte, index int) []byte {
	return strconv.AppendInt(append(dst, `"index":`...), int64(index), 10)
}
