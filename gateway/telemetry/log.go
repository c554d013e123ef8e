package telemetry

import (
	"fmt"
	"io"
	"log/slog"
)

// Format is how log lines are written.
type Format string

// The formats. The zero value means JSON.
const (
	JSON Format = "json"
	Text Format = "text" // logfmt, for people
)

// NewLogger returns a logger that writes to w. Level is "debug", "info", "warn" or "error"; empty is info.
func NewLogger(w io.Writer, format Format, level string) (*slog.Logger, error) {
	var least slog.Level
	if level != "" {
		if err := least.UnmarshalText([]byte(level)); err != nil {
			return nil, fmt.Errorf("log level %q: use debug, info, warn or error", level)
		}
	}
	opts := &slog.HandlerOptions{Level: least}
	switch format {
	case JSON, "":
		return slog.New(slog.NewJSONHandler(w, opts)), nil
	case Text:
		return slog.New(slog.NewTextHandler(w, opts)), nil
	default:
		return nil, fmt.Errorf("log format %q: use json or text", format)
	}
}
