package relay

// Kind is how an attempt ended.
type Kind uint8

// The kinds. Offline to Nonsense are failures of the phone, in the order of the table in classify.go.
const (
	Done          Kind = iota // the whole answer was delivered
	Offline                   // refused, reset, or cut in the TLS handshake: the phone is not there
	Silent                    // nothing came within the clock
	Broken                    // an answer no engine gives: HTML, 502, wrong content type, cut before the headers
	Busy                      // the phone says it cannot take work now
	Misconfigured             // the phone refuses our key, shows another certificate or does not know the model
	Unclear                   // 500: the phone's fault or the request's
	Caller                    // the request is at fault; the answer goes back
	Stalled                   // events stopped in the middle
	Truncated                 // ended without finish reason and [DONE]
	Nonsense                  // an answer that cannot be one, such as an empty one
	Cancelled                 // the caller has gone, or the gateway gave up
)

var kindNames = [...]string{
	Done: "done", Offline: "offline", Silent: "silent", Broken: "broken", Busy: "busy", Misconfigured: "misconfigured",
	Unclear: "unclear", Caller: "caller", Stalled: "stalled", Truncated: "truncated", Nonsense: "nonsense", Cancelled: "cancelled",
}

// String returns the name used in logs and metrics.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "unknown"
}

// Kinds lists every kind, in order, for metrics and tests.
func Kinds() []Kind {
	all := make([]Kind, len(kindNames))
	for i := range all {
		all[i] = Kind(i)
	}
	return all
}

// Phase is how far an attempt got.
type Phase uint8

// The phases of an attempt.
const (
	Connecting Phase = iota // no connection yet: the phone has not heard of the request
	Waiting                 // sent; no header yet
	Prefill                 // headers came, no token yet
	Decoding                // tokens came
)
