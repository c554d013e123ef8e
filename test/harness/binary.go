package harness

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
)

// built is the one binary of a test process.
var built = sync.OnceValues(build)

func build() (string, error) {
	_, here, _, _ := runtime.Caller(0)
	dir, err := os.MkdirTemp("", "phonebank-e2e-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "phonebank")
	cmd := exec.Command("go", "build", "-o", path, "./cmd/phonebank")
	cmd.Dir = filepath.Join(filepath.Dir(here), "..", "..")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return path, nil
}

// Binary builds the command once and returns its path.
func Binary(t testing.TB) string {
	t.Helper()
	path, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return path
}
