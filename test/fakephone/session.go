package fakephone

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"
)

var (
	errCut    = errors.New("fakephone: connection cut by a fault")
	errStruck = errors.New("fakephone: answer ended by a fault")
)

// session is the work on one request, from its slot on. It runs on the request's goroutine.
type session struct {
	p     *Phone
	g     *generation
	r     *http.Request
	req   *request
	out   output
	lease *lease
	fault Fault // of the answer

	timer  *time.Timer
	due    time.Time // when the present step is done, or the last one was
	pingAt time.Time // zero: no pings

	gone, zombie bool // client has left; and the slot works on
	sent         int  // content chunks
	prompt       time.Duration
	first        time.Time // of the first token
	choices      []choice
}

type choice struct {
	pieces []string // still to be said
	n      int      // tokens generated
	done   bool
}

// work waits for slots and answers. It returns nil when the answer was given, errGone, errKilled, errCut or errStruck.
func (p *Phone) work(g *generation, w http.ResponseWriter, r *http.Request, req *request) error {
	ctx := r.Context()
	lease, err := g.engine.acquire(ctx, min(req.choices(), p.cfg.Slots))
	if err != nil {
		if errors.Is(err, errGone) {
			p.stats.cancelled()
		}
		return err
	}
	defer lease.release()
	fault, _ := p.faults.strike(func(f Fault) bool { return slices.Contains(answerKinds(), f.Kind) })
	s := &session{p: p, g: g, r: r, req: req, lease: lease, fault: fault, due: time.Now(), timer: time.NewTimer(time.Hour)}
	defer s.timer.Stop()
	s.out = newOutput(w, r, req, shape{req.chat, p.newID(), p.cfg.Model, p.cfg.Build, req.includeUsage}, fault)
	if req.promptTokens >= p.cfg.Context {
		lease.release()
		p.stats.add(func(s *Stats) { s.Completed++ })
		s.out.refuse(errContext(req.promptTokens, p.cfg.Context))
		return nil
	}
	s.choose()
	s.out.begin()
	s.wrote()
	if err := s.prefill(ctx); err != nil {
		return err
	}
	return s.decode(ctx)
}

// choose decides what the choices will say.
func (s *session) choose() {
	s.choices = make([]choice, s.req.choices())
	for i := range s.choices {
		p, k := s.req.prompt(i)
		switch s.fault.Kind {
		case EmptyAnswer:
			continue
		case WrongAnswer:
			p.hash = digest([]byte(p.hash))
		default:
		}
		pieces := p.remaining(k)
		if p.continued && s.req.chat && (s.req.repeatPrefix || !s.req.stream) {
			if len(pieces) == 0 {
				pieces = []string{""}
			}
			pieces = append([]string{p.prefix + pieces[0]}, pieces[1:]...)
		}
		s.choices[i].pieces = pieces
	}
	s.lease.show(func(v *slot) {
		v.promptN, v.limit, v.remain, v.stream = s.req.promptTokens, s.req.limit, s.req.limit, s.req.stream
	})
}

// prefill reads the prompt, batch by batch. A batch is never interrupted.
func (s *session) prefill(ctx context.Context) error {
	start, total := time.Now(), s.req.promptTokens
	s.progress(total, 0, 0)
	for done, batches := 0, 0; done < total; {
		batch := min(s.p.cfg.Batch, total-done)
		step := step{seconds: s.p.cfg.Profile.prefillSeconds(done, done+batch), own: len(s.lease.ids) - 1}
		if err := s.do(ctx, step); err != nil {
			return err
		}
		done += batch
		batches++
		s.lease.show(func(v *slot) { v.processed = done })
		s.progress(total, done, time.Since(start))
		f, ok := s.p.faults.strike(func(f Fault) bool {
			return slices.Contains(streamKinds(), f.Kind) && f.Batches > 0 && batches >= f.Batches
		})
		if ok {
			return s.strike(f)
		}
	}
	s.prompt = time.Since(start)
	s.first = time.Now()
	return nil
}

func (s *session) progress(total, processed int, since time.Duration) {
	if s.req.progress && !s.gone {
		s.out.progress(progress{Total: total, Processed: processed, TimeMS: since.Milliseconds()})
		s.wrote()
	}
}

