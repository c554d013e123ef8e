package fakephone

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
)

const (
	minAnswerTokens = 8
	maxAnswerTokens = 40
	hashDigits      = 12
	// maxLength bounds the LENGTH directive.
	maxLength = 1_000_000
	// tailWindow bounds how far back a completion prompt is searched for the beginning of an answer to continue.
	tailWindow = 16 << 10
)

// words are what answers are made of; only their number matters.
const words = "the phone reads a long prompt and answers in few plain words while every slot keeps working at its own pace until its part is done so nobody waits for long"

// PromptHash returns the 12 hexadecimal digits by which an answer names its prompt, or "" if body holds none.
//
// For chat it covers role, text, name, tool calls and tool call id of every message but a trailing assistant message; for
// completions the prompt without the part of an answer at its end (which is how a completion is resumed). endpoint is the path.
func PromptHash(endpoint string, body []byte) string {
	prompts := promptsOf(endpoint, body)
	if len(prompts) == 0 {
		return ""
	}
	return prompts[0].hash
}

// Answer returns the text a phone gives to body when nothing cuts it short, or "" if body holds no prompt.
//
// A prompt that contains RISK_LEVEL is answered "RISK_LEVEL: 3 [<hash>]", in 10 tokens. Any other is answered "[<hash>] " and words,
// 8 to 40 tokens long as the hash decides. A directive LENGTH=<tokens> in the prompt (the last one counts, at least 4) sets the
// length and takes precedence. A trailing assistant message is the beginning of the same answer: it changes nothing here.
func Answer(endpoint string, body []byte) string {
	prompts := promptsOf(endpoint, body)
	if len(prompts) == 0 {
		return ""
	}
	return strings.Join(prompts[0].pieces(0), "")
}

// Answers returns the text of every choice of an answer to body: n for each prompt. All choices name their prompt; they differ in words.
func Answers(endpoint string, body []byte) []string {
	var params struct {
		N *int `json:"n"`
	}
	_ = json.Unmarshal(body, &params) // a bad n is refused by the phone; here it counts as 1
	n := 1
	if params.N != nil {
		n = max(1, *params.N)
	}
	var all []string
	for _, p := range promptsOf(endpoint, body) {
		for i := range n {
			all = append(all, strings.Join(p.pieces(i), ""))
		}
	}
	return all
}

func promptsOf(endpoint string, body []byte) []prompt {
	var fields requestFields
	if !decodeObject(body, &fields) {
		return nil
	}
	if isChat(endpoint) {
		var messages []chatMessage
		if json.Unmarshal(fields.Messages, &messages) != nil {
			return nil
		}
		return []prompt{chatPrompt(messages)}
	}
	return textPrompts(fields.Prompt)
}

func isChat(endpoint string) bool { return strings.Contains(endpoint, "chat") }

// prompt is what an answer is made from.
type prompt struct {
	hash string
	// level says that a one-line RISK_LEVEL answer is wanted.
	level bool
	// length is the answer's length in tokens if the prompt set one, else 0.
	length int
	// prefix is the part of the answer that is already there; continued says that there is one, perhaps empty.
	prefix    string
	continued bool
	// bytes is the size of the text the phone has to read, prefix included; units is the number of messages (0 for completions).
	bytes, units int
}

func newPrompt(canonical []byte, text string) prompt {
	p := prompt{hash: digest(canonical), level: strings.Contains(text, "RISK_LEVEL")}
	const directive = "LENGTH="
	if i := strings.LastIndex(text, directive); i >= 0 {
		for _, c := range text[i+len(directive):] {
			if c < '0' || c > '9' || p.length > maxLength {
				break
			}
			p.length = 10*p.length + int(c-'0')
		}
	}
	p.length = min(p.length, maxLength)
	return p
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:hashDigits/2])
}

// chatPrompt separates a trailing assistant message from the conversation it answers.
func chatPrompt(messages []chatMessage) prompt {
	var prefix string
	asked := messages
	continued := len(messages) > 0 && messages[len(messages)-1].Role == "assistant"
	if continued {
		asked = messages[:len(messages)-1]
		prefix = messages[len(messages)-1].text()
	}
	var text strings.Builder
	size := len(prefix)
	canonical := make([]canonicalMessage, len(asked))
	for i, m := range asked {
		canonical[i] = m.canonical()
		text.WriteString(canonical[i].Content)
		text.WriteByte('\n')
		size += len(canonical[i].Content) + len(m.ToolCalls)
	}
	b, _ := json.Marshal(canonical) // strings and valid raw JSON always encode
	p := newPrompt(b, text.String())
	p.prefix, p.continued, p.bytes, p.units = prefix, continued, size, len(messages)
	return p
}

