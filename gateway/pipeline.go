package gateway

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"phonebank/auth"
	"phonebank/auth/limit"
	"phonebank/balancer"
	"phonebank/gateway/account"
	"phonebank/gateway/openai"
	"phonebank/gateway/relay"
)

// serve is the way every request takes, top to bottom.
func (g *Gateway) serve(w http.ResponseWriter, r *http.Request, ep openai.Endpoint) {
	start := time.Now()
	rec := account.Record{RequestID: newRequestID(), Route: "/v1/" + ep.String()}
	w.Header().Set("x-request-id", rec.RequestID)

	head, who, err := g.read(w, r, ep)
	rec.KeyID = who.KeyID
	if err != nil {
		g.refuse(w, r, start, rec, err)
		return
	}
	ctx, cancel, err := deadline(r)
	defer cancel()
	if err != nil {
		g.refuse(w, r, start, rec, err)
		return
	}
	ticket, model, err := g.ticket(who, head, r.Header)
	if err != nil {
		g.refuse(w, r, start, rec, err)
		return
	}
	rec.Model, rec.Stream = model.ID, head.Stream
	rec.Class, rec.EstimatedPrompt = ticket.Class.String(), ticket.PromptTokens

	claim, err := g.admit(ctx, w.Header(), who, head, ticket)
	if err != nil {
		g.refuse(w, r, start, rec, g.withRetry(err, ticket))
		return
	}
	out := relay.NewDelivery(w, head, model.ID, start, g.cfg.Clocks)
	run := g.answer(ctx, claim, out, plan{head: head, model: model})
	run.err = g.withRetry(run.err, ticket)
	g.tell(out, run)
	claim.End(ctx, run.attempt, run.settlement(ticket))
	g.Book.Finish(ctx, run.record(rec, start))
}

// read finds out who is calling and what is asked. The caller is known before the body is looked at.
func (g *Gateway) read(w http.ResponseWriter, r *http.Request, ep openai.Endpoint) (*openai.Head, auth.Principal, error) {
	who, err := g.Auth.Authenticate(r.Header)
	if err != nil {
		return nil, auth.Principal{}, err
	}
	if g.Stopping() {
		return nil, who, balancer.ErrDraining
	}
	body, err := readBody(w, r, g.cfg.Body, g.cfg.BodyTime)
	if err != nil {
		return nil, who, err
	}
	head, err := openai.ParseHead(ep, body)
	if err != nil {
		return nil, who, err
	}
	return head, who, nil
}

// deadline bounds a request by the caller's own wish: x-phonebank-timeout in seconds or as a Go duration.
func deadline(r *http.Request) (context.Context, context.CancelFunc, error) {
	v := strings.TrimSpace(r.Header.Get("x-phonebank-timeout"))
	if v == "" {
		ctx, cancel := context.WithCancel(r.Context())
		return ctx, cancel, nil
	}
	d, err := time.ParseDuration(v)
	if s, serr := strconv.ParseFloat(v, 64); serr == nil && s < 1e6 {
		d, err = time.Duration(s*float64(time.Second)), nil
	}
	if err != nil || d <= 0 || d > 24*time.Hour {
		return r.Context(), func() {}, openai.InvalidRequest("", "The header x-phonebank-timeout must be a time such as 30, 2.5 or 10m, above zero and at most 24h.")
	}
	ctx, cancel := context.WithTimeoutCause(r.Context(), d, errDeadline)
	return ctx, cancel, nil
}

// bytesPerToken is the estimate of a prompt's size until the phone has counted it.
const bytesPerToken = 4

// typicalOutput is what an answer is expected to take where the caller allows more: enough to rank phones by.
const typicalOutput = 128

// ticket turns a request into what the balancer needs to know of it.
func (g *Gateway) ticket(who auth.Principal, head *openai.Head, h http.Header) (balancer.Ticket, *Model, error) {
	model := g.models[head.Model]
	if model == nil {
		return balancer.Ticket{}, nil, openai.ModelNotFound(head.Model)
	}
	if head.HasImage || head.HasAudio {
		return balancer.Ticket{}, nil, openai.InvalidRequest("messages", "The model %s reads text only. Remove the image and audio parts.", model.ID)
	}
	class, err := classOf(who, h)
	if err != nil {
		return balancer.Ticket{}, nil, err
	}
	now := g.Room.Now()
	t := balancer.Ticket{
		ID:           balancer.NewID(),
		Key:          who.KeyID,
		Model:        model.ID,
		Class:        class,
		PromptTokens: head.PromptBytes/bytesPerToken + 1,
		OutputTokens: min(maxTokens(head, model), typicalOutput),
		Slots:        head.Choices(),
		Arrived:      now,
		HardEnd:      24 * time.Hour,
	}
	if model.Context > 0 && t.PromptTokens/2 > model.Context {
		return balancer.Ticket{}, nil, openai.ContextLengthExceeded(model.Context, t.PromptTokens)
	}
	if patience := g.cfg.Patience[class]; patience > 0 {
		t.Deadline = now.Add(patience)
		t.HardEnd = patience + 2*time.Hour
	}
	return t, model, nil
}

