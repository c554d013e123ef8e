package openai

import "strconv"

// ChunkEdits are the changes between what an engine sent and what the caller
// gets. The zero value changes nothing. They touch members that are there and
// add none.
type ChunkEdits struct {
	Model   string // the name the caller used; "" keeps the engine's
	ID      string // one id over several attempts; "" keeps
	Created int64  // Unix seconds; 0 keeps

	// Usage replaces the counts of a usage object and keeps its other members;
	// nil keeps the engine's. llama-server counts one choice of several.
	Usage *Usage

	DropUsage    bool
	DropTimings  bool
	DropProgress bool
}

// AppendChunk appends the data of one event, or a whole unstreamed answer,
// with the edits made to its top-level members. Everything else is the
// engine's bytes; what is not a JSON object is appended as it is.
func AppendChunk(dst, data []byte, e ChunkEdits) []byte {
	if e == (ChunkEdits{}) {
		return append(dst, data...)
	}
	var members [24]member
	o, err := parseLax(data, members[:0])
	if err != nil || len(o.members) == 0 {
		return append(dst, data...)
	}
	return appendEdited(dst, data, o.members, &e)
}

// appendEdited is splice for a fixed set of members, without building ops: it
// runs for every token. It takes the object apart because its array of members
// then stays on the caller's stack.
func appendEdited(dst, data []byte, members []member, e *ChunkEdits) []byte {
	dst = append(dst, data[:members[0].at]...)
	written := false
	for i := range members {
		m := &members[i]
		if e.drops(m) {
			continue
		}
		if written {
			dst = append(dst, data[members[i-1].end:m.at]...)
		}
		written = true
		dst = append(dst, data[m.at:m.start]...)
		raw := data[m.start:m.end]
		switch key := string(m.key); {
		case key == "model" && e.Model != "":
			dst = appendQuoted(dst, e.Model)
		case key == "id" && e.ID != "":
			dst = appendQuoted(dst, e.ID)
		case key == "created" && e.Created != 0:
			dst = strconv.AppendInt(dst, e.Created, 10)
		case key == "usage" && e.Usage != nil && m.kind == kindObject:
			dst = appendUsage(dst, raw, e.Usage)
		default:
			dst = append(dst, raw...)
		}
	}
	return append(dst, data[members[len(members)-1].end:]...)
}

func (e *ChunkEdits) drops(m *member) bool {
	switch string(m.key) {
	case "usage":
		return e.DropUsage
	case "timings":
		return e.DropTimings
	case "prompt_progress":
		return e.DropProgress
	}
	return false
}

func appendUsage(dst, raw []byte, u *Usage) []byte {
	o, err := parseLax(raw, nil)
	if err != nil { // cannot be: raw is a part of valid JSON
		return append(dst, raw...)
	}
	return o.splice(dst, []op{
		{name: "prompt_tokens", mode: set, raw: strconv.AppendInt(nil, int64(u.PromptTokens), 10)},
		{name: "completion_tokens", mode: set, raw: strconv.AppendInt(nil, int64(u.CompletionTokens), 10)},
		{name: "total_tokens", mode: set, raw: strconv.AppendInt(nil, int64(u.TotalTokens), 10)},
	})
}
