package limit

import (
	"net/http"
	"strconv"
	"time"
)

// SetHeaders sets the x-ratelimit-* headers of the limits that exist, on
// answers of every kind; a key without a limit gets no header for it, since
// "unlimited" has no spelling that clients know.
//
// On a refusal it also says when to come back: retry-after in whole seconds (at
// least 1) and retry-after-ms, which OpenAI's SDKs prefer; or x-should-retry:
// false when waiting cannot help, lest they try three times.
func (d Decision) SetHeaders(h http.Header) {
	d.Requests.setHeaders(h, "requests")
	d.Tokens.setHeaders(h, "tokens")
	switch {
	case d.Allowed:
	case d.TooLarge:
		h.Set("x-should-retry", "false")
	default:
		seconds := max(1, int64((d.RetryAfter+time.Second-1)/time.Second))
		h.Set("retry-after", strconv.FormatInt(seconds, 10))
		h.Set("retry-after-ms", strconv.FormatInt(max(1, d.RetryAfter.Milliseconds()), 10))
	}
}

func (b Bucket) setHeaders(h http.Header, name string) {
	if b.Limit <= 0 {
		return
	}
	h.Set("x-ratelimit-limit-"+name, strconv.Itoa(b.Limit))
	h.Set("x-ratelimit-remaining-"+name, strconv.Itoa(max(0, b.Remaining)))
	h.Set("x-ratelimit-reset-"+name, max(0, b.Reset).String())
}
