package relay

import (
	"time"

	"phonebank/gateway/openai"
)

// Result says how an attempt ended and what it cost.
type Result struct {
	Kind      Kind
	Lost      bool          // the phone vanished (reset, EOF, silence): the caller is charged no attempt
	Delivered bool          // content of this attempt has reached the caller: no other phone may answer from the start
	Err       error         // cause, for the log; never shown to the caller
	Public    *openai.Error // with Caller: what to tell
	Wait      time.Duration // with Busy: how long the phone asked to be left alone; 0 when it did not say
	Phase     Phase

	Usage      openai.Usage   // as reported, or counted by us when Counted
	Counted    bool           // the phone reported no usage
	Timings    openai.Timings // as reported; zero when not
	FirstToken time.Duration  // from the start of the attempt; 0 when none came
	Total      time.Duration
}
