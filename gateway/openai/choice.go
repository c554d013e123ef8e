package openai

import (
	"bytes"
	"slices"
)

// choice collects one choice of an answer.
type choice struct {
	index  int
	finish []byte // raw, nil until known
	role   []byte // raw, nil until known

	text      joined // content, or text of a completion
	reasoning joined // reasoning_content
	thinking  joined // reasoning: the other name for it
	refusal   joined
	calls     []*call // by index
	function  *call   // the call of the old function_call member

	logprobs     fields // arrays are concatenated
	nullLogprobs bool
	delta        fields // members of delta not known here
	extra        fields // members of the choice not known here
}

// joined is a string in pieces, in its escaped form without quotes.
type joined struct {
	buf  []byte
	text bool // a string was seen, not only null
	null bool
}

func (j *joined) add(k kind, raw []byte) int {
	switch k {
	case kindString:
		j.text = true
		j.buf = append(j.buf, raw[1:len(raw)-1]...)
		return len(raw) - 2
	case kindNull:
		j.null = true
	default: // no engine sends anything else here, and it cannot be joined
	}
	return 0
}

// append writes ,"name":value, or nothing when the member was never seen.
func (j *joined) append(dst []byte, name string) []byte {
	switch {
	case j.text:
		dst = append(dst, ',')
		return j.appendString(appendName(dst, name))
	case j.null:
		dst = append(dst, ',')
		return append(appendName(dst, name), "null"...)
	}
	return dst
}

// appendString writes the text, "" when there was none.
func (j *joined) appendString(dst []byte) []byte {
	dst = append(dst, '"')
	dst = append(dst, j.buf...)
	return append(dst, '"')
}

// add takes one member of a choice and returns how many bytes more are held.
func (c *choice) add(ep Endpoint, key []byte, k kind, raw []byte) int {
	switch string(key) {
	case "index":
		return 0
	case "finish_reason":
		if k == kindString && len(raw) > 2 { // mnncli sends "" until the end
			c.finish = bytes.Clone(raw)
		}
		return 0
	case "delta", "message":
		if ep == ChatCompletions && k == kindObject {
			return c.addDelta(raw)
		}
	case "text":
		if ep == Completions {
			return c.text.add(k, raw)
		}
	case "logprobs":
		return c.addLogprobs(k, raw)
	}
	return c.extra.keep(key, raw)
}

func (c *choice) addDelta(raw []byte) (grown int) {
	var members [8]member
	o, err := parseLax(raw, members[:0])
	if err != nil {
		return 0
	}
	for i := range o.members {
		m := &o.members[i]
		value := raw[m.start:m.end]
		switch string(m.key) {
		case "role":
			if m.kind == kindString && c.role == nil {
				c.role = bytes.Clone(value)
			}
		case "content":
			grown += c.text.add(m.kind, value)
		case "reasoning_content":
			grown += c.reasoning.add(m.kind, value)
		case "reasoning":
			grown += c.thinking.add(m.kind, value)
		case "refusal":
			grown += c.refusal.add(m.kind, value)
		case "tool_calls":
			if m.kind == kindArray {
				grown += c.addCalls(value)
			}
		case "function_call":
			if m.kind == kindObject {
				if c.function == nil {
					c.function = &call{}
				}
				grown += c.function.addFunction(value)
			}
		default:
			grown += c.delta.keep(m.key, value)
		}
	}
	return grown
}

// addLogprobs concatenates: chat has content and refusal arrays, the old
// completion format four parallel ones.
func (c *choice) addLogprobs(k kind, raw []byte) (grown int) {
	if k != kindObject {
		c.nullLogprobs = true
		return 0
	}
	o, err := parseLax(raw, nil)
	if err != nil {
		return 0
	}
	for i := range o.members {
		m := &o.members[i]
		value := o.raw(m)
		if m.kind != kindArray {
			grown += c.logprobs.keep(m.key, value)
			continue
		}
		j := slices.IndexFunc(c.logprobs, func(f field) bool { return f.name == string(m.key) })
		if j < 0 || c.logprobs[j].raw[0] != '[' {
			grown += c.logprobs.keep(m.key, value)
			continue
		}
		before := c.logprobs[j].raw
		c.logprobs[j].raw = concatArrays(before, value)
		grown += len(value)
	}
	return grown
}

// concatArrays appends the elements of one JSON array to another.
func concatArrays(a, b []byte) []byte {
	switch {
	case vacant(b):
		return a
	case vacant(a):
		return append(a[:0], b...)
	}
	a[len(a)-1] = ','
	return append(a, b[1:]...)
}

// append writes the choice in the engine's own order of members.
func (c *choice) append(dst []byte, ep Endpoint) []byte {
	dst = append(dst, '{')
	if ep == Completions {
		dst = c.text.appendString(appendName(dst, "text"))
		dst = appendIndex(append(dst, ','), c.index)
		dst = c.appendLogprobs(dst)
		dst = append(appendName(append(dst, ','), "finish_reason"), c.finish...)
	} else {
		dst = append(appendName(dst, "finish_reason"), c.finish...)
		dst = appendIndex(append(dst, ','), c.index)
		dst = append(dst, `,"message":`...)
		dst = c.appendMessage(dst)
		dst = c.appendLogprobs(dst)
	}
	return append(c.extra.append(dst), '}')
}

func (c *choice) appendLogprobs(dst []byte) []byte {
	switch {
	case len(c.logprobs) > 0:
		dst = append(dst, `,"logprobs":`...)
		at := len(dst)
		dst = c.logprobs.append(dst)
		dst[at] = '{' // in place of the first comma
		return append(dst, '}')
	case c.nullLogprobs:
		return append(dst, `,"logprobs":null`...)
	}
	return dst
}

func (c *choice) appendMessage(dst []byte) []byte {
	role := c.role
	if role == nil {
		role = []byte(`"assistant"`)
	}
	dst = append(appendName(append(dst, '{'), "role"), role...)
	// llama-server says "" where it streamed null.
	dst = c.text.appendString(append(dst, `,"content":`...))
	dst = c.reasoning.append(dst, "reasoning_content")
	dst = c.thinking.append(dst, "reasoning")
	dst = c.refusal.append(dst, "refusal")
	if len(c.calls) > 0 {
		dst = append(dst, `,"tool_calls":[`...)
		for i, t := range c.calls {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = t.append(dst)
		}
		dst = append(dst, ']')
	}
	if c.function != nil {
		dst = append(dst, `,"function_call":`...)
		dst = c.function.appendFunction(dst)
	}
	return append(c.delta.append(dst), '}')
}
