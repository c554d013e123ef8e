package openai

import "encoding/json"

// Field is one member to put into a request. Name must be UTF-8 and Raw one
// valid JSON value; it is inserted as it is. An empty Raw means null.
type Field struct {
	Name string
	Raw  json.RawMessage
}

// Edits are the changes between what a caller sent and what the engine gets.
// A later one wins over an earlier: Drop, Defaults, Set, Model, IncludeUsage;
// and in a list that names a member twice, the last entry counts.
type Edits struct {
	// Model replaces the model; "" keeps the caller's.
	Model string
	// Defaults are used where the caller did not give the member; null counts
	// as given. When both are objects, members missing in the caller's are
	// added to it, one level deep.
	Defaults []Field
	// Set replaces or adds.
	Set []Field
	// IncludeUsage makes stream_options.include_usage true and keeps what else
	// stream_options holds.
	IncludeUsage bool
	// Drop removes what the caller gave.
	Drop []string
}

// Splice returns the body with the edits made. All bytes outside of them are
// the caller's, in the caller's order; new members follow the last one. The
// result is valid JSON if every Raw is. Without a change it is the body
// itself, so the caller must not write to it.
func (h *Head) Splice(e Edits) []byte {
	ops := e.ops()
	if len(ops) == 0 {
		return h.object.data
	}
	size := len(h.object.data)
	for i := range ops {
		size += len(ops[i].name) + len(ops[i].raw) + 8
	}
	return h.object.splice(make([]byte, 0, size), ops)
}

// mode says what an op does to a member.
type mode uint8

const (
	set  mode = iota // replace, or add
	add              // add where missing, else leave alone
	fill             // add where missing, else merge objects
	nest             // apply inner to an object, else set
	drop             // remove
)

// op is one change to one member of an object. An object is given at most one
// op per name.
type op struct {
	name  string
	mode  mode
	raw   []byte // the new value
	inner []op   // for nest
}

// ops flattens the edits to one op a member.
func (e *Edits) ops() []op {
	var ops []op
	put := func(o op) {
		if len(o.raw) == 0 && o.mode != drop {
			o.raw = []byte("null")
		}
		if i := indexOp(ops, []byte(o.name)); i >= 0 {
			ops[i] = o
			return
		}
		ops = append(ops, o)
	}
	for _, name := range e.Drop {
		put(op{name: name, mode: drop})
	}
	for _, f := range e.Defaults {
		// A dropped member was never given: its default takes its place.
		m := fill
		if i := indexOp(ops, []byte(f.Name)); i >= 0 && ops[i].mode != fill {
			m = set
		}
		put(op{name: f.Name, mode: m, raw: f.Raw})
	}
	for _, f := range e.Set {
		put(op{name: f.Name, mode: set, raw: f.Raw})
	}
	if e.Model != "" {
		put(op{name: "model", mode: set, raw: appendQuoted(nil, e.Model)})
	}
	if e.IncludeUsage {
		put(e.usageOp(ops))
	}
	return ops
}

// usageOp asks for usage inside whatever stream_options becomes.
func (e *Edits) usageOp(ops []op) op {
	const name = "stream_options"
	alone := []byte(`{"include_usage":true}`)
	include := []op{{name: "include_usage", mode: set, raw: []byte("true")}}
	i := indexOp(ops, []byte(name))
	if i < 0 {
		return op{name: name, mode: nest, raw: alone, inner: include}
	}
	given := alone // what stands when the caller has none
	if o, err := parseLax(ops[i].raw, nil); err == nil {
		given = o.splice(nil, include)
	}
	if ops[i].mode != fill {
		return op{name: name, mode: set, raw: given}
	}
	// A default for stream_options: the caller's object, filled up.
	return op{name: name, mode: nest, raw: given, inner: append(fillers(ops[i].raw, "include_usage"), include...)}
}

// fillers are the ops that add an object's members where they are missing,
// but for the member called except. One level deep: inner objects are not merged.
func fillers(raw []byte, except string) []op {
	o, err := parseLax(raw, nil)
	if err != nil {
		return nil
	}
	var ops []op
	for i := range o.members {
		if m := &o.members[i]; string(m.key) != except && indexOp(ops, m.key) < 0 {
			ops = append(ops, op{name: string(m.key), mode: add, raw: o.raw(m)})
		}
	}
	return ops
}

func indexOp(ops []op, name []byte) int {
	for i := range ops {
		if ops[i].name == string(name) {
			return i
		}
	}
	return -1
}

// splice appends the object's text, surrounding space included, with ops applied.
func (o *object) splice(dst []byte, ops []op) []byte {
	if len(o.members) == 0 {
		dst = append(dst, o.data[:o.open+1]...)
		dst = o.add(dst, ops, false)
		return append(dst, o.data[o.open+1:]...)
	}
	dst = append(dst, o.data[:o.members[0].at]...)
	written := false
	for i := range o.members {
		m := &o.members[i]
		k := indexOp(ops, m.key)
		if k >= 0 && ops[k].mode == drop {
			continue
		}
		if written { // the comma, and the space around it, that stood before m
			dst = append(dst, o.data[o.members[i-1].end:m.at]...)
		}
		written = true
		dst = append(dst, o.data[m.at:m.start]...)
		if k < 0 {
			dst = append(dst, o.raw(m)...)
		} else {
			dst = ops[k].apply(dst, o.raw(m), m.kind)
		}
	}
	dst = o.add(dst, ops, written)
	return append(dst, o.data[o.members[len(o.members)-1].end:]...)
}

// add appends the members that ops bring and the object lacks.
func (o *object) add(dst []byte, ops []op, comma bool) []byte {
	for i := range ops {
		p := &ops[i]
		if p.mode == drop || o.find(p.name) != nil {
			continue
		}
		if comma {
			dst = append(dst, ',')
		}
		comma = true
		dst = appendQuoted(dst, p.name)
		dst = append(dst, ':')
		dst = append(dst, p.raw...)
	}
	return dst
}

// apply appends what becomes of a member's value.
func (p *op) apply(dst, raw []byte, k kind) []byte {
	inner := p.inner
	switch p.mode {
	case add:
		return append(dst, raw...)
	case fill:
		if k == kindObject {
			inner = fillers(p.raw, "")
		}
		if len(inner) == 0 {
			return append(dst, raw...)
		}
	case nest:
		if k != kindObject {
			return append(dst, p.raw...)
		}
	case set, drop:
		return append(dst, p.raw...)
	}
	o, err := parseLax(raw, nil)
	if err != nil { // cannot be: raw is a part of valid JSON
		return append(dst, raw...)
	}
	return o.splice(dst, inner)
}
