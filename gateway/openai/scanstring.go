package openai

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"unicode/utf16"
	"unicode/utf8"
)

// Eight bytes are looked at together: a body is mostly long strings, and byte
// by byte this loop would be most of the gateway's work on a large one.
const (
	everyByte = 0x0101010101010101
	highBits  = 0x80 * everyByte
)

// stops marks (by its high bit) the first byte of w that ends a run of plain
// string bytes: a quote, a backslash or a control character. Higher marks may
// be false, the lowest never is.
func stops(w uint64) uint64 {
	quote := w ^ '"'*everyByte
	slash := w ^ '\\'*everyByte
	return ((quote-everyByte)&^quote | (slash-everyByte)&^slash | (w-' '*everyByte)&^w) & highBits
}

// str validates the string that starts here and moves behind it.
func (s *scanner) str() bool {
	d := s.data
	start := s.pos + 1
	i := start
	var high uint64 // collects the high bits of what was read: is any of it not ASCII?
	for {
		for i+8 <= len(d) {
			w := binary.LittleEndian.Uint64(d[i:])
			high |= w
			if m := stops(w); m != 0 {
				i += bits.TrailingZeros64(m) / 8
				break
			}
			i += 8
		}
		if i >= len(d) {
			s.pos = len(d)
			return s.fail("unexpected end of JSON inside a string")
		}
		switch c := d[i]; {
		case c == '"':
			if high&highBits != 0 && !s.lax && !utf8.Valid(d[start:i]) {
				s.pos = start + invalidUTF8(d[start:i])
				return s.fail("invalid UTF-8 in a string")
			}
			s.pos = i + 1
			return true
		case c == '\\':
			s.pos = i
			if !s.escape() {
				return false
			}
			i = s.pos
		case c < ' ':
			s.pos = i
			return s.fail("unescaped control character in a string")
		default: // fewer than eight bytes are left
			high |= uint64(c)
			i++
		}
	}
}

// escape validates the escape sequence that starts here.
func (s *scanner) escape() bool {
	d := s.data[s.pos:]
	if len(d) < 2 {
		s.pos = len(s.data)
		return s.fail("unexpected end of JSON inside a string")
	}
	switch d[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		s.pos += 2
		return true
	case 'u':
	default:
		return s.fail("invalid escape in a string")
	}
	r, ok := hex4(d)
	if !ok {
		return s.fail("invalid \\u escape in a string")
	}
	if !utf16.IsSurrogate(r) || s.lax {
		s.pos += 6
		return true
	}
	low, ok := hex4(d[6:])
	if !ok || utf16.DecodeRune(r, low) == utf8.RuneError {
		return s.fail("half of a surrogate pair in a \\u escape")
	}
	s.pos += 12
	return true
}

// hex4 reads a \uXXXX escape at the start of d.
func hex4(d []byte) (rune, bool) {
	if len(d) < 6 || d[0] != '\\' || d[1] != 'u' {
		return 0, false
	}
	var r rune
	for _, c := range d[2:6] {
		switch {
		case c-'0' <= 9:
			c -= '0'
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			c = (c | 0x20) - 'a' + 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

func invalidUTF8(d []byte) int {
	for i := 0; i < len(d); {
		r, n := utf8.DecodeRune(d[i:])
		if r == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
	return len(d)
}

// unquote decodes a string token that the scanner has accepted, quotes
// included. Without escapes the result shares the token's memory. A lone
// surrogate becomes U+FFFD.
func unquote(token []byte) []byte {
	body := token[1 : len(token)-1]
	i := bytes.IndexByte(body, '\\')
	if i < 0 {
		return body
	}
	out := make([]byte, 0, len(body))
	for i >= 0 {
		out = append(out, body[:i]...)
		body = body[i:]
		r, n := unescape(body)
		out = utf8.AppendRune(out, r)
		body = body[n:]
		i = bytes.IndexByte(body, '\\')
	}
	return append(out, body...)
}

// unescape decodes the escape sequence at the start of d and returns how many
// bytes it takes.
func unescape(d []byte) (r rune, n int) {
	switch d[1] {
	case 'b':
		return '\b', 2
	case 'f':
		return '\f', 2
	case 'n':
		return '\n', 2
	case 'r':
		return '\r', 2
	case 't':
		return '\t', 2
	case 'u':
	default:
		return rune(d[1]), 2
	}
	r, _ = hex4(d)
	if !utf16.IsSurrogate(r) {
		return r, 6
	}
	low, _ := hex4(d[6:])
	if pair := utf16.DecodeRune(r, low); pair != utf8.RuneError {
		return pair, 12
	}
	return utf8.RuneError, 6
}

// unquotedLen is len(unquote(token)) without decoding it.
func unquotedLen(token []byte) int {
	body := token[1 : len(token)-1]
	n := len(body)
	for {
		i := bytes.IndexByte(body, '\\')
		if i < 0 {
			return n
		}
		r, size := unescape(body[i:])
		n += utf8.RuneLen(r) - size
		body = body[i+size:]
	}
}

const hexDigits = "0123456789abcdef"

// appendQuoted appends s as a JSON string. Bytes that are not UTF-8 become
// U+FFFD.
func appendQuoted(dst []byte, s string) []byte {
	dst = append(dst, '"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			dst = append(dst, '\\', byte(r))
		case r == '\n':
			dst = append(dst, '\\', 'n')
		case r < ' ':
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[r>>4], hexDigits[r&15])
		default:
			dst = utf8.AppendRune(dst, r)
		}
	}
	return append(dst, '"')
}
