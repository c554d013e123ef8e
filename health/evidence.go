package health

import "time"

// Kind says what was seen of a phone.
type Kind uint8

// The kinds of evidence. The zero value is no evidence: an attempt cancelled by its caller says nothing about the phone.
const (
	None Kind = iota

	Alive       // a probe was answered, or a running answer delivered another event
	ProbeBusy   // a probe was told to wait (loading, overloaded): alive, but no work for Evidence.LeaveAlone
	Unreachable // a probe got no answer
	Refused     // a probe was turned away: wrong key, wrong path, wrong certificate

	Served        // an attempt succeeded
	Offline       // an attempt found nobody: refused, reset, or closed in the handshake
	Silent        // an attempt got no answer within its clock
	Broken        // an attempt or a probe got nonsense: 502, 52x, HTML, stalled, truncated
	Busy          // an attempt was told to wait: 429, 503, Retry-After
	Misconfigured // an attempt was turned away: 401, 403, 404 of the model
	Unclear       // an attempt got a 500, which llama-server also says to some bad requests
	Tripped       // the local breaker of one gateway opened
)

var kindNames = [...]string{
	None: "none", Alive: "alive", ProbeBusy: "probe_busy", Unreachable: "unreachable", Refused: "refused",
	Served: "served", Offline: "offline", Silent: "silent", Broken: "broken", Busy: "busy",
	Misconfigured: "misconfigured", Unclear: "unclear", Tripped: "tripped",
}

// Kinds lists every kind, in order, for tests and metrics.
func Kinds() []Kind {
	all := make([]Kind, len(kindNames))
	for i := range all {
		all[i] = Kind(i)
	}
	return all
}

// String returns the name used in reasons and logs.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "unknown"
}

// Evidence is one observation of one phone.
type Evidence struct {
	Kind       Kind
	At         time.Time     // by the clock of the shared state; of a probe: when it was sent
	LeaveAlone time.Duration // ProbeBusy, Busy: how long the phone asked for; 0 when it did not say
	Reason     string        // for an operator: what was seen, without secrets
}

// good reports whether the evidence shows the phone at work.
func (e Evidence) good() bool { return e.Kind == Alive || e.Kind == Served }
