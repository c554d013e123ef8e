package e2e_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"phonebank/test/harness"
)

// run runs the binary to its end.
func run(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, harness.Binary(t), args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		t.Fatal(err)
	} else if ok {
		code = exit.ExitCode()
	}
	return code, out.String(), errs.String()
}

func TestDemoOnce(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{nil, {"--seed", "2", "--phones", "4"}} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			t.Parallel()
			code, stdout, stderr := run(t, append([]string{"demo", "--once", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"}, args...)...)
			if code != 0 || stderr != "" {
				t.Errorf("exit %d\n%s%s", code, stdout, stderr)
			}
			for _, want := range []string{"killing phone-", "guard   done", "chat    done", "review  done", "all three answers are right"} {
				if !strings.Contains(stdout, want) {
					t.Errorf("%q is not shown in\n%s", want, stdout)
				}
			}
		})
	}
}

// What the demo prints can be pasted.
func TestDemoPrintsACurlThatWorks(t *testing.T) {
	t.Parallel()
	curl, err := exec.LookPath("curl")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("curl is not installed")
		}
		t.Skip("curl is not installed")
	}
	cmd := exec.CommandContext(t.Context(), harness.Binary(t), "demo", "--load", "0", "--phones", "3", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0")
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	args := pasted(t, stdout)
	if args[0] != "curl" {
		t.Fatalf("pasted %q", args)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	answer, err := exec.CommandContext(ctx, curl, append([]string{"-sS", "--fail"}, args[1:]...)...).CombinedOutput()
	if err != nil || !bytes.Contains(answer, []byte(`"content":"`)) || !bytes.HasSuffix(answer, []byte("data: [DONE]\n\n")) {
		t.Errorf("%v\n%s", err, answer)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	rest, _ := io.ReadAll(stdout) // until it ends
	if err := cmd.Wait(); err != nil {
		t.Errorf("demo ended with %v\n%s", err, rest)
	}
}

// pasted reads up to the first command that starts with curl and returns its words as a shell would.
func pasted(t *testing.T, from io.Reader) []string {
	t.Helper()
	var text string
	for lines := bufio.NewScanner(from); lines.Scan(); {
		line := strings.TrimSpace(lines.Text())
		if text == "" && !strings.HasPrefix(line, "curl ") {
			continue
		}
		var more bool
		line, more = strings.CutSuffix(line, `\`)
		text += line
		if !more {
			break
		}
	}
	var words []string
	word, quoted := "", false
	for _, c := range text + " " {
		switch {
		case c == '\'':
			quoted = !quoted
		case c == ' ' && !quoted:
			if word != "" {
				words = append(words, word)
			}
			word = ""
		case strings.ContainsRune("\"$`\\&;|<>*?()", c) && !quoted:
			t.Fatalf("a shell would do something with %q in: %s", c, text)
		default:
			word += string(c)
		}
	}
	if len(words) == 0 {
		t.Fatal("no curl was printed")
	}
	return words
}

func TestCheckTellsAllFaults(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	fleet := harness.StartFleet(t, 1, 1)
	good := write("good.yaml", fleet.Config(harness.Options{}))
	if code, stdout, stderr := run(t, "check", "-c", good); code != 0 || stdout != "ok: 1 model, 1 replica\n" || stderr != "" {
		t.Errorf("good file: exit %d, %q, %q", code, stdout, stderr)
	}
	const secret = "hunter2-hunter2"
	faulty := write("faulty.yaml", `listen: 127.0.0.1:0
lissten: 1
auth:
  keys:
    - {id: a, key: "`+secret+`", class: urgent}
models:
  - {id: m, context: many}
replicas:
  - {id: p, url: "ftp://127.0.0.1", model: other, engine: llama.cpp, slots: 0}
`)
	for _, command := range []string{"check", "serve"} {
		code, stdout, stderr := run(t, command, "-c", faulty)
		if code != 1 || stdout != "" || strings.Contains(stderr, secret) {
			t.Errorf("%s: exit %d, %q, %q", command, code, stdout, stderr)
		}
		for _, place := range []string{":2:", ":5:", ":7:", ":9:"} {
			if !strings.Contains(stderr, faulty+place) {
				t.Errorf("%s: no fault at %s in\n%s", command, place, stderr)
			}
		}
	}
	if code, _, stderr := run(t, "check", "-c", filepath.Join(dir, "missing.yaml")); code != 1 || !strings.Contains(stderr, "missing.yaml") {
		t.Errorf("missing file: exit %d, %q", code, stderr)
	}
}
