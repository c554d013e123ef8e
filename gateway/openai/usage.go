package openai

import "math/bits"

// UsageSum folds the usage that a stream's chunks carry into the usage of the
// whole answer. Engines differ: OpenAI sends one total at the end, llama-server
// one record for each choice as it finishes, others a running count on every
// chunk and a total. The zero value is ready.
type UsageSum struct {
	// Prompts is how many prompts the request held; 0 means 1. The prompt is
	// counted once for each, however many choices it had.
	Prompts int

	total    Usage // sum over records
	records  int   // of finished choices
	finished int   // choices that finished since the last record
	running  bool  // total is a count of choices still running
}

// Add takes what one chunk says, in the order of the stream.
func (u *UsageSum) Add(c *Chunk) {
	if c.Finished {
		u.finished += max(1, bits.OnesCount64(c.FinishedSet))
	}
	if c.Usage == nil {
		return
	}
	switch {
	case u.finished > 0 && u.records > 0:
		u.total.PromptTokens += c.Usage.PromptTokens
		u.total.CachedTokens += c.Usage.CachedTokens
		u.total.CompletionTokens += c.Usage.CompletionTokens
		u.records++
	default: // the first record, a grand total after all others, or a running count
		u.total = *c.Usage
		u.running = u.finished == 0 && u.records == 0
		u.records = 1
		if u.running {
			u.records = 0
		}
	}
	u.finished = 0
}

// Total is the usage of the whole answer so far, false when the engine gave none.
func (u *UsageSum) Total() (Usage, bool) {
	t := u.total
	if u.records > 1 {
		prompts := max(1, u.Prompts)
		n := max(u.records, prompts)
		t.PromptTokens = t.PromptTokens * prompts / n
		t.CachedTokens = t.CachedTokens * prompts / n
		t.TotalTokens = t.PromptTokens + t.CompletionTokens
	}
	return t, u.records > 0 || u.running
}
