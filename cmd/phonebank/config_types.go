package main

import (
	"encoding/json"
	"errors"
	"log/slog"
	"math"
	"strconv"
	"strings"
)

// Secret is a string that does not show itself in logs, errors or dumps.
// Convert it to string where it is used.
type Secret string

const redacted = "[redacted]"

func (s Secret) String() string               { return redacted }
func (s Secret) GoString() string             { return redacted }
func (s Secret) LogValue() slog.Value         { return slog.StringValue(redacted) }
func (s Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// Path is a file name. In the file it may be relative to the configuration
// file; in a loaded [Config] it is not.
type Path string

// Size is a number of bytes, written as 1048576, 1MiB or 1MB.
type Size int64

// UnmarshalText reads a size.
func (s *Size) UnmarshalText(text []byte) error {
	digits, factor := string(text), int64(1)
	for _, unit := range []struct {
		suffix string
		bytes  int64
	}{
		{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30},
		{"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"B", 1},
	} {
		if rest, ok := strings.CutSuffix(digits, unit.suffix); ok {
			digits, factor = strings.TrimSpace(rest), unit.bytes
			break
		}
	}
	n, err := strconv.ParseUint(digits, 10, 63)
	if err != nil || n > uint64(math.MaxInt64/factor) {
		return errors.New("is not a size; write it as 10MiB")
	}
	*s = Size(int64(n) * factor)
	return nil
}

// Field is one member of a JSON object, its value spelled as in the file.
type Field struct {
	Name string
	Raw  json.RawMessage
}

// Fields are the members of a JSON object in the order of the file.
type Fields []Field
