package bench

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Endpoint is the route under load.
type Endpoint string

// The routes that a load can be put on.
const (
	Chat        Endpoint = "chat"        // POST /v1/chat/completions
	Completions Endpoint = "completions" // POST /v1/completions
)

const (
	defaultTimeout  = 600 * time.Second // what the OpenAI SDKs wait
	defaultInFlight = 10_000            // open loop: sockets held at once
)

// Config says what load to put on which endpoint. URL, Model and one of
// Duration and Requests are required; every other zero value is usable.
type Config struct {
	URL      string   // base URL, with or without /v1
	Key      string   // sent as Bearer; none when empty
	Model    string   // the name callers use
	Endpoint Endpoint // Chat when empty
	Stream   bool     // ask for server-sent events

	// Rate is the number of arrivals a second of an open loop. Zero means a
	// closed loop of Concurrency callers.
	Rate float64
	// Fixed spaces the arrivals of an open loop evenly. Otherwise they are a
	// Poisson process, as independent callers are.
	Fixed bool
	// Concurrency is the number of callers of a closed loop [1], or the most
	// requests in flight of an open loop [10,000]. An open-loop request that
	// has to wait for a place still counts its latency from when it was due.
	Concurrency int

	Duration time.Duration // no request starts after it; 0 = until Requests
	Requests int           // requests to send; 0 = until Duration
	Timeout  time.Duration // of one request [600 s]

	PromptTokens int    // approximate length of the made-up prompt [16]
	MaxTokens    int    // sent as max_tokens; left out when 0
	Seed         uint64 // makes arrivals and prompts repeatable

	Insecure bool         // accept any TLS certificate
	Client   *http.Client // used instead of one of our own, which Insecure then cannot reach

	// Prompt replaces the made-up prompt of the n-th request (n from 0).
	// It must be safe for concurrent use.
	Prompt func(n int) string
	// Verify judges a complete answer; an error counts the request as "wrong".
	// It must be safe for concurrent use.
	Verify func(prompt, answer string) error
}

// Validate reports every fault of c at once.
func (c Config) Validate() error {
	var errs []error
	if u, err := url.Parse(c.URL); err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		errs = append(errs, fmt.Errorf("url: %q is not an http or https address", c.URL))
	}
	if c.Model == "" {
		errs = append(errs, errors.New("model: is required"))
	}
	if c.Endpoint != "" && c.Endpoint != Chat && c.Endpoint != Completions {
		errs = append(errs, fmt.Errorf("endpoint: %q is neither %q nor %q", c.Endpoint, Chat, Completions))
	}
	if c.Duration <= 0 && c.Requests <= 0 {
		errs = append(errs, errors.New("duration, requests: one of them must be positive"))
	}
	for _, f := range []struct {
		name  string
		value float64
	}{
		{"rate", c.Rate},
		{"concurrency", float64(c.Concurrency)},
		{"duration", float64(c.Duration)},
		{"requests", float64(c.Requests)},
		{"timeout", float64(c.Timeout)},
		{"prompt_tokens", float64(c.PromptTokens)},
		{"max_tokens", float64(c.MaxTokens)},
	} {
		if f.value < 0 {
			errs = append(errs, fmt.Errorf("%s: is negative", f.name))
		}
	}
	return errors.Join(errs...)
}

// withDefaults returns c with every optional zero value replaced.
func (c Config) withDefaults() Config {
	if c.Endpoint == "" {
		c.Endpoint = Chat
	}
	if c.Concurrency == 0 {
		c.Concurrency = 1
		if c.Rate > 0 {
			c.Concurrency = defaultInFlight
		}
	}
	if c.Timeout == 0 {
		c.Timeout = defaultTimeout
	}
	if c.PromptTokens == 0 {
		c.PromptTokens = 16
	}
	if c.Prompt == nil {
		c.Prompt = promptMaker(c.PromptTokens, c.Seed)
	}
	if c.Client == nil {
		c.Client = newClient(c.Concurrency, c.Insecure)
	}
	return c
}

// target is the full address of the route.
func (c Config) target() string {
	base := strings.TrimSuffix(strings.TrimSuffix(c.URL, "/"), "/v1")
	if c.Endpoint == Completions {
		return base + "/v1/completions"
	}
	return base + "/v1/chat/completions"
}
