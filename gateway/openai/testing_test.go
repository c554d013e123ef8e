package openai

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// golden reads a recorded answer.
func golden(tb testing.TB, name string) []byte {
	tb.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// goldens lists the recorded answers with that ending.
func goldens(tb testing.TB, ext string) []string {
	tb.Helper()
	paths, err := filepath.Glob(filepath.Join("testdata", "*"+ext))
	if err != nil || len(paths) == 0 {
		tb.Fatalf("no %s in testdata (error %v)", ext, err)
	}
	for i := range paths {
		paths[i] = filepath.Base(paths[i])
	}
	return paths
}

// decode is the independent reader that results are compared through.
func decode(tb testing.TB, data []byte) any {
	tb.Helper()
	d := json.NewDecoder(strings.NewReader(string(data)))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		tb.Fatalf("invalid JSON %q: %v", data, err)
	}
	return v
}

func decodeObject(tb testing.TB, data []byte) map[string]any {
	tb.Helper()
	m, ok := decode(tb, data).(map[string]any)
	if !ok {
		tb.Fatalf("not an object: %q", data)
	}
	return m
}
