package gateway

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"time"

	"phonebank/gateway/openai"
)

// readBody reads a whole request body of at most limit bytes within the given time, whether or not its length was announced.
// Errors are *openai.Error.
func readBody(w http.ResponseWriter, r *http.Request, limit int64, within time.Duration) ([]byte, error) {
	if enc := r.Header.Get("Content-Encoding"); enc != "" && enc != "identity" {
		return nil, openai.UnsupportedEncoding(enc)
	}
	if r.ContentLength > limit {
		return nil, openai.TooLarge(limit)
	}
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(time.Now().Add(within)) // not every writer has one (tests)
	defer func() { _ = rc.SetReadDeadline(time.Time{}) }()

	var buf bytes.Buffer
	if r.ContentLength > 0 {
		buf.Grow(int(r.ContentLength) + bytes.MinRead) // ReadFrom wants room to find the end
	}
	_, err := buf.ReadFrom(http.MaxBytesReader(w, r.Body, limit))
	var tooLarge *http.MaxBytesError
	switch {
	case err == nil:
		return buf.Bytes(), nil
	case errors.As(err, &tooLarge):
		return nil, openai.TooLarge(limit)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return nil, openai.InvalidRequest("", "The request body ended before its announced length. Send it again.")
	default:
		return nil, &openai.Error{Status: http.StatusRequestTimeout, Type: openai.TypeInvalidRequest,
			Message: "The request body could not be read to its end in time. Send it again."}
	}
}
