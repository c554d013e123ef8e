package deploy_test

import (
	"bufio"
	"context"
	"encoding/pem"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"phonebank/test/bench"
	"phonebank/test/harness"
)

// The configuration that compose mounts passes the binary's own check.
func TestGatewayConfigIsValid(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds the binary")
	}
	certificate, err := bench.SelfSigned()
	if err != nil {
		t.Fatal(err)
	}
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Certificate[0]})
	dir := t.TempDir()
	for _, phone := range []string{"phone-1", "phone-2", "phone-3"} {
		if err := os.WriteFile(filepath.Join(dir, phone+".crt"), block, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), harness.Binary(t), "check", "-c", "docker/phonebank.yaml")
	cmd.Env = append(os.Environ(), "CERTIFICATES="+dir)
	keys := regexp.MustCompile(`^\$\{\w+:-(.+)\}$`)
	for variable, value := range compose(t)["gateway-1"].Environment {
		if key := keys.FindStringSubmatch(value); key != nil {
			cmd.Env = append(cmd.Env, variable+"="+key[1])
		}
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("phonebank check: %v\n%s", err, out)
	}
}

// Events pass the sample proxy when they are sent, not when the stream ends,
// and a caller's leaving passes it too.
func TestNginxStreams(t *testing.T) {
	t.Parallel()
	left := make(chan struct{})
	gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = w.Write([]byte("data: first\n\n"))
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(left)
	}))
	defer gateway.Close()
	defer gateway.CloseClientConnections()
	client := startNginx(t, gateway.Listener.Addr().String())

	ctx, leave := context.WithTimeout(t.Context(), 20*time.Second)
	defer leave()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://phonebank.test/v1/chat/completions", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	line, err := bufio.NewReader(resp.Body).ReadString('\n')
	if err != nil || line != "data: first\n" {
		t.Fatalf("first line = %q, %v; want the event while the stream is open", line, err)
	}
	leave()
	select {
	case <-left:
	case <-time.After(20 * time.Second):
		t.Error("the gateway did not hear that the caller had left")
	}
}

// startNginx runs the sample on a unix socket, with its upstreams replaced by
// gateway, and returns a client that speaks to it.
func startNginx(t *testing.T, gateway string) *http.Client {
	t.Helper()
	program, err := exec.LookPath("nginx")
	if err != nil {
		program, err = exec.LookPath("/usr/sbin/nginx") // not in everybody's PATH
	}
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("nginx is not installed")
		}
		t.Skip("nginx is not installed")
	}
	// Not t.TempDir: the path of a socket may have 107 bytes only.
	dir, err := os.MkdirTemp("", "nginx")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s")
	config := strings.NewReplacer(
		"/tmp/", dir+"/",
		"listen 8080;", "listen unix:"+socket+";",
		"gateway-1:8080", gateway,
		"gateway-2:8080", gateway,
	).Replace(string(read(t, "nginx/nginx.conf")))
	name := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(name, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "-p", dir, "-c", name, "-e", "stderr", "-g", "daemon off; master_process off;")
	var log strings.Builder
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("nginx:\n%s", log.String())
		}
	})
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}
	harness.Eventually(t, 10*time.Second, func() (bool, string) {
		conn, err := dial(t.Context(), "", "")
		if err != nil {
			return false, err.Error()
		}
		_ = conn.Close()
		return true, ""
	})
	return &http.Client{Transport: &http.Transport{DialContext: dial}}
}
