package openai

import (
	"fmt"
)

// maxDepth bounds the nesting of arrays and objects. llama-server's own parser
// recurses without a limit, so this also protects the phone.
const maxDepth = 128

// kind is the type of a JSON value, known from its first byte.
type kind uint8

const (
	kindNone kind = iota // no value starts here
	kindNull
	kindBool
	kindNumber
	kindString
	kindArray
	kindObject
)

func kindOf(c byte) kind {
	switch c {
	case '"':
		return kindString
	case '{':
		return kindObject
	case '[':
		return kindArray
	case 't', 'f':
		return kindBool
	case 'n':
		return kindNull
	case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		return kindNumber
	}
	return kindNone
}

// syntaxError says where JSON stops being valid, and why.
type syntaxError struct {
	Offset int    // bytes from the start of the scanned data
	Param  string // top-level member being read, "" outside of one
	Reason string // fixed text, never a piece of the data
}

func (e *syntaxError) Error() string {
	return fmt.Sprintf("%s at byte %d", e.Reason, e.Offset)
}

// scanner walks JSON text once, validating as it goes. Its methods return
// false when the text is wrong, with err set, or when a callback stopped the
// walk, with err nil. In both cases the scanner is finished.
type scanner struct {
	data  []byte
	pos   int
	depth int
	lax   bool // accept bad UTF-8 and lone surrogate escapes: engines send them
	err   *syntaxError
}

func (s *scanner) fail(reason string) bool {
	if s.err == nil {
		s.err = &syntaxError{Offset: s.pos, Reason: reason}
	}
	return false
}

func (s *scanner) space() {
	for s.pos < len(s.data) {
		switch s.data[s.pos] {
		case ' ', '\n', '\r', '\t':
			s.pos++
		default:
			return
		}
	}
}

// at reports whether the next byte is c.
func (s *scanner) at(c byte) bool {
	return s.pos < len(s.data) && s.data[s.pos] == c
}

// kind is the type of the value that starts at the current position.
func (s *scanner) kind() kind {
	if s.pos >= len(s.data) {
		return kindNone
	}
	return kindOf(s.data[s.pos])
}

// skip validates one value and moves behind it.
func (s *scanner) skip() bool {
	switch s.kind() {
	case kindString:
		return s.str()
	case kindNumber:
		return s.number()
	case kindObject:
		return s.object(nil)
	case kindArray:
		return s.array(nil)
	case kindNull:
		return s.literal("null")
	case kindBool:
		if s.data[s.pos] == 't' {
			return s.literal("true")
		}
		return s.literal("false")
	default:
		if s.pos >= len(s.data) {
			return s.fail("unexpected end of JSON, a value is missing")
		}
		return s.fail("unexpected character where a value should start")
	}
}

// value is skip, returning the bytes of the value.
func (s *scanner) value() ([]byte, bool) {
	start := s.pos
	if !s.skip() {
		return nil, false
	}
	return s.data[start:s.pos], true
}

func (s *scanner) literal(word string) bool {
	if len(s.data)-s.pos < len(word) || string(s.data[s.pos:s.pos+len(word)]) != word {
		return s.fail("invalid literal, expected true, false or null")
	}
	s.pos += len(word)
	return true
}

func (s *scanner) digits() bool {
	start := s.pos
	for s.pos < len(s.data) && s.data[s.pos]-'0' <= 9 {
		s.pos++
	}
	return s.pos > start
}

func (s *scanner) number() bool {
	if s.at('-') {
		s.pos++
	}
	if s.at('0') {
		s.pos++
	} else if !s.digits() {
		return s.fail("invalid number")
	}
	if s.at('.') {
		s.pos++
		if !s.digits() {
			return s.fail("invalid number, digits are missing after the point")
		}
	}
	if s.at('e') || s.at('E') {
		s.pos++
		if s.at('+') || s.at('-') {
			s.pos++
		}
		if !s.digits() {
			return s.fail("invalid number, digits are missing in the exponent")
		}
	}
	return true
}

func (s *scanner) enter() bool {
	if s.depth++; s.depth > maxDepth {
		return s.fail(fmt.Sprintf("JSON nested deeper than %d levels", maxDepth))
	}
	s.pos++
	s.space()
	return true
}

func (s *scanner) leave() bool {
	s.pos++
	s.depth--
	return true
}

// object walks the object that starts here. For each member it calls fn with
// the unescaped key (valid until the data changes) and the offset of the
// key's opening quote; the scanner then stands at the value and fn must
// consume it. A nil fn skips all values.
func (s *scanner) object(fn func(key []byte, at int) bool) bool {
	if !s.enter() {
		return false
	}
	if s.at('}') {
		return s.leave()
	}
	for {
		at := s.pos
		if !s.at('"') {
			return s.fail("expected a member name in double quotes")
		}
		if !s.str() {
			return false
		}
		end := s.pos
		s.space()
		if !s.at(':') {
			return s.fail("expected ':' after a member name")
		}
		s.pos++
		s.space()
		if fn == nil {
			if !s.skip() {
				return false
			}
		} else if !fn(unquote(s.data[at:end]), at) {
			return false
		}
		s.space()
		switch {
		case s.at('}'):
			return s.leave()
		case !s.at(','):
			return s.fail("expected ',' or '}' after a member of an object")
		}
		s.pos++
		s.space()
	}
}

// array walks the array that starts here, calling fn with the scanner at each
// element; fn must consume it. A nil fn skips all elements.
func (s *scanner) array(fn func() bool) bool {
	if !s.enter() {
		return false
	}
	if s.at(']') {
		return s.leave()
	}
	for {
		if fn == nil {
			if !s.skip() {
				return false
			}
		} else if !fn() {
			return false
		}
		s.space()
		switch {
		case s.at(']'):
			return s.leave()
		case !s.at(','):
			return s.fail("expected ',' or ']' after an element of an array")
		}
		s.pos++
		s.space()
	}
}
