package harness

import (
	"fmt"
	"io/fs"
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
	root := filepath.Join(filepath.Dir(here), "..", "..")
	if err := touchSources(root); err != nil {
		return "", err
	}
	cmd := exec.Command("go", "build", "-o", path, "./cmd/phonebank")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return path, nil
}

// touchSources looks at every file the binary is built from. The test cache follows what the test process reads, not what the compiler it
// starts does: without this a test of the binary would stay "ok (cached)" whatever changed in it.
func touchSources(root string) error {
	return filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && path != root && (e.Name()[0] == '.' || e.Name() == "node_modules" || e.Name() == "testdata"):
			return filepath.SkipDir
		case e.IsDir():
			return nil
		}
		switch filepath.Ext(path) {
		case ".go", ".lua", ".json", ".mod", ".sum":
			_, err = os.Stat(path)
		}
		return err
	})
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
