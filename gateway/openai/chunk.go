package openai

import (
	"fmt"
	"math"
	"strconv"
)

// Chunk is what one event of a stream, or a whole unstreamed answer, says.
type Chunk struct {
	// Content says that a choice delivers something to the caller: text,
	// reasoning, a refusal, audio or a piece of a tool call.
	Content bool
	// Text is the size of what is delivered, decoded, in bytes. Tool call
	// arguments count, names do not.
	Text int
	// Choices is how many choices the chunk mentions; a chunk that only brings
	// usage has none.
	Choices int
	// Finished says that a choice carries a finish reason.
	Finished bool
	// FinishedSet has bit i set when choice i finished here. A stream is whole
	// when the union over its chunks holds all choices and [DONE] came.
	// Indexes above 63 are in no set.
	FinishedSet uint64

	Usage    *Usage         // nil when absent or null
	Timings  *Timings       // nil when absent or null
	Progress *Progress      // nil when absent or null
	Err      *UpstreamError // the engine reports a failure instead of an answer
}

// Usage counts tokens, as the engine gave them.
type Usage struct {
	PromptTokens     int
	CompletionTokens int
	TotalTokens      int
	CachedTokens     int // part of PromptTokens
}

// Timings is llama-server's account of its work. PromptN excludes CacheN.
type Timings struct {
	CacheN      int
	PromptN     int
	PromptMS    float64
	PredictedN  int
	PredictedMS float64
}

// Progress is how far llama-server is with a prompt. Processed includes Cache.
type Progress struct {
	Total     int
	Cache     int
	Processed int
	TimeMS    float64
}

// ParseChunk reads the data of one event, or an unstreamed answer. What is
// missing, null or of another type than expected is taken for absent; only
// text that is not one JSON object is an error. [DONE] is not a chunk.
func ParseChunk(ep Endpoint, data []byte) (Chunk, error) {
	p := chunkParser{s: scanner{data: data, lax: true}, text: ep == Completions}
	var o object
	if !p.s.root(&o, p.member) {
		return Chunk{}, fmt.Errorf("parse chunk: %w", p.s.err)
	}
	c := &p.c
	// vLLM and others put a failure flat into the event.
	if c.Err == nil && p.failure && c.Choices == 0 && c.Usage == nil {
		e := ParseUpstreamError(0, data)
		c.Err = &e
	}
	return p.c, nil
}

type chunkParser struct {
	s       scanner
	c       Chunk
	text    bool // choices carry text, not deltas
	failure bool // a member that only failures have
}

func (p *chunkParser) member(key []byte, _ int) bool {
	s, c := &p.s, &p.c
	k := s.kind()
	switch string(key) {
	case "choices":
		if k == kindArray {
			return s.array(p.choice)
		}
	case "usage":
		if k == kindObject {
			c.Usage = new(Usage)
			return c.Usage.read(s)
		}
	case "timings":
		if k == kindObject {
			c.Timings = new(Timings)
			return c.Timings.read(s)
		}
	case "prompt_progress":
		if k == kindObject {
			c.Progress = new(Progress)
			return c.Progress.read(s)
		}
	case "error":
		value, ok := s.value()
		if ok && !vacant(value) {
			e := parseError(value)
			c.Err = &e
		}
		return ok
	case "detail", "message":
		p.failure = true
	case "object":
		value, ok := s.value()
		p.failure = p.failure || ok && isString(value, "error")
		return ok
	}
	return s.skip()
}

func (p *chunkParser) choice() bool {
	s := &p.s
	position := p.c.Choices
	p.c.Choices++
	if s.kind() != kindObject {
		return s.skip()
	}
	index, finished := position, false
	ok := s.object(func(key []byte, _ int) bool {
		k := s.kind()
		switch string(key) {
		case "index":
			return s.int(&index)
		case "finish_reason":
			value, ok := s.value()
			finished = ok && k == kindString && len(value) > 2
			return ok
		case "delta", "message":
			if !p.text && k == kindObject {
				return s.object(p.delta)
			}
		case "text":
			if p.text && k == kindString {
				return p.string()
			}
		}
		return s.skip()
	})
	if finished {
		p.c.Finished = true
		if index >= 0 && index < 64 {
			p.c.FinishedSet |= 1 << index
		}
	}
	return ok
}

