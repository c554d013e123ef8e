package openai

// maxMembers bounds the members of an object that is taken apart. A chat
// request has about forty; without a bound a 10 MiB body could hold a million
// of them, each costing a record.
const maxMembers = 1024

const tooManyMembers = "too many members in an object"

// member is where one member of an object stands.
type member struct {
	key        []byte // unescaped
	at         int    // offset of the key's opening quote
	start, end int    // the value
	kind       kind
}

// object is a JSON object whose members have been located.
type object struct {
	data        []byte
	open, close int // offsets of the braces
	members     []member
}

// raw is the bytes of m's value.
func (o *object) raw(m *member) []byte { return o.data[m.start:m.end] }

// find returns the last member of that name, the one parsers let win, or nil.
func (o *object) find(name string) *member {
	for i := len(o.members) - 1; i >= 0; i-- {
		if m := &o.members[i]; string(m.key) == name {
			return m
		}
	}
	return nil
}

// parseStrict reads a caller's JSON text, which must be one object without
// duplicate members. Errors carry the member they are in.
func parseStrict(data []byte) (object, *syntaxError) {
	o := object{data: data, members: make([]member, 0, 16)}
	s := scanner{data: data}
	var inside []byte
	var seen map[string]struct{}
	ok := s.root(&o, func(key []byte, at int) bool {
		inside = key
		switch {
		case len(o.members) >= maxMembers:
			s.pos = at
			return s.fail(tooManyMembers)
		case duplicate(o.members, &seen, key):
			s.pos = at
			return s.fail("member given twice")
		}
		start := s.pos
		k := s.kind()
		if !s.skip() {
			return false
		}
		o.members = append(o.members, member{key: key, at: at, start: start, end: s.pos, kind: k})
		inside = nil
		return true
	})
	if ok {
		return o, nil
	}
	if len(inside) <= 64 { // longer is no parameter anyone knows
		s.err.Param = string(inside)
	}
	return o, s.err
}

// parseLax reads an engine's JSON text, which must be one object, or an object
// that has been validated before. It appends to buf. Duplicates are kept.
func parseLax(data []byte, buf []member) (object, *syntaxError) {
	o := object{data: data}
	s := scanner{data: data, lax: true}
	o.members = buf
	s.root(&o, func(key []byte, at int) bool {
		if len(o.members) >= maxMembers {
			return s.fail(tooManyMembers)
		}
		start := s.pos
		k := s.kind()
		if !s.skip() {
			return false
		}
		o.members = append(o.members, member{key: key, at: at, start: start, end: s.pos, kind: k})
		return true
	})
	return o, s.err
}

// root walks the one object that is the whole text, recording its braces.
func (s *scanner) root(o *object, fn func(key []byte, at int) bool) bool {
	s.space()
	switch s.kind() {
	case kindObject:
	case kindNone:
		if s.pos >= len(s.data) {
			return s.fail("the text is empty")
		}
		return s.fail("unexpected character where a JSON object should start")
	default:
		return s.fail("the top level is not a JSON object")
	}
	o.open = s.pos
	if !s.object(fn) {
		return false
	}
	o.close = s.pos - 1
	s.space()
	if s.pos < len(s.data) {
		return s.fail("unexpected data after the JSON object")
	}
	return true
}

// duplicate reports whether key is among members. Beyond a few members it
// keeps a set, so that a hostile body stays linear.
func duplicate(members []member, seen *map[string]struct{}, key []byte) bool {
	const few = 32
	if len(members) < few {
		for i := range members {
			if string(members[i].key) == string(key) {
				return true
			}
		}
		return false
	}
	if *seen == nil {
		*seen = make(map[string]struct{}, 2*few)
		for i := range members {
			(*seen)[string(members[i].key)] = struct{}{}
		}
	}
	_, twice := (*seen)[string(key)]
	(*seen)[string(key)] = struct{}{}
	return twice
}
