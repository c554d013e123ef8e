package harness

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Gateway is one gateway process.
type Gateway struct {
	URL   string // base URL without /v1
	Admin string // base URL of the operators' listener

	t    testing.TB
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended
	err  error         // of the process; valid after done

	mu  sync.Mutex
	log bytes.Buffer
}

// StartGateway runs the binary on a configuration and waits until it serves.
func StartGateway(t testing.TB, config string) *Gateway {
	t.Helper()
	path := filepath.Join(t.TempDir(), "phonebank.yaml")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	g := &Gateway{t: t, cmd: exec.Command(Binary(t), "serve", "-c", path), done: make(chan struct{})}
	stderr, err := g.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := g.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	serving := make(chan struct{})
	go g.follow(stderr, serving)
	t.Cleanup(func() {
		g.Kill()
		if t.Failed() {
			t.Logf("log of the gateway at %s:\n%s", g.URL, g.tail())
		}
	})
	select {
	case <-serving:
	case <-g.done:
		t.Fatalf("gateway ended at once: %v\n%s", g.err, g.tail())
	case <-time.After(20 * time.Second):
		t.Fatalf("gateway does not serve\n%s", g.tail())
	}
	return g
}

// follow keeps the log and waits for the line that tells the addresses, then for the end of the process.
func (g *Gateway) follow(stderr io.Reader, serving chan<- struct{}) {
	lines := bufio.NewReader(stderr)
	for {
		line, err := lines.ReadBytes('\n')
		g.mu.Lock()
		g.log.Write(line)
		g.mu.Unlock()
		var msg struct{ Msg, Listen, Admin string }
		if g.URL == "" && json.Unmarshal(line, &msg) == nil && msg.Msg == "serving" {
			g.URL, g.Admin = "http://"+msg.Listen, "http://"+msg.Admin
			close(serving)
		}
		if err != nil {
			break
		}
	}
	g.err = g.cmd.Wait()
	close(g.done)
}

// Log returns what the gateway has logged so far.
func (g *Gateway) Log() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.log.String()
}

func (g *Gateway) tail() string {
	const most = 8 << 10
	log := g.Log()
	return log[max(len(log)-most, 0):]
}

// Kill is kill -9; it returns when the process is gone.
func (g *Gateway) Kill() {
	_ = g.cmd.Process.Kill() // gone already is fine
	<-g.done
}

// Stop is SIGTERM; it returns the process's error when it has ended.
func (g *Gateway) Stop() error {
	_ = g.cmd.Process.Signal(syscall.SIGTERM)
	<-g.done
	return g.err
}

// Signal sends a signal.
func (g *Gateway) Signal(s os.Signal) { _ = g.cmd.Process.Signal(s) }

// Done is closed when the process has ended.
func (g *Gateway) Done() <-chan struct{} { return g.done }

// Get fetches an address with a key, if it is not empty, and returns status and body.
func Get(t testing.TB, url, key string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// Eventually polls until ok, and fails the test with the last complaint after within.
func Eventually(t testing.TB, within time.Duration, ok func() (bool, string)) {
	t.Helper()
	deadline := time.After(within)
	poll := time.NewTicker(50 * time.Millisecond)
	defer poll.Stop()
	for {
		good, complaint := ok()
		if good {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("after %v: %s", within, complaint)
		case <-poll.C:
		}
	}
}
