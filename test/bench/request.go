package bench

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"
)

type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

type streamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

// requestBody is what one request sends; Messages on the chat route, Prompt
// on the completions route.
type requestBody struct {
	Model         string         `json:"model"`
	Messages      []message      `json:"messages,omitempty"`
	Prompt        string         `json:"prompt,omitempty"`
	MaxTokens     int            `json:"max_tokens,omitempty"`
	Stream        bool           `json:"stream,omitempty"`
	StreamOptions *streamOptions `json:"stream_options,omitempty"`
}

// body builds the bytes of one request.
func (c Config) body(prompt string) ([]byte, error) {
	b := requestBody{Model: c.Model, MaxTokens: c.MaxTokens, Stream: c.Stream}
	if c.Stream {
		b.StreamOptions = &streamOptions{IncludeUsage: true}
	}
	if c.Endpoint == Completions {
		b.Prompt = prompt
	} else {
		b.Messages = []message{{Role: "user", Content: prompt}}
	}
	raw, err := json.Marshal(b)
	if err != nil {
		return nil, fmt.Errorf("encode request: %w", err)
	}
	return raw, nil
}

// words are single tokens in the common vocabularies, so that a prompt of n
// words is close to n tokens.
func words() []string {
	return strings.Fields("time year people way day man thing woman life child world school state family student group country problem hand part place case week company system program question work government number night point home water room mother area money story fact month lot right study book eye job word business issue side kind head house service friend father power hour game line end member law car city name team minute idea body information back parent face others level office door health person art war history party result change morning reason research girl guy moment air teacher force education")
}

// promptMaker returns prompts of about tokens tokens. Each begins with its own
// number, so no two share a prefix that a phone could have cached.
func promptMaker(tokens int, seed uint64) func(n int) string {
	vocabulary := words()
	return func(n int) string {
		r := rand.New(rand.NewPCG(seed, uint64(n))) // repeatable prompts, not secrets
		var b strings.Builder
		fmt.Fprintf(&b, "%d", n)
		for range tokens - 1 {
			b.WriteByte(' ')
			b.WriteString(vocabulary[r.IntN(len(vocabulary))])
		}
		return b.String()
	}
}

// newClient speaks HTTP/1.1 only: one connection a request in flight, as most
// callers of an inference endpoint have, and the same for every target.
func newClient(connections int, insecure bool) *http.Client {
	return &http.Client{Transport: &http.Transport{
		MaxIdleConns:        connections,
		MaxIdleConnsPerHost: connections,
		IdleConnTimeout:     90 * time.Second,
		TLSHandshakeTimeout: 10 * time.Second,
		DisableCompression:  true,
		TLSClientConfig:     &tls.Config{InsecureSkipVerify: insecure}, // asked for by the operator
		TLSNextProto:        map[string]func(string, *tls.Conn) http.RoundTripper{},
	}}
}
