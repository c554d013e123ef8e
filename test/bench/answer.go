package bench

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// Bounds on what a server under test may make the generator hold.
const (
	maxAnswerBytes = 16 << 20
	maxEventBytes  = 1 << 20
)

var (
	errTruncated = errors.New("truncated")
	errMalformed = errors.New("malformed")
	errTooLong   = errors.New("answer too long")
)

// streamError is an error event inside a stream whose status was 200.
type streamError struct{ code string }

func (e *streamError) Error() string { return "stream error " + e.code }

type usage struct {
	PromptTokens     int64 `json:"prompt_tokens"`
	CompletionTokens int64 `json:"completion_tokens"`
}

type text struct {
	Content          string `json:"content"`
	ReasoningContent string `json:"reasoning_content"`
}

type choice struct {
	Message      *text  `json:"message"`
	Delta        *text  `json:"delta"`
	Text         string `json:"text"`
	FinishReason string `json:"finish_reason"`
}

func (c choice) content() string {
	switch {
	case c.Delta != nil:
		return c.Delta.ReasoningContent + c.Delta.Content
	case c.Message != nil:
		return c.Message.Content
	default:
		return c.Text
	}
}

// payload is the part of an answer, or of one event, that is measured.
type payload struct {
	Choices []choice `json:"choices"`
	Usage   *usage   `json:"usage"`
	Error   *struct {
		Code json.RawMessage `json:"code"` // a string at OpenAI, a number at llama-server
		Type string          `json:"type"`
	} `json:"error"`
}

// answer is one complete answer as the caller saw it.
type answer struct {
	text   string // kept only when somebody verifies it
	usage  usage
	pieces []time.Time // when each event with content arrived; streams only
}

// readJSON reads an unstreamed answer to its end.
func readJSON(r io.Reader) (answer, error) {
	raw, err := io.ReadAll(io.LimitReader(r, maxAnswerBytes+1))
	if err != nil {
		return answer{}, fmt.Errorf("%w: %w", errTruncated, err)
	}
	if len(raw) > maxAnswerBytes {
		return answer{}, errTooLong
	}
	var p payload
	if err := json.Unmarshal(raw, &p); err != nil {
		return answer{}, errMalformed
	}
	if p.Error != nil {
		return answer{}, p.streamError()
	}
	if len(p.Choices) == 0 || p.Choices[0].FinishReason == "" {
		return answer{}, errMalformed
	}
	a := answer{text: p.Choices[0].content()}
	if p.Usage != nil {
		a.usage = *p.Usage
	}
	return a, nil
}

// readStream reads a streamed answer to its end. Only a finish reason followed
// by [DONE] makes it complete. The answer's text is gathered when keep is set.
func readStream(r io.Reader, keep bool) (answer, error) {
	var (
		a        answer
		b        strings.Builder
		finished bool
		total    int
	)
	lines := bufio.NewReaderSize(r, 16<<10)
	for {
		data, err := nextData(lines)
		if err != nil {
			return a, err
		}
		if total += len(data); total > maxAnswerBytes {
			return a, errTooLong
		}
		if string(data) == "[DONE]" {
			if !finished {
				return a, errTruncated
			}
			a.text = b.String()
			return a, nil
		}
		var p payload
		if err := json.Unmarshal(data, &p); err != nil {
			return a, errMalformed
		}
		if p.Error != nil {
			return a, p.streamError()
		}
		if p.Usage != nil {
			a.usage = *p.Usage
		}
		for _, c := range p.Choices {
			finished = finished || c.FinishReason != ""
			piece := c.content()
			if piece == "" {
				continue
			}
			a.pieces = append(a.pieces, time.Now())
			if keep {
				b.WriteString(piece)
			}
		}
	}
}

// nextData returns the data of the next event, skipping comments and other
// fields. It relies on one property of OpenAI's dialect: an event has exactly
// one data line. The bytes are valid until the next call.
func nextData(r *bufio.Reader) ([]byte, error) {
	for {
		line, err := r.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			line, err = longLine(r, line)
		}
		if errors.Is(err, errTooLong) {
			return nil, err
		}
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errTruncated, err)
		}
		if data, ok := bytes.CutPrefix(line, []byte("data:")); ok {
			return bytes.TrimSpace(data), nil
		}
	}
}

// longLine completes a line that did not fit the reader's buffer.
func longLine(r *bufio.Reader, start []byte) ([]byte, error) {
	line := bytes.Clone(start)
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		if len(line) > maxEventBytes {
			return nil, errTooLong
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}

func (p payload) streamError() error {
	code := strings.Trim(string(p.Error.Code), `"`)
	if code == "" || code == "null" {
		code = p.Error.Type
	}
	if len(code) > 64 {
		code = code[:64]
	}
	return &streamError{code: code}
}
