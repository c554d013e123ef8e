package openai

import (
	"bytes"
	"slices"
)

// call collects one tool call.
type call struct {
	index     int
	id, typ   []byte // raw, nil until known
	name      joined
	arguments joined
	function  fields // members of function not known here
	extra     fields // members of the call not known here
}

func (c *choice) addCalls(raw []byte) (grown int) {
	s := scanner{data: raw, lax: true}
	s.array(func() bool {
		object := s.kind() == kindObject
		value, ok := s.value()
		if ok && object {
			grown += c.addCall(value)
		}
		return ok
	})
	return grown
}

func (c *choice) addCall(raw []byte) (grown int) {
	o, err := parseLax(raw, nil)
	if err != nil {
		return 0
	}
	before := len(c.calls)
	t := c.call(&o)
	grown = 256 * (len(c.calls) - before) // bounds their number too
	for i := range o.members {
		m := &o.members[i]
		value := o.raw(m)
		switch string(m.key) {
		case "index":
		case "id":
			grown += setOnce(&t.id, m.kind, value)
		case "type":
			grown += setOnce(&t.typ, m.kind, value)
		case "function":
			if m.kind == kindObject {
				grown += t.addFunction(value)
			}
		default:
			grown += t.extra.keep(m.key, value)
		}
	}
	return grown
}

// call finds the call a piece belongs to: by index; without one, a piece with
// a new id begins a call and any other continues the last.
func (c *choice) call(o *object) *call {
	var last *call
	index := 0
	if len(c.calls) > 0 {
		last = c.calls[len(c.calls)-1]
		index = last.index
	}
	if m := o.find("index"); m != nil && m.kind == kindNumber {
		index = toInt(o.raw(m))
	} else if m := o.find("id"); m != nil && m.kind == kindString && last != nil && last.id != nil && !bytes.Equal(last.id, o.raw(m)) {
		index++
	}
	i, found := slices.BinarySearchFunc(c.calls, index, func(t *call, index int) int { return t.index - index })
	if !found {
		c.calls = slices.Insert(c.calls, i, &call{index: index})
	}
	return c.calls[i]
}

// setOnce keeps the first string that is not empty: ids come with the first
// piece, and some servers repeat them empty.
func setOnce(dst *[]byte, k kind, raw []byte) int {
	if *dst != nil || k != kindString || len(raw) == 2 {
		return 0
	}
	*dst = bytes.Clone(raw)
	return len(raw)
}

func (t *call) addFunction(raw []byte) (grown int) {
	o, err := parseLax(raw, nil)
	if err != nil {
		return 0
	}
	for i := range o.members {
		m := &o.members[i]
		value := o.raw(m)
		switch string(m.key) {
		case "name":
			// Some servers repeat the whole name with each piece.
			if m.kind == kindString && bytes.Equal(t.name.buf, value[1:len(value)-1]) {
				continue
			}
			grown += t.name.add(m.kind, value)
		case "arguments":
			grown += t.arguments.add(m.kind, value)
		default:
			grown += t.function.keep(m.key, value)
		}
	}
	return grown
}

// append writes the call in llama-server's order. Unstreamed calls have no index.
func (t *call) append(dst []byte) []byte {
	typ := t.typ
	if typ == nil {
		typ = []byte(`"function"`)
	}
	dst = append(appendName(append(dst, '{'), "type"), typ...)
	dst = append(dst, `,"function":`...)
	dst = t.appendFunction(dst)
	if t.id != nil {
		dst = append(appendName(append(dst, ','), "id"), t.id...)
	}
	return append(t.extra.append(dst), '}')
}

func (t *call) appendFunction(dst []byte) []byte {
	dst = t.name.appendString(append(dst, `{"name":`...))
	dst = t.arguments.appendString(append(dst, `,"arguments":`...))
	return append(t.function.append(dst), '}')
}
