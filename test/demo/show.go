package demo

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// Show is one performance. All fields but Client are required.
type Show struct {
	BaseURL string // with /v1
	Key     string
	Model   string
	// Expect is the right answer to a request's body.
	Expect func(body []byte) string
	// Reading names the phones that are busy with a request whose body contains text, and Kill kills one.
	Reading func(text string) []string
	Kill    func(phone string)
	// Pause is how long the doomed phone may read before it is killed: less than it needs.
	Pause time.Duration
	Out   io.Writer

	mu    sync.Mutex // guards Out
	start time.Time
}

// reviewTokens is the length of the review prompt.
const reviewTokens = 7000

// Run sends a long review, kills the phone that reads it, sends a guard message and a streamed chat meanwhile, and fails unless every
// answer is right for its prompt and the review survived.
func (s *Show) Run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	s.start = time.Now()
	const marker = "Second review of case 4711."
	jobs := []job{
		{name: "review", class: "review", maxTokens: 32, prompt: marker + " Answer with one line RISK_LEVEL: 1 to 5.\n" + filler(reviewTokens)},
		{name: "guard", class: "guard", maxTokens: 64, prompt: "Is this message safe? \"See you at eight.\""},
		{name: "chat", class: "chat", maxTokens: 200, prompt: "Tell me about phones. LENGTH=60"},
	}
	g, ctx := errgroup.WithContext(ctx)
	for i := range jobs {
		g.Go(func() error { return s.perform(ctx, &jobs[i]) })
	}
	g.Go(func() error { return s.assassinate(ctx, marker) })
	if err := g.Wait(); err != nil {
		return err
	}
	if jobs[0].attempts < 2 {
		return fmt.Errorf("the review needed %d attempt: its phone was not killed in time", jobs[0].attempts)
	}
	s.say("show", "all three answers are right for their prompts; the review survived the loss of its phone")
	return nil
}

// filler is about n tokens of text.
func filler(n int) string {
	const sentence = "The customer paid the invoice late but in full. "
	return strings.Repeat(sentence, n*4/len(sentence))
}

// assassinate waits until a phone has begun to read the review, lets it read on for a moment, and kills it.
func (s *Show) assassinate(ctx context.Context, marker string) error {
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	var since time.Time // when the phone was first seen to read
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-poll.C:
		}
		phones := s.Reading(marker)
		switch {
		case len(phones) == 0:
		case since.IsZero():
			since = time.Now()
		case time.Since(since) >= s.Pause:
			s.say("show", "killing "+phones[0]+", which is reading the review")
			s.Kill(phones[0])
			return nil
		}
	}
}

// say prints one line with the time since the start.
func (s *Show) say(who, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(s.Out, "%7.2fs  %-7s %s\n", time.Since(s.start).Seconds(), who, text)
}
