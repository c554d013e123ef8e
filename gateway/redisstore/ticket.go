package redisstore

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"phonebank/balancer"
)

const (
	maxName  = 256 // bytes of a model or key
	maxSlots = 64  // of one ticket
)

// ticketBody is what of a ticket no script reads. Times are ms since the epoch, 0 for none.
type ticketBody struct {
	Class        string `json:"class"`
	PromptTokens int    `json:"prompt,omitempty"`
	OutputTokens int    `json:"output,omitempty"`
	Arrived      int64  `json:"arrived,omitempty"`
	Deadline     int64  `json:"deadline,omitempty"`
	HardEndMS    int64  `json:"hard_end,omitempty"`
	Key          string `json:"key"`
	Model        string `json:"model"`
	Slots        int    `json:"slots"`
}

func encodeTicket(t balancer.Ticket) (string, error) {
	b, err := json.Marshal(ticketBody{
		Class:        t.Class.String(),
		PromptTokens: t.PromptTokens,
		OutputTokens: t.OutputTokens,
		Arrived:      millis(t.Arrived),
		Deadline:     millis(t.Deadline),
		HardEndMS:    t.HardEnd.Milliseconds(),
		Key:          t.Key,
		Model:        t.Model,
		Slots:        t.Slots,
	})
	return string(b), err
}

// decodeTicket puts a ticket together from its body and the fields that scripts change.
func decodeTicket(id, body, tried string, heldMS int64) (balancer.Ticket, error) {
	var b ticketBody
	if err := json.Unmarshal([]byte(body), &b); err != nil {
		return balancer.Ticket{}, fmt.Errorf("ticket %s: %w", id, err)
	}
	class, err := balancer.ParseClass(b.Class)
	if err != nil {
		return balancer.Ticket{}, fmt.Errorf("ticket %s: %w", id, err)
	}
	t := balancer.Ticket{
		ID:           id,
		Key:          b.Key,
		Model:        b.Model,
		Class:        class,
		PromptTokens: b.PromptTokens,
		OutputTokens: b.OutputTokens,
		Slots:        b.Slots,
		Arrived:      fromMillis(b.Arrived),
		Deadline:     fromMillis(b.Deadline),
		HardEnd:      time.Duration(b.HardEndMS) * time.Millisecond,
		HeldSince:    fromMillis(heldMS),
	}
	for phone := range strings.FieldsSeq(tried) {
		t.Tried = append(t.Tried, balancer.ReplicaID(phone))
	}
	return t, nil
}

// validTicket refuses what scripts could not keep apart or could not end.
func validTicket(by balancer.Owner, t balancer.Ticket) error {
	switch {
	case !validID(string(by)):
		return errors.New("owner: use 1 to 64 of [A-Za-z0-9._:-]")
	case !validID(t.ID):
		return errors.New("ticket id: use 1 to 64 of [A-Za-z0-9._:-]")
	case t.Key == "" || len(t.Key) > maxName:
		return fmt.Errorf("ticket %s: key must have 1 to %d bytes", t.ID, maxName)
	case t.Model == "" || len(t.Model) > maxName:
		return fmt.Errorf("ticket %s: model must have 1 to %d bytes", t.ID, maxName)
	case t.Slots < 1 || t.Slots > maxSlots:
		return fmt.Errorf("ticket %s: %d slots, must be 1 to %d", t.ID, t.Slots, maxSlots)
	}
	return nil
}

// validLease refuses a lease id that could be taken for another lease's second slot, and candidates that are none.
func validLease(lease string, candidates []balancer.Candidate) error {
	if !validID(lease) {
		return errors.New("lease id: use 1 to 64 of [A-Za-z0-9._:-]")
	}
	for _, c := range candidates {
		if !validID(string(c.Replica)) {
			return errors.New("replica id: use 1 to 64 of [A-Za-z0-9._:-]")
		}
	}
	return nil
}

// appendCandidates adds three arguments for each.
func appendCandidates(args []any, candidates []balancer.Candidate) []any {
	for _, c := range candidates {
		args = append(args, string(c.Replica), c.Generation, max(0, c.Predicted.Milliseconds()))
	}
	return args
}

// lifeMS is the time from admission to the hard end.
func (s *Store) lifeMS(t balancer.Ticket) int64 {
	if t.HardEnd <= 0 {
		return s.config.MaxLife.Milliseconds()
	}
	return t.HardEnd.Milliseconds()
}

func orderText(t balancer.Ticket) string { return strconv.FormatFloat(t.Order(), 'g', 17, 64) }

func flagText(b bool) string {
	if b {
		return "1"
	}
	return "0"
}
