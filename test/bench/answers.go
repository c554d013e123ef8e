package bench

import (
	"bytes"
	"fmt"
	"strconv"
)

// stream is a streamed answer cut where it is flushed.
type stream struct {
	content           [][]byte
	end, endWithUsage []byte
}

func usageJSON(tokens int) string {
	return fmt.Sprintf(`{"completion_tokens":%d,"prompt_tokens":%d,"total_tokens":%d,"prompt_tokens_details":{"cached_tokens":0}}`,
		tokens, upstreamPrompt, upstreamPrompt+tokens)
}

func timingsJSON(tokens int) string {
	return fmt.Sprintf(`{"cache_n":0,"prompt_n":%d,"prompt_ms":1.7,"prompt_per_token_ms":0.1,"prompt_per_second":10000.0,"predicted_n":%d,"predicted_ms":%d.0,"predicted_per_token_ms":1.0,"predicted_per_second":1000.0}`,
		upstreamPrompt, tokens, tokens)
}

func chatAnswer(cfg UpstreamConfig) []byte {
	return fmt.Appendf(nil, `{"choices":[{"finish_reason":"stop","index":0,"message":{"role":"assistant","content":%q}}],"created":1796111520,"model":%q,"system_fingerprint":%q,"object":"chat.completion","usage":%s,"id":"chatcmpl-bench","timings":%s}`,
		allWords(cfg.Tokens), cfg.Model, upstreamBuild, usageJSON(cfg.Tokens), timingsJSON(cfg.Tokens))
}

func completionAnswer(cfg UpstreamConfig) []byte {
	return fmt.Appendf(nil, `{"choices":[{"text":%q,"index":0,"logprobs":null,"finish_reason":"stop"}],"created":1796111520,"model":%q,"system_fingerprint":%q,"object":"text_completion","usage":%s,"id":"chatcmpl-bench","timings":%s}`,
		allWords(cfg.Tokens), cfg.Model, upstreamBuild, usageJSON(cfg.Tokens), timingsJSON(cfg.Tokens))
}

func chatEvents(cfg UpstreamConfig) stream {
	event := func(choices, more string) string {
		return fmt.Sprintf("data: {\"choices\":[%s],\"created\":1796111520,\"id\":\"chatcmpl-bench\",\"model\":%q,\"system_fingerprint\":%q,\"object\":\"chat.completion.chunk\"%s}\n\n",
			choices, cfg.Model, upstreamBuild, more)
	}
	var s stream
	for i := range cfg.Tokens {
		e := event(fmt.Sprintf(`{"finish_reason":null,"index":0,"delta":{"content":%q}}`, word(i)), "")
		if i == 0 { // the role comes in one write with the first token
			e = event(`{"finish_reason":null,"index":0,"delta":{"role":"assistant","content":null}}`, "") + e
		}
		s.content = append(s.content, []byte(e))
	}
	const finish = `{"finish_reason":"stop","index":0,"delta":{}}`
	timings := `,"timings":` + timingsJSON(cfg.Tokens)
	s.end = []byte(event(finish, timings) + done)
	s.endWithUsage = []byte(event(finish, "") + event("", `,"usage":`+usageJSON(cfg.Tokens)+timings) + done)
	return s
}

func completionEvents(cfg UpstreamConfig) stream {
	event := func(text, finish, more string) string {
		return fmt.Sprintf("data: {\"choices\":[{\"text\":%q,\"index\":0,\"logprobs\":null,\"finish_reason\":%s}],\"created\":1796111520,\"model\":%q,\"system_fingerprint\":%q,\"object\":\"text_completion\"%s,\"id\":\"chatcmpl-bench\"}\n\n",
			text, finish, cfg.Model, upstreamBuild, more)
	}
	var s stream
	for i := range cfg.Tokens {
		s.content = append(s.content, []byte(event(word(i), "null", "")))
	}
	timings := `,"timings":` + timingsJSON(cfg.Tokens)
	s.end = []byte(event("", `"stop"`, timings) + done)
	s.endWithUsage = []byte(event("", `"stop"`, `,"usage":`+usageJSON(cfg.Tokens)+timings) + done)
	return s
}

const done = "data: [DONE]\n\n"

// word is the content of the i-th event.
func word(i int) string { return " w" + strconv.Itoa(i) }

func allWords(n int) string {
	var b bytes.Buffer
	for i := range n {
		b.WriteString(word(i))
	}
	return b.String()
}

func idleSlots(n int) string {
	var b bytes.Buffer
	for i := range n {
		fmt.Fprintf(&b, `,{"id":%d,"n_ctx":%d,"speculative":false,"is_processing":false}`, i, upstreamContext)
	}
	return "[" + b.String()[1:] + "]"
}
