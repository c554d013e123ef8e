package relay

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"time"

	"phonebank/gateway/openai"
)

// classifyTransport says what an error before the response's headers means.
func classifyTransport(ctx context.Context, err error) Result {
	res := Result{Err: err, Lost: true}
	var dial *DialError
	isDial := errors.As(err, &dial)
	switch {
	case errors.Is(context.Cause(ctx), errClock):
		res.Kind = Silent
	case ctx.Err() != nil:
		res.Kind, res.Lost = Cancelled, false
	case isUntrusted(err):
		res.Kind = Misconfigured
	case isTimeout(err):
		res.Kind = Silent
	case isDial, errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.EPIPE):
		res.Kind = Offline
	default: // EOF before the headers, malformed headers: something answers there, but no engine
		res.Kind = Broken
	}
	return res
}

// classifyRead says what an error in the body means. An orderly end is not an error; see Truncated.
func classifyRead(ctx context.Context, err error) Result {
	res := Result{Err: err, Lost: true}
	switch {
	case errors.Is(context.Cause(ctx), errClock):
		res.Kind = Stalled
	case ctx.Err() != nil:
		res.Kind, res.Lost = Cancelled, false
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		res.Kind = Offline
	case errors.Is(err, openai.ErrEventTooLarge):
		res.Kind, res.Lost = Nonsense, false
	default:
		res.Kind = Truncated // the connection ended before the message did
		res.Lost = errors.Is(err, io.ErrUnexpectedEOF)
	}
	return res
}

func isTimeout(err error) bool {
	var t net.Error
	return errors.As(err, &t) && t.Timeout()
}

func isUntrusted(err error) bool {
	var verify *tls.CertificateVerificationError
	var unknown x509.UnknownAuthorityError
	var host x509.HostnameError
	return errors.Is(err, ErrPin) || errors.As(err, &verify) || errors.As(err, &unknown) || errors.As(err, &host)
}

// maxErrorBody bounds what is read of an error's body.
const maxErrorBody = 64 << 10

// classifyStatus says what a response other than 200 means, by its status first and the engine's own word second.
func classifyStatus(resp *http.Response) Result {
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
	up := openai.ParseUpstreamError(resp.StatusCode, body)
	res := Result{Err: &statusError{Status: resp.StatusCode, Type: up.Type}}
	switch code := resp.StatusCode; {
	case code == http.StatusTooManyRequests,
		code == http.StatusServiceUnavailable && (!up.HTML || resp.Header.Get("Retry-After") != ""):
		res.Kind, res.Wait = Busy, retryAfter(resp.Header, time.Now())
	case code == http.StatusUnauthorized, code == http.StatusForbidden, code == http.StatusNotFound,
		code == http.StatusMethodNotAllowed, code == http.StatusNotImplemented, code == http.StatusProxyAuthRequired:
		res.Kind = Misconfigured
	case up.HTML:
		res.Kind = Broken
	case code == http.StatusInternalServerError:
		res.Kind = Unclear
	case code >= 500, code < 400, code == http.StatusRequestTimeout:
		res.Kind = Broken
	default:
		res.Kind, res.Public = Caller, up.Caller()
	}
	return res
}

// classifyUpstreamError says what an error inside a 200, or inside the stream, means: as its type says.
func classifyUpstreamError(up openai.UpstreamError) Result {
	res := Result{Err: &statusError{Status: up.Code, Type: up.Type}}
	switch {
	case up.Type == "unavailable_error", up.Code == http.StatusServiceUnavailable, up.Code == http.StatusTooManyRequests:
		res.Kind = Busy
	case up.Type == "authentication_error", up.Type == "permission_error", up.Type == "not_found_error",
		up.Type == "not_supported_error", up.Type == "feature_disabled":
		res.Kind = Misconfigured
	case up.ContextExceeded(), up.Type == "invalid_request_error" && up.Code < 500:
		res.Kind, res.Public = Caller, up.Caller()
	default:
		res.Kind = Unclear
	}
	return res
}

// statusError is the cause of a failed attempt for the log: never the phone's text, which may repeat the prompt.
type statusError struct {
	Status int
	Type   string
}

// Error implements error.
func (e *statusError) Error() string {
	return "phone answered " + strconv.Itoa(e.Status) + " " + e.Type
}

// retryAfter reads how long the phone wants to be left alone: seconds or a date; 0 when it did not say or made no sense.
func retryAfter(h http.Header, now time.Time) time.Duration {
	v := strings.TrimSpace(h.Get("Retry-After"))
	if s, err := strconv.ParseFloat(v, 64); err == nil && s > 0 && s < 1e6 {
		return time.Duration(s * float64(time.Second))
	}
	if at, err := http.ParseTime(v); err == nil && at.After(now) {
		return at.Sub(now)
	}
	return 0
}
