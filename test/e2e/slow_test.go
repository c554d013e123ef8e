package e2e_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"phonebank/test/fakephone"
	"phonebank/test/harness"
)

// Callers that never read, and callers that never finish their request, cost neither memory nor phones for long.
func TestSlowCallers(t *testing.T) {
	if testing.Short() {
		t.Skip("takes as long as a caller may take to read: 30 s")
	}
	t.Parallel()
	const speed, callers = 500, 4
	fleet := harness.StartFleet(t, 2, speed, func(_ int, c *fakephone.Config) {
		c.Profile = fakephone.Profile{Name: "torrent", Slots: callers / 2, PrefillShortTPS: 100, DecodeTPS: 20}
	})
	g := harness.StartGateway(t, fleet.Config(harness.Options{}))
	awaitReady(t, g, 2)
	if r := send(t.Context(), g.URL, call{class: "chat", prompt: "Warm up", maxTokens: 64, stream: true}); r.status != http.StatusOK {
		t.Fatal(r)
	}
	before := resident(t, g)

	var loris sync.WaitGroup
	for range 20 {
		loris.Go(func() { dribble(t, g) })
	}
	started := time.Now()
	for i := range callers {
		conn := connect(t, g)
		body := call{class: "chat", prompt: fmt.Sprintf("Never read %d LENGTH=1000000", i), maxTokens: 1_000_000, stream: true}.body()
		if _, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: phonebank\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
			chatPath, harness.Key, len(body), body); err != nil {
			t.Fatal(err)
		}
	}
	awaitDepth(t, g, callers)
	most := before
	harness.Eventually(t, time.Minute, func() (bool, string) {
		most = max(most, resident(t, g))
		n := depth(t, g)
		return n == 0, fmt.Sprintf("%d slots still occupied by callers that do not read", n)
	})
	took := time.Since(started)
	t.Logf("slots free after %v; memory grew by %d KiB at most", took.Round(time.Millisecond), (most-before)>>10)
	if took < 25*time.Second {
		t.Errorf("slots free after %v already: the callers were not held back by what they did not read", took)
	}
	if grown := most - before; grown > 24<<20 {
		t.Errorf("memory grew by %d MiB: the streams are piling up", grown>>20)
	}
	for _, p := range fleet.Phones {
		harness.Eventually(t, 5*time.Second, func() (bool, string) {
			s := p.Stats()
			return s.Active == 0, fmt.Sprintf("%s still works for %d callers", p.Config().ID, s.Active)
		})
	}
	loris.Wait()
}

// connect opens a connection with the smallest buffer for what comes back.
func connect(t *testing.T, g *harness.Gateway) net.Conn {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(g.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
		t.Fatal(err)
	}
	return conn
}

// dribble sends half of a head and wants to be cut off.
func dribble(t *testing.T, g *harness.Gateway) {
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(g.URL, "http://"))
	if err != nil {
		t.Error(err)
		return
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: phonebank\r\nX-Slow: "); err != nil {
		t.Error(err)
		return
	}
	if err := conn.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Error(err)
		return
	}
	if _, err := io.Copy(io.Discard, bufio.NewReader(conn)); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("a caller that never finished its head still has its connection after 20 s")
	}
}

// resident is the memory of a gateway in bytes, by its own metrics.
func resident(t *testing.T, g *harness.Gateway) int64 {
	t.Helper()
	_, metrics := harness.Get(t, g.Admin+"/metrics", harness.AdminKey)
	for line := range strings.Lines(metrics) {
		if value, ok := strings.CutPrefix(line, "process_resident_memory_bytes "); ok {
			n, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil {
				t.Fatal(err)
			}
			return int64(n)
		}
	}
	t.Skip("this system does not tell how much memory a process has")
	return 0
}
