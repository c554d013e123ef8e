package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"time"

	"phonebank/test/bench"
)

// benchCmd puts load on an endpoint, or is the instant upstream behind one.
type benchCmd struct {
	Load     benchLoadCmd     `cmd:"" default:"withargs" help:"Put load on an OpenAI endpoint and report latencies and throughput."`
	Upstream benchUpstreamCmd `cmd:"" help:"Answer like llama-server, at once, so that what stands in front can be measured."`
}

type benchLoadCmd struct {
	URL          string        `name:"url" required:"" help:"Base URL, with or without /v1."`
	Key          string        `help:"API key." env:"PHONEBANK_KEY"`
	Model        string        `required:"" help:"Model to ask for."`
	Endpoint     string        `enum:"chat,completions" default:"chat" help:"Route: chat or completions."`
	Stream       bool          `help:"Ask for server-sent events."`
	Rate         float64       `help:"Open loop: arrivals a second. Latency counts from when a request was due."`
	Fixed        bool          `help:"Open loop: space arrivals evenly instead of as a Poisson process."`
	Concurrency  int           `short:"c" help:"Closed loop: callers (default 1). Open loop: most requests in flight (default 10000)."`
	Duration     time.Duration `short:"d" help:"Start no request after this time (default 10s without --requests)."`
	Requests     int           `short:"n" help:"Requests to send."`
	Timeout      time.Duration `default:"600s" help:"Limit of one request."`
	PromptTokens int           `default:"16" help:"Approximate length of the made-up prompt."`
	MaxTokens    int           `default:"16" help:"Sent as max_tokens; 0 leaves it out."`
	Seed         uint64        `help:"Makes arrivals and prompts repeatable."`
	Insecure     bool          `help:"Accept any TLS certificate."`
	JSON         bool          `name:"json" help:"Print one JSON object instead of a table."`
}

// Run prints the report. When ctx ends, it prints what was measured until then.
// It fails when no request succeeded.
func (c *benchLoadCmd) Run(ctx context.Context) error {
	if c.Duration == 0 && c.Requests == 0 {
		c.Duration = 10 * time.Second
	}
	report, err := bench.Run(ctx, bench.Config{
		URL: c.URL, Key: c.Key, Model: c.Model, Endpoint: bench.Endpoint(c.Endpoint), Stream: c.Stream,
		Rate: c.Rate, Fixed: c.Fixed, Concurrency: c.Concurrency,
		Duration: c.Duration, Requests: c.Requests, Timeout: c.Timeout,
		PromptTokens: c.PromptTokens, MaxTokens: c.MaxTokens, Seed: c.Seed, Insecure: c.Insecure,
	})
	if err != nil && ctx.Err() == nil {
		return err
	}
	if c.JSON {
		err = json.NewEncoder(os.Stdout).Encode(report)
	} else {
		err = report.WriteTable(os.Stdout)
	}
	if err != nil {
		return fmt.Errorf("print report: %w", err)
	}
	if report.OK == 0 {
		return fmt.Errorf("none of %d requests succeeded", report.Requests)
	}
	return nil
}

type benchUpstreamCmd struct {
	Listen string `default:"127.0.0.1:0" help:"Address to listen on; port 0 picks a free one."`
	Model  string `default:"bench" help:"Model it says it runs."`
	Tokens int    `default:"8" help:"Content events of a stream."`
	Slots  int    `default:"512" help:"Slots it says it has."`
	TLS    bool   `name:"tls" help:"Serve HTTPS with a self-signed certificate for loopback."`
}

// Run prints the base URL and serves until ctx ends.
func (c *benchUpstreamCmd) Run(ctx context.Context) error {
	upstream := bench.NewUpstream(bench.UpstreamConfig{Model: c.Model, Tokens: c.Tokens, Slots: c.Slots})
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", c.Listen)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	if !c.TLS {
		fmt.Fprintf(os.Stdout, "http://%s\n", l.Addr())
		return upstream.Serve(ctx, l, nil)
	}
	certificate, err := bench.SelfSigned()
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stdout, "https://%s\n", l.Addr())
	return upstream.Serve(ctx, l, certificate)
}