func (p *chunkParser) delta(key []byte, _ int) bool {
	s := &p.s
	switch k := s.kind(); string(key) {
	case "content", "reasoning_content", "reasoning", "refusal":
		if k == kindString {
			return p.string()
		}
		if k == kindArray { // content parts: nobody streams them, but they are content
			return p.some()
		}
	case "tool_calls":
		if k == kindArray {
			before := s.pos
			ok := s.array(p.toolCall)
			p.c.Content = p.c.Content || ok && !vacant(s.data[before:s.pos])
			return ok
		}
	case "function_call":
		if k == kindObject {
			p.c.Content = true
			return s.object(p.function)
		}
	case "audio":
		return p.some()
	}
	return s.skip()
}

// some takes any value that is not empty for content.
func (p *chunkParser) some() bool {
	value, ok := p.s.value()
	p.c.Content = p.c.Content || ok && !vacant(value)
	return ok
}

// string takes a text that the caller receives.
func (p *chunkParser) string() bool {
	value, ok := p.s.value()
	if ok && len(value) > 2 {
		p.c.Content = true
		p.c.Text += unquotedLen(value)
	}
	return ok
}

func (p *chunkParser) toolCall() bool {
	if p.s.kind() != kindObject {
		return p.s.skip()
	}
	return p.s.object(func(key []byte, _ int) bool {
		if string(key) == "function" && p.s.kind() == kindObject {
			return p.s.object(p.function)
		}
		return p.s.skip()
	})
}

func (p *chunkParser) function(key []byte, _ int) bool {
	if string(key) == "arguments" && p.s.kind() == kindString {
		return p.string()
	}
	return p.s.skip()
}

func (u *Usage) read(s *scanner) bool {
	return s.object(func(key []byte, _ int) bool {
		switch string(key) {
		case "prompt_tokens":
			return s.int(&u.PromptTokens)
		case "completion_tokens":
			return s.int(&u.CompletionTokens)
		case "total_tokens":
			return s.int(&u.TotalTokens)
		case "prompt_tokens_details":
			if s.kind() == kindObject {
				return s.object(func(key []byte, _ int) bool {
					if string(key) == "cached_tokens" {
						return s.int(&u.CachedTokens)
					}
					return s.skip()
				})
			}
		}
		return s.skip()
	})
}

func (t *Timings) read(s *scanner) bool {
	return s.object(func(key []byte, _ int) bool {
		switch string(key) {
		case "cache_n":
			return s.int(&t.CacheN)
		case "prompt_n":
			return s.int(&t.PromptN)
		case "prompt_ms":
			return s.float(&t.PromptMS)
		case "predicted_n":
			return s.int(&t.PredictedN)
		case "predicted_ms":
			return s.float(&t.PredictedMS)
		}
		return s.skip()
	})
}

func (p *Progress) read(s *scanner) bool {
	return s.object(func(key []byte, _ int) bool {
		switch string(key) {
		case "total":
			return s.int(&p.Total)
		case "cache":
			return s.int(&p.Cache)
		case "processed":
			return s.int(&p.Processed)
		case "time_ms":
			return s.float(&p.TimeMS)
		}
		return s.skip()
	})
}

// float reads a number; another kind of value leaves dst alone.
func (s *scanner) float(dst *float64) bool {
	number := s.kind() == kindNumber
	value, ok := s.value()
	if ok && number {
		if f, err := strconv.ParseFloat(string(value), 64); err == nil {
			*dst = f
		}
	}
	return ok
}

// int reads a number without its fraction, bounded to int32; another kind of
// value leaves dst alone.
func (s *scanner) int(dst *int) bool {
	k := s.kind()
	value, ok := s.value()
	if ok && k == kindNumber {
		*dst = toInt(value)
	}
	return ok
}

func toInt(number []byte) int {
	n := 0
	for _, c := range number {
		if c-'0' > 9 || len(number) > 9 { // not the plain small count it nearly always is
			f, _ := strconv.ParseFloat(string(number), 64)
			return int(max(math.MinInt32, min(f, math.MaxInt32)))
		}
		n = n*10 + int(c-'0')
	}
	return n
}
