package redistest

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// startTimeout is generous: a server is up in 20 ms, unless the machine is busy.
const startTimeout = 10 * time.Second

// Instance is one Redis. Its methods fail the test on any error; those that signal the process are for real servers only.
type Instance struct {
	t      testing.TB
	socket string
	cmd    *exec.Cmd

	// Mini is the server inside the process, nil for a real one.
	Mini *miniredis.Miniredis
}

// Each runs f as a subtest on a real server and on one inside the process.
func Each(t *testing.T, f func(t *testing.T, i *Instance)) {
	t.Helper()
	t.Run("redis", func(t *testing.T) { t.Parallel(); f(t, Server(t)) })
	t.Run("miniredis", func(t *testing.T) { t.Parallel(); f(t, Mini(t)) })
}

// Server starts a redis-server that keeps nothing on disk and is killed when the test ends. Without the program the test is skipped, but
// with CI set it fails: there nothing is skipped.
func Server(t testing.TB) *Instance {
	t.Helper()
	path, err := exec.LookPath("redis-server")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("redis-server is not installed")
		}
		t.Skip("redis-server is not installed")
	}
	// Not t.TempDir: its name holds the test's, and the path of a socket may have 107 bytes only.
	dir, err := os.MkdirTemp("", "redis")
	if err != nil {
		t.Fatal(err)
	}
	i := &Instance{t: t, socket: filepath.Join(dir, "s")}
	t.Cleanup(func() {
		i.stop()
		_ = os.RemoveAll(dir)
	})
	i.start(path)
	return i
}

// Mini starts a server inside the process. It listens nowhere: use Dialer. Keys expire by its clock, which is the test's (a bubble's too)
// until Mini.SetTime takes it over.
func Mini(t testing.TB) *Instance {
	t.Helper()
	m := miniredis.NewMiniRedis()
	m.ClockTTL(true)
	t.Cleanup(m.Close)
	return &Instance{t: t, Mini: m}
}

// URL is what a client connects to; of a server inside the process it is only a name.
func (i *Instance) URL() string {
	if i.Mini != nil {
		return "redis://embedded"
	}
	return "unix://" + i.socket
}

// Dialer connects to a server inside the process; nil for a real one, whose URL says everything.
func (i *Instance) Dialer() func(ctx context.Context, network, addr string) (net.Conn, error) {
	if i.Mini == nil {
		return nil
	}
	return func(context.Context, string, string) (net.Conn, error) { return i.Mini.Dial() }
}

// Freeze stops the process: connections stay open and silent.
func (i *Instance) Freeze() { i.signal(syscall.SIGSTOP) }

// Thaw ends Freeze.
func (i *Instance) Thaw() { i.signal(syscall.SIGCONT) }

// Kill ends the process at once. What it held is lost.
func (i *Instance) Kill() {
	i.t.Helper()
	i.real()
	i.stop()
}

// Restart kills the process if it runs and starts an empty one at the same address.
func (i *Instance) Restart() {
	i.t.Helper()
	i.real()
	path := i.cmd.Path
	i.stop()
	i.start(path)
}

// FlushScripts makes the server forget all scripts.
func (i *Instance) FlushScripts() {
	i.t.Helper()
	if got := i.Do("SCRIPT", "FLUSH"); got != "+OK" {
		i.t.Fatalf("SCRIPT FLUSH: %s", got)
	}
}

// Do sends one command and returns the first line of the reply as it came, such as "+OK" or ":1".
func (i *Instance) Do(args ...string) string {
	i.t.Helper()
	line, err := i.do(args...)
	if err != nil {
		i.t.Fatalf("%s: %v", args[0], err)
	}
	return line
}

func (i *Instance) do(args ...string) (string, error) {
	conn, err := i.dial()
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(startTimeout)); err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(a), a)
	}
	if _, err := conn.Write([]byte(b.String())); err != nil {
		return "", err
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	return strings.TrimSpace(line), err
}

func (i *Instance) dial() (net.Conn, error) {
	if i.Mini != nil {
		return i.Mini.Dial()
	}
	return net.Dial("unix", i.socket)
}

func (i *Instance) start(path string) {
	i.t.Helper()
	i.cmd = exec.Command(path, "--port", "0", "--unixsocket", i.socket, "--dir", filepath.Dir(i.socket), "--save", "", "--appendonly", "no",
		"--maxmemory-policy", "noeviction", "--loglevel", "warning")
	if err := i.cmd.Start(); err != nil {
		i.t.Fatal(err)
	}
	deadline := time.Now().Add(startTimeout)
	for tick := time.NewTicker(2 * time.Millisecond); ; <-tick.C {
		if line, err := i.do("PING"); err == nil && line == "+PONG" {
			tick.Stop()
			return
		}
		if time.Now().After(deadline) {
			tick.Stop()
			i.t.Fatal("redis-server does not answer")
		}
	}
}

// stop ends the process, frozen or not, and waits for it.
func (i *Instance) stop() {
	if i.cmd == nil || i.cmd.Process == nil || i.cmd.ProcessState != nil {
		return
	}
	_ = i.cmd.Process.Kill()
	_ = i.cmd.Wait()
}

func (i *Instance) signal(s syscall.Signal) {
	i.t.Helper()
	i.real()
	if err := i.cmd.Process.Signal(s); err != nil {
		i.t.Fatal(err)
	}
}

func (i *Instance) real() {
	i.t.Helper()
	if i.Mini != nil {
		i.t.Fatal("redistest: a server inside the process cannot do that")
	}
}
