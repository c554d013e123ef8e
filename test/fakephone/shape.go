package fakephone

import (
	"encoding/json"
	"time"
)

// shape makes the events and answers of one request, in the form of chat or of text completions.
type shape struct {
	chat             bool
	id, model, build string
	includeUsage     bool
}

// role is the chunk before the first content of a choice; text completions have none.
func (s shape) role(choice int) []byte {
	if !s.chat {
		return nil
	}
	return encode(s.chatChunk(choice, json.RawMessage(`{"role":"assistant","content":null}`), nil))
}

func (s shape) token(choice int, text string, t *timings) []byte {
	if !s.chat {
		c := s.textChunk(choice, text, nil)
		c.Timings = t
		return encode(c)
	}
	delta := encode(struct {
		Content string `json:"content"`
	}{text})
	c := s.chatChunk(choice, delta, nil)
	c.Timings = t
	return encode(c)
}

func (s shape) progress(p progress) []byte {
	if !s.chat {
		c := s.textChunk(0, "", nil)
		c.Progress = &p
		return encode(c)
	}
	c := s.chatChunk(0, json.RawMessage(`{"role":"assistant","content":null}`), nil)
	c.Progress = &p
	return encode(c)
}

// finish returns the last chunks of a choice: usage and timings are on the last of them.
func (s shape) finish(choice int, reason string, u usage, t timings) [][]byte {
	if !s.chat {
		c := s.textChunk(choice, "", &reason)
		c.Usage, c.Timings = &u, &t
		return [][]byte{encode(c)}
	}
	end := s.chatChunk(choice, json.RawMessage(`{}`), &reason)
	if !s.includeUsage {
		end.Timings = &t
		return [][]byte{encode(end)}
	}
	last := s.chatChunk(choice, nil, nil)
	last.Choices = []chunkChoice{}
	last.Usage, last.Timings = &u, &t
	return [][]byte{encode(end), encode(last)}
}

// answer is the body of an answer that is not streamed. usage and timings are those of the first choice.
func (s shape) answer(texts, reasons []string, u usage, t timings) []byte {
	if !s.chat {
		c := s.textChunk(0, "", nil)
		c.Choices = make([]textChoice, len(texts))
		for i := range texts {
			c.Choices[i] = textChoice{Text: texts[i], Index: i, FinishReason: &reasons[i]}
		}
		c.Usage, c.Timings = &u, &t
		return encode(c)
	}
	a := chatAnswer{
		Choices: make([]answerChoice, len(texts)), Created: time.Now().Unix(), Model: s.model, Fingerprint: s.build,
		Object: "chat.completion", Usage: u, ID: s.id, Timings: t,
	}
	for i := range texts {
		a.Choices[i] = answerChoice{FinishReason: reasons[i], Index: i, Message: answerMessage{Role: "assistant", Content: texts[i]}}
	}
	return encode(a)
}

func (s shape) chatChunk(choice int, delta json.RawMessage, reason *string) chatChunk {
	return chatChunk{
		Choices: []chunkChoice{{FinishReason: reason, Index: choice, Delta: delta}},
		Created: time.Now().Unix(), ID: s.id, Model: s.model, Fingerprint: s.build, Object: "chat.completion.chunk",
	}
}

func (s shape) textChunk(choice int, text string, reason *string) textChunk {
	return textChunk{
		Choices: []textChoice{{Text: text, Index: choice, FinishReason: reason}},
		Created: time.Now().Unix(), ID: s.id, Model: s.model, Fingerprint: s.build, Object: "text_completion",
	}
}
