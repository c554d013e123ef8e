package relay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"mime"
	"net/http"
	"time"

	"phonebank/balancer"
	"phonebank/gateway/openai"
)

// session reads one response.
type session struct {
	relay *Relay
	job   Job
	head  *openai.Head
	start time.Time
	dog   watchdog
	phase Phase

	lastAlive  time.Time
	pinged     bool
	content    bool
	finished   uint64 // choices that have ended
	pieces     int    // chunks with content, our own count of tokens
	firstToken time.Duration
	usage      openai.UsageSum
	timings    openai.Timings
}

func (s *session) read(ctx context.Context, resp *http.Response) Result {
	if resp.StatusCode != http.StatusOK {
		return classifyStatus(resp)
	}
	media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if enc := resp.Header.Get("Content-Encoding"); enc != "" && enc != "identity" {
		return Result{Kind: Broken, Err: fmt.Errorf("answer is encoded as %.20q though nothing was asked for", enc)}
	}
	switch {
	case media == "text/event-stream" || media == "application/x-ndjson" && s.job.Streamed:
		return s.readStream(ctx, resp.Body)
	case media == "application/json":
		return s.readBody(ctx, resp.Body)
	default:
		return Result{Kind: Broken, Err: fmt.Errorf("answer is %.40q, not a model's", media)}
	}
}

// readStream relays events until [DONE], the end, or a failure.
func (s *session) readStream(ctx context.Context, body io.Reader) Result {
	done := false
	for ev, err := range openai.Events(body, maxEvent) {
		switch {
		case done:
			return s.result(Done, nil) // whatever comes after [DONE]: the caller has its answer
		case err != nil:
			res := classifyRead(ctx, err)
			s.fill(&res)
			return res
		case ev.Comment:
			s.pinged = true
			s.allow()
			continue
		case ev.Partial && !ev.Done():
			continue // cut anywhere, so nobody may read it
		case len(bytes.TrimSpace(ev.Data)) == 0:
			s.allow() // some servers beat so; SDKs would parse it and fail
			continue
		case ev.Done():
			if res := s.end(); res.Kind != Done {
				return res
			}
			if s.job.Endpoint.Engine != balancer.OpenAI {
				return s.result(Done, nil)
			}
			done = true // read on to the end, briefly, so that the connection can be used again
			s.dog.allow(s.relay.clocks.Drain)
			continue
		}
		if res, ok := s.event(ev); !ok {
			s.fill(&res)
			return res
		}
	}
	if done {
		return s.result(Done, nil)
	}
	res := classifyEnd(ctx)
	s.fill(&res)
	return res
}

// classifyEnd says what an orderly end of the stream before [DONE] means.
func classifyEnd(ctx context.Context) Result {
	if ctx.Err() != nil {
		return classifyRead(ctx, ctx.Err())
	}
	return Result{Kind: Truncated, Err: errors.New("stream ended without [DONE]")}
}

// event handles one event that is neither a comment nor [DONE]; ok is false when the attempt is over.
func (s *session) event(ev openai.Event) (res Result, ok bool) {
	s.dog.stop() // the phone is not to blame while the caller is slow to read
	c, err := openai.ParseChunk(s.head.Endpoint, ev.Data)
	if err != nil {
		return Result{Kind: Nonsense, Err: fmt.Errorf("event: %w", err)}, false
	}
	if c.Err != nil {
		return classifyUpstreamError(*c.Err), false
	}
	s.note(c)
	if err := s.job.Out.event(ev, c); err != nil {
		if errors.Is(err, errCallerGone) {
			return Result{Kind: Cancelled, Err: err}, false
		}
		return Result{Kind: Nonsense, Err: err}, false
	}
	s.allow()
	return Result{}, true
}

// note reads along.
func (s *session) note(c openai.Chunk) {
	if c.Content {
		if !s.content {
			s.content = true
			s.phase = Decoding
			s.firstToken = time.Since(s.start)
		}
		s.pieces++
	}
	s.finished |= c.FinishedSet
	s.usage.Add(&c)
	if c.Timings != nil {
		s.timings = *c.Timings
	}
}

// allow sets the clock for the next event.
func (s *session) allow() {
	if now := time.Now(); s.job.Alive != nil && now.Sub(s.lastAlive) >= aliveEvery {
		s.lastAlive = now
		s.job.Alive()
	}
	c := s.relay.clocks
	switch {
	case s.pinged:
		s.dog.allow(c.Ping)
	case s.content:
		s.dog.allow(c.Gap)
	default:
		s.dog.allow(c.first(s.job.Predicted))
	}
}

// end handles [DONE].
func (s *session) end() Result {
	if bits.OnesCount64(s.finished) < min(s.head.Choices(), 64) {
		return s.result(Truncated, errors.New("[DONE] without a finish reason"))
	}
	if !s.content && !s.job.AcceptEmpty {
		return s.result(Nonsense, errEmpty)
	}
	s.dog.stop()
	if err := s.job.Out.complete(); err != nil {
		if errors.Is(err, errCallerGone) {
			return s.result(Cancelled, err)
		}
		return s.result(Nonsense, err)
	}
	return s.result(Done, nil)
}

// errEmpty means the answer was whole and held nothing.
var errEmpty = errors.New("empty answer")

// IsEmpty reports whether an attempt failed only because its answer was empty. One phone may be broken; two that agree are believed.
func IsEmpty(r Result) bool { return errors.Is(r.Err, errEmpty) }

func (s *session) result(k Kind, err error) Result {
	res := Result{Kind: k, Err: err}
	s.fill(&res)
	return res
}

// fill adds what was measured.
func (s *session) fill(res *Result) {
	res.FirstToken, res.Timings = s.firstToken, s.timings
	usage, ok := s.usage.Total()
	if !ok && s.pieces > 0 {
		usage.CompletionTokens, res.Counted = s.pieces, true
	}
	res.Usage = usage
}

// readBody relays an answer that was not streamed. Where a stream was asked for it can only be an error.
func (s *session) readBody(ctx context.Context, body io.Reader) Result {
	raw, err := io.ReadAll(io.LimitReader(body, maxAnswer+1))
	if err != nil {
		return classifyRead(ctx, err)
	}
	if len(raw) > maxAnswer {
		return Result{Kind: Nonsense, Err: openai.ErrEventTooLarge}
	}
	c, err := openai.ParseChunk(s.head.Endpoint, raw)
	switch {
	case err != nil:
		return Result{Kind: Nonsense, Err: fmt.Errorf("answer: %w", err)}
	case c.Err != nil:
		return classifyUpstreamError(*c.Err)
	case s.job.Streamed:
		return Result{Kind: Broken, Err: errors.New("JSON answer to a stream")}
	case c.Choices == 0 && !s.job.AcceptEmpty:
		return Result{Kind: Nonsense, Err: errEmpty}
	}
	s.dog.stop()
	s.phase = Decoding
	s.firstToken = time.Since(s.start)
	s.note(c)
	if err := s.job.Out.body(raw); err != nil {
		return s.result(Cancelled, err)
	}
	return s.result(Done, nil)
}