// textPrompts reads the prompt of a completion: a string, an array of strings (one prompt each), or token ids mixed with strings.
func textPrompts(raw json.RawMessage) []prompt {
	var one string
	if json.Unmarshal(raw, &one) == nil && len(raw) > 0 && raw[0] == '"' {
		return []prompt{textPrompt(one)}
	}
	var many []string
	if json.Unmarshal(raw, &many) == nil && len(many) > 0 {
		all := make([]prompt, len(many))
		for i, s := range many {
			all[i] = textPrompt(s)
		}
		return all
	}
	var mixed []json.RawMessage
	if json.Unmarshal(raw, &mixed) != nil || len(mixed) == 0 {
		return nil
	}
	var compact bytes.Buffer
	_ = json.Compact(&compact, raw) // it has just been parsed
	p := newPrompt(compact.Bytes(), compact.String())
	p.bytes = 4 * len(mixed)
	return []prompt{p}
}

// textPrompt splits a completion prompt into what was asked and the beginning of its own answer, if the prompt ends in one.
func textPrompt(s string) prompt {
	first := max(0, len(s)-tailWindow)
	for i := first; i < len(s); i++ {
		rest := s[i:]
		if !beginsAnswer(rest) {
			continue // hashing a long prompt for every bracket in it would be slow
		}
		p := newPrompt([]byte(s[:i]), s[:i])
		if strings.HasPrefix(strings.Join(p.pieces(0), ""), rest) {
			p.prefix, p.continued, p.bytes = rest, true, len(s)
			return p
		}
	}
	p := newPrompt([]byte(s), s)
	p.bytes = len(s)
	return p
}

// beginsAnswer reports whether s has the shape of an answer's beginning, at least its first token.
func beginsAnswer(s string) bool {
	const level = "RISK_LEVEL: "
	if strings.HasPrefix(s, "RISK") {
		k := min(len(s), len(level))
		return s[:k] == level[:k]
	}
	return len(s) >= 5 && s[0] == '[' && strings.Trim(s[1:5], "0123456789abcdef") == ""
}

// pieces returns the tokens of the whole answer of one choice, without the end-of-text token.
func (p prompt) pieces(choice int) []string {
	h := p.hash
	seed := binary.BigEndian.Uint64([]byte(h[:8]))
	rng := rand.New(rand.NewPCG(seed, uint64(choice)))
	if p.level && p.length == 0 {
		level := fmt.Sprintf(" %d", 1+rng.IntN(5))
		return []string{"RISK", "_", "LEVEL", ":", level, " [", h[:4], h[4:8], h[8:], "]"}
	}
	n := p.length
	if n == 0 {
		n = minAnswerTokens + rng.IntN(maxAnswerTokens-minAnswerTokens+1)
	}
	all := []string{"[" + h[:4], h[4:8], h[8:] + "]"}
	vocabulary := strings.Fields(words)
	for len(all) < max(n, 4) {
		all = append(all, " "+vocabulary[rng.IntN(len(vocabulary))])
	}
	return all
}

// remaining returns the tokens of one choice that are still to be said after the prefix. A prefix that does not begin the answer is
// followed by the whole of it.
func (p prompt) remaining(choice int) []string {
	all := p.pieces(choice)
	if p.prefix == "" || !strings.HasPrefix(strings.Join(all, ""), p.prefix) {
		return all
	}
	said := len(p.prefix)
	for i, piece := range all {
		if said < len(piece) {
			return append([]string{piece[said:]}, all[i+1:]...)
		}
		said -= len(piece)
	}
	return nil
}

// tokens is the number of tokens the phone has to read: about four bytes each, and what a chat template adds.
func (p prompt) tokens() int {
	n := (p.bytes + 3) / 4
	if p.units > 0 {
		return n + 3 + 5*p.units
	}
	return max(1, n)
}
