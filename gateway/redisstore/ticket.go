package redisstore

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"phonebank/balancer"
)

const (
	maxName  = 256 // bytes of a model or key
	maxSlots = 64  // of one ticket
)

// encodeTicket is what of a ticket no script reads: "class prompt output arrived_ms deadline_ms life_ms". It stays below 64 bytes: a hash
// with a longer value loses its compact form, which costs more than the rest of the write.
func encodeTicket(t balancer.Ticket) string {
	return fmt.Sprintf("%d %d %d %d %d %d", t.Class, t.PromptTokens, t.OutputTokens, millis(t.Arrived), millis(t.Deadline), t.HardEnd.Milliseconds())
}

// decodeTicket adds to t what encodeTicket has written.
func decodeTicket(t *balancer.Ticket, body string) error {
	var class uint8
	var arrived, deadline, life int64
	if _, err := fmt.Sscanf(body, "%d %d %d %d %d %d", &class, &t.PromptTokens, &t.OutputTokens, &arrived, &deadline, &life); err != nil {
		return fmt.Errorf("ticket %s: %w", t.ID, err)
	}
	t.Class = balancer.Class(class)
	t.Arrived, t.Deadline, t.HardEnd = fromMillis(arrived), fromMillis(deadline), time.Duration(life)*time.Millisecond
	return nil
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