// classOf is the key's class, or a less urgent one the caller asks for.
func classOf(who auth.Principal, h http.Header) (balancer.Class, error) {
	class, err := balancer.ParseClass(who.Class)
	if err != nil {
		return 0, fmt.Errorf("class of key %s: %w", who.KeyID, err)
	}
	wish := h.Get("x-phonebank-class")
	if wish == "" {
		return class, nil
	}
	lower, err := balancer.ParseClass(wish)
	if err != nil {
		return 0, openai.InvalidRequest("", "The header x-phonebank-class must be guard, chat, review or batch.")
	}
	return max(class, lower), nil
}

// maxTokens is the bound of one choice's answer: the caller's, else the model's.
func maxTokens(head *openai.Head, model *Model) int {
	if head.MaxTokens > 0 {
		return head.MaxTokens
	}
	return max(model.MaxTokens, 1)
}

// admit reserves what the key pays and a phone or a place in the queue. The claim must be ended if there was no error.
func (g *Gateway) admit(ctx context.Context, h http.Header, who auth.Principal, head *openai.Head, t balancer.Ticket) (*balancer.Claim, error) {
	claim := g.Room.Expect(t)
	offer, err := claim.Offer(balancer.NewID())
	if err != nil {
		claim.End(ctx, balancer.Attempt{}, balancer.Settlement{})
		return nil, err
	}
	model := g.models[head.Model]
	reserve := float64(t.PromptTokens) + float64(head.Choices())*float64(maxTokens(head, model))
	limits := limit.Limits{RequestsPerMinute: who.RequestsPerMinute, TokensPerMinute: who.TokensPerMinute, Concurrent: who.Concurrent}
	cost := limit.Cost{Requests: 1, Tokens: int(min(reserve, math.MaxInt32))}

	decision, placement, err := g.Admitter.Admit(ctx, g.Room.Owner(), who.KeyID, limits, cost, offer)
	if err != nil {
		claim.End(ctx, balancer.Attempt{}, balancer.Settlement{})
		return nil, err
	}
	decision.SetHeaders(h)
	if err := decision.Err(); err != nil {
		claim.End(ctx, balancer.Attempt{}, balancer.Settlement{})
		return nil, err
	}
	if placement.Full != balancer.NotFull {
		claim.End(ctx, balancer.Attempt{}, balancer.Settlement{})
		return nil, errQueueFull
	}
	claim.Admitted(placement)
	return claim, nil
}

// answer runs the attempts while a streaming caller is kept company.
func (g *Gateway) answer(ctx context.Context, claim *balancer.Claim, out *relay.Delivery, p plan) run {
	company, leave := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		out.KeepAlive(company, g.cfg.CommitAfter, g.cfg.CommentGap, func() string { return status(claim.Status(), out) })
	})
	result := g.attempts(ctx, claim, out, p)
	leave()
	wg.Wait()
	return result
}

// status is the comment a waiting caller reads.
func status(s balancer.Status, out *relay.Delivery) string {
	on := ""
	if s.Replica != "" {
		on = ", on " + string(s.Replica)
	}
	switch done, total := out.Progress(); {
	case s.Waiting && s.Predicted > 0:
		return fmt.Sprintf("queued, %d ahead, about %s to go", s.Position, s.Predicted.Round(time.Second))
	case s.Waiting:
		return fmt.Sprintf("queued, %d ahead", s.Position)
	case total > 0 && done < total:
		return fmt.Sprintf("reading the prompt, %d of %d tokens%s", done, total, on)
	default:
		return "working" + on
	}
}

// refuse answers a request that never got to the queue.
func (g *Gateway) refuse(w http.ResponseWriter, r *http.Request, start time.Time, rec account.Record, err error) {
	v := judge(causeOf(r.Context(), err))
	rec.Outcome, rec.Err, rec.Status = v.outcome, err, statusClientClosed
	if v.public != nil {
		setRetryHeaders(w.Header(), v)
		body := v.public.Body()
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		w.WriteHeader(v.public.Status)
		_, _ = w.Write(body) // the caller may have gone
		rec.Status, rec.ErrorCode = v.public.Status, v.public.Code
	}
	rec.Total = time.Since(start)
	g.Book.Finish(r.Context(), rec)
}

// causeOf prefers the reason a context ended for over the error its end caused somewhere.
func causeOf(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil {
		return err
	}
	for _, known := range []error{errDeadline, balancer.ErrDraining} {
		if errors.Is(context.Cause(ctx), known) {
			return known
		}
	}
	return errCallerGone
}