// decode says a token of every choice in turn until all are finished. The first token costs nothing: it fell out of the prefill.
func (s *session) decode(ctx context.Context) error {
	left := len(s.choices)
	for round := 0; left > 0; round++ {
		if round > 0 {
			if err := s.do(ctx, step{seconds: 1 / s.p.cfg.Profile.DecodeTPS, interruptible: true}); err != nil {
				return err
			}
		}
		s.g.engine.decoded(left)
		for i := range s.choices {
			if s.choices[i].done {
				continue
			}
			if err := s.say(i, left); err != nil {
				return err
			}
			if s.choices[i].done {
				left--
			}
		}
	}
	if s.gone {
		return errGone
	}
	s.out.end()
	return nil
}

// say generates the next token of a choice, and finishes the choice if it was the last. left is the number of unfinished choices.
func (s *session) say(i, left int) error {
	if err := s.struck(); err != nil {
		return err
	}
	c := &s.choices[i]
	c.n++
	reason := ""
	if len(c.pieces) == 0 { // the end-of-text token, which counts and says nothing
		reason = "stop"
	} else {
		var t *timings
		if s.req.perToken {
			t = new(s.timings(c.n))
		}
		s.emit(i, c.pieces[0], t)
		c.pieces = c.pieces[1:]
		full := s.req.promptTokens+c.n >= s.p.cfg.Context
		if full || s.req.limit > 0 && c.n >= s.req.limit {
			reason = "length"
		}
	}
	s.lease.show(func(v *slot) { v.decoded, v.remain = c.n, s.req.limit-c.n })
	if reason == "" {
		return nil
	}
	if err := s.struck(); err != nil {
		return err
	}
	s.finish(i, reason, left == 1)
	return nil
}

func (s *session) emit(i int, text string, t *timings) {
	s.sent++
	if !s.gone {
		s.out.token(i, text, t)
		s.wrote()
	}
}

// finish frees the choice's slot before its last bytes can be read.
func (s *session) finish(i int, reason string, last bool) {
	c := &s.choices[i]
	c.done = true
	t := s.timings(c.n)
	u := usage{CompletionTokens: c.n, PromptTokens: s.req.promptTokens, TotalTokens: s.req.promptTokens + c.n}
	prompt := s.prompt
	if i > 0 {
		prompt = 0 // read once for all choices
	}
	s.g.engine.count(t.PromptN, prompt, c.n, time.Since(s.first))
	s.lease.free(i)
	if s.gone {
		return
	}
	if last {
		s.lease.release()
		s.p.stats.add(func(s *Stats) { s.Completed++ })
	}
	s.out.finish(i, reason, u, t)
	s.wrote()
}

func (s *session) timings(n int) timings {
	return newTimings(s.req.promptTokens, s.prompt, n, time.Since(s.first))
}

// struck lets a fault in mid-answer strike if it is its turn.
func (s *session) struck() error {
	if s.fault.Kind == TruncateLength && s.req.stream && s.sent >= s.fault.After {
		return s.strike(s.fault)
	}
	f, ok := s.p.faults.strike(func(f Fault) bool {
		return slices.Contains(streamKinds(), f.Kind) && f.Batches == 0 && s.sent >= f.After
	})
	if !ok {
		return nil
	}
	return s.strike(f)
}

// strike ends the answer the way the fault says. The slot is free before the client can know.
func (s *session) strike(f Fault) error {
	if s.gone {
		return errGone
	}
	if s.sent == 0 && f.Batches == 0 {
		s.out.role(0)
	}
	switch f.Kind {
	case HangStream:
		s.g.hold(s.r)
		s.p.stats.cancelled()
		return errGone
	case ResetStream:
		s.lease.release()
		resetConn(s.r)
	case EOFStream:
		s.lease.release()
		return errCut
	case ErrorEvent:
		s.lease.release()
		data := []byte(f.Body)
		if len(data) == 0 {
			data = serverError("Context size has been exceeded.").body()
		}
		s.out.fail(data)
	default: // EndStream, TruncateLength
		s.lease.release()
	}
	return errStruck
}

func errContext(promptTokens, context int) *apiError {
	e := badRequest(fmt.Sprintf("request (%d tokens) exceeds the available context size (%d tokens), try increasing it", promptTokens, context))
	e.kind, e.promptTokens, e.context = "exceed_context_size_error", promptTokens, context
	return e
}
