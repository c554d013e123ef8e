package relay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptrace"
	"strings"
	"time"

	"phonebank/balancer"
	"phonebank/gateway/openai"
)

// maxEvent bounds one event of a phone. Tool calls with files in their arguments come in one piece.
const maxEvent = 16 << 20

// aliveEvery spaces the signs of life of one attempt: often enough for a prober that doubts a silent phone after half a minute.
const aliveEvery = 5 * time.Second

// Relay runs attempts. Safe for concurrent use.
type Relay struct {
	transport http.RoundTripper
	clocks    Clocks
}

// New returns a relay over transport, which must not follow redirects or ask for compression.
func New(transport http.RoundTripper, clocks Clocks) *Relay {
	return &Relay{transport: transport, clocks: clocks}
}

// Job is one attempt: a request, a phone and the caller's side.
type Job struct {
	Endpoint    *Endpoint
	Body        []byte
	Streamed    bool          // the phone is asked to stream
	Predicted   time.Duration // of the whole attempt
	Out         *Delivery
	AcceptEmpty bool // an empty answer is believed: another phone has given one before
	// Alive is told of signs of life while the phone answers, at most every five seconds. It must not block. Nil: nobody cares.
	Alive func()
}

// Attempt runs one attempt to its end. It writes to the caller only what Delivery lets out; whether that was content is in
// Result.Delivered. It returns when the phone's answer has ended, the phone has been silent too long, or ctx ends; the connection is then
// closed, which is the only way an engine learns that it should stop.
func (r *Relay) Attempt(ctx context.Context, job Job) Result {
	start := time.Now()
	job.Out.begin()
	var res Result
	for try := range 2 {
		var fresh bool
		res, fresh = r.once(ctx, job, start)
		if fresh && try == 0 && ctx.Err() == nil {
			continue
		}
		break
	}
	res.Total = time.Since(start)
	res.Delivered = job.Out.delivered()
	return res
}

// once is Attempt on one connection. fresh says that the connection alone was at fault, before the phone can have begun to work: a
// handshake that hung (an old tunnel link may still be registered beside the live one), or a kept connection the phone had closed.
func (r *Relay) once(ctx context.Context, job Job, start time.Time) (res Result, fresh bool) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s := &session{relay: r, job: job, start: start, head: job.Out.head, usage: openai.UsageSum{Prompts: job.Out.head.Prompts}}
	s.dog = newWatchdog(r.clocks.first(job.Predicted), cancel)
	defer s.dog.stop()

	var connected, reused bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(i httptrace.GotConnInfo) { connected, reused = true, i.Reused },
	})
	req, err := job.request(ctx)
	if err != nil {
		return Result{Kind: Misconfigured, Err: err}, false
	}
	resp, err := r.transport.RoundTrip(req)
	if err != nil {
		res = classifyTransport(ctx, err)
		if !connected {
			var dial *DialError
			tcp := errors.As(err, &dial) && !dial.Handshake
			return res, res.Kind == Silent && !tcp
		}
		res.Phase = Waiting
		return res, reused && (res.Kind == Broken || res.Kind == Offline)
	}
	defer resp.Body.Close()
	s.phase = Prefill
	res = s.read(ctx, resp)
	res.Phase = s.phase
	return res, false
}

// request builds the HTTP request to the phone. Nothing of the caller's headers goes along: they hold credentials, cookies and switches
// (X-Conversation-Id would make the engine go on after a cancel).
func (j Job) request(ctx context.Context) (*http.Request, error) {
	e := j.Endpoint
	url := strings.TrimSuffix(e.URL.String(), "/") + "/v1/" + j.Out.head.Endpoint.String()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(j.Body))
	if err != nil {
		return nil, fmt.Errorf("request to phone: %w", err)
	}
	maps.Copy(req.Header, e.Header)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "phonebank")
	if e.Key != "" {
		req.Header.Set("Authorization", "Bearer "+e.Key)
	}
	if j.Streamed {
		req.Header.Set("Accept", "text/event-stream")
	}
	// llama-server closes after each stream and each error, whatever it announces.
	req.Close = e.Engine != balancer.OpenAI
	return req, nil
}
