package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/labstack/echo/v4"

	"phonebank/auth"
	"phonebank/balancer"
)

const adminKey = "admin-key-0123456789"

var epoch = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

// fleet is a Fleet of two phones.
type fleet struct{}

func (fleet) Now() time.Time { return epoch }

func (fleet) Snapshot() *balancer.Snapshot {
	return balancer.NewSnapshot(epoch, []balancer.View{
		{
			Replica: balancer.Replica{
				ID: "phone-1", Model: "qwen", Engine: balancer.LlamaCpp, Slots: 2, Context: 4096, EndsAt: epoch.Add(time.Hour),
			},
			Generation: 3, State: balancer.Ready, Since: epoch.Add(-time.Minute),
			LeaveAlone: epoch.Add(-time.Second), Ends: []time.Time{epoch},
		},
		{
			Replica:    balancer.Replica{ID: "phone-2", Model: "qwen", Engine: balancer.MNN, Slots: 1},
			Generation: 1, State: balancer.Down, Reason: "offline: connection reset", Since: epoch, LeaveAlone: epoch.Add(5 * time.Second),
		},
	}, nil)
}

func (fleet) Rates(id balancer.ReplicaID) (balancer.Rates, bool) {
	var r balancer.Rates
	r.Prefill[balancer.PrefillBucket(referencePrompt)], r.Decode[0] = 60, 9
	return r, id == "phone-1"
}

// operators knows the admin key, and a viewer.
func operators(t *testing.T) *auth.Admin {
	t.Helper()
	a, err := auth.NewAdmin(auth.AdminConfig{Key: adminKey})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// viewers lets everybody with a credential in as a viewer.
type viewers struct{}

func (viewers) Configured() bool { return true }

func (viewers) Authenticate(h http.Header) (auth.Operator, error) {
	if h.Get("Authorization") == "" {
		return auth.Operator{}, auth.ErrMissing
	}
	return auth.Operator{Subject: "ann", Role: auth.RoleViewer}, nil
}

func handler(t *testing.T, change func(*Config)) http.Handler {
	t.Helper()
	cfg := Config{
		Listen: "127.0.0.1:8081", Operators: operators(t), Fleet: fleet{}, Log: slog.New(slog.DiscardHandler),
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if _, err := w.Write([]byte("phonebank_redis_up 1\n")); err != nil {
				t.Error(err)
			}
		}),
		About: func(id balancer.ReplicaID) About { return About{Build: "b10587", Resting: id == "phone-2"} },
	}
	if change != nil {
		change(&cfg)
	}
	h, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// call is a request from this machine, unless changed.
func call(t *testing.T, h http.Handler, path string, change func(*http.Request)) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
	r.RemoteAddr, r.Host = "127.0.0.1:50000", "127.0.0.1:8081"
	if change != nil {
		change(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func withKey(r *http.Request) { r.Header.Set("Authorization", "Bearer "+adminKey) }

func TestCredentialsOpenTheDoor(t *testing.T) {
	t.Parallel()
	h := handler(t, nil)
	tests := []struct {
		name   string
		path   string
		change func(*http.Request)
		want   int
	}{
		{"livez for anybody", "/livez", nil, 200},
		{"readyz for anybody", "/readyz", nil, 200},
		{"metrics without", "/metrics", nil, 401},
		{"metrics with", "/metrics", withKey, 200},
		{"metrics in a browser", "/metrics", func(r *http.Request) { r.SetBasicAuth("anybody", adminKey) }, 200},
		{"x-api-key", "/metrics", func(r *http.Request) { r.Header.Set("X-Api-Key", adminKey) }, 200},
		{"wrong key", "/metrics", func(r *http.Request) { r.Header.Set("Authorization", "Bearer wrong") }, 401},
		{"replicas without", "/admin/v1/replicas", nil, 401},
		{"replicas with", "/admin/v1/replicas", withKey, 200},
		{"profiles without", "/debug/pprof/", nil, 401},
		{"profiles with", "/debug/pprof/", withKey, 200},
		{"a named profile", "/debug/pprof/goroutine?debug=1", withKey, 200},
		{"the command line", "/debug/pprof/cmdline", withKey, 200},
		{"a route that is not", "/admin/v1/nothing", withKey, 404},
		{"a page that is not", "/swagger", nil, 404},
		{"a method that is not", "/admin/v1/replicas", func(r *http.Request) { withKey(r); r.Method = http.MethodPost }, 405},
		{"from another machine with a key", "/metrics", func(r *http.Request) { withKey(r); r.RemoteAddr = "192.0.2.1:1" }, 200},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := call(t, h, tt.path, tt.change)
			if w.Code != tt.want {
				t.Fatalf("got %d, want %d: %s", w.Code, tt.want, w.Body)
			}
			if w.Header().Get("Cache-Control") != "no-store" {
				t.Error("the answer may be cached")
			}
			if w.Code >= 400 {
				wantErrorBody(t, w)
			}
			if strings.Contains(w.Body.String(), adminKey) {
				t.Error("the answer quotes the key")
			}
		})
	}
}

func wantErrorBody(t *testing.T, w *httptest.ResponseRecorder) {
	t.Helper()
	var body struct {
		Error struct{ Message, Type, Code string }
	}
	if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
		t.Fatalf("the error is not JSON: %v: %s", err, w.Body)
	}
	if body.Error.Message == "" || body.Error.Type == "" || body.Error.Code == "" {
		t.Errorf("got %s, want message, type and code", w.Body)
	}
	if got := w.Header().Get("WWW-Authenticate"); (got != "") != (w.Code == http.StatusUnauthorized) {
		t.Errorf("status %d with WWW-Authenticate %q", w.Code, got)
	}
}

func TestViewersDoNotProfile(t *testing.T) {
	t.Parallel()
	h := handler(t, func(c *Config) { c.Operators = viewers{} })
	if w := call(t, h, "/admin/v1/replicas", withKey); w.Code != http.StatusOK {
		t.Errorf("replicas: got %d, want 200", w.Code)
	}
	w := call(t, h, "/debug/pprof/heap", withKey)
	if w.Code != http.StatusForbidden {
		t.Errorf("profile: got %d, want 403", w.Code)
	}
	wantErrorBody(t, w)
}

// Without credentials only this machine reads, and no web page makes it do so.
func TestTheLoopbackRule(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		listen string
		change func(*http.Request)
		want   int
	}{
		{"from here", "127.0.0.1:8081", nil, 200},
		{"by name", "127.0.0.1:8081", func(r *http.Request) { r.Host = "LocalHost:8081" }, 200},
		{"by IPv6", "[::1]:8081", func(r *http.Request) { r.Host, r.RemoteAddr = "[::1]:8081", "[::1]:1" }, 200},
		{"without a port", "localhost:8081", func(r *http.Request) { r.Host = "127.0.0.1" }, 200},
		{"through a tunnel to another port", "127.0.0.1:8081", func(r *http.Request) { r.Host = "localhost:9999" }, 200},
		{"by a name that was rebound", "127.0.0.1:8081", func(r *http.Request) { r.Host = "evil.example:8081" }, 401},
		{"by a name that looks like one of ours", "127.0.0.1:8081", func(r *http.Request) { r.Host = "localhost.evil.example" }, 401},
		{"without a name", "127.0.0.1:8081", func(r *http.Request) { r.Host = "" }, 401},
		{"from elsewhere", "127.0.0.1:8081", func(r *http.Request) { r.RemoteAddr = "192.0.2.1:1" }, 401},
		{"through a proxy on this machine", "127.0.0.1:8081", func(r *http.Request) { r.Header.Set("X-Forwarded-For", "192.0.2.1") }, 401},
		{"listening to the world", "0.0.0.0:8081", nil, 401},
		{"listening everywhere", ":8081", nil, 401},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := handler(t, func(c *Config) { c.Listen, c.Operators = tt.listen, &auth.Admin{} })
			w := call(t, h, "/admin/v1/whoami", tt.change)
			if w.Code != tt.want {
				t.Fatalf("got %d, want %d: %s", w.Code, tt.want, w.Body)
			}
			if tt.want == http.StatusOK && strings.TrimSpace(w.Body.String()) != `{"subject":"local","role":"viewer"}` {
				t.Errorf("got %s, want the local viewer", w.Body)
			}
			if w := call(t, h, "/debug/pprof/", tt.change); w.Code == http.StatusOK {
				t.Error("a profile without credentials")
			}
			if w := call(t, h, "/livez", tt.change); w.Code != http.StatusOK {
				t.Errorf("livez: got %d, want 200", w.Code)
			}
		})
	}
}

func TestReplicas(t *testing.T) {
	t.Parallel()
	w := call(t, handler(t, nil), "/admin/v1/replicas", withKey)
	var got map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"object": "list", "at": "2026-12-01T12:00:00Z",
		"data": []any{
			map[string]any{
				"id": "phone-1", "model": "qwen", "engine": "llama.cpp", "build": "b10587", "generation": 3.0,
				"state": "ready", "since": "2026-12-01T11:59:00Z", "slots": 2.0, "depth": 1.0, "context_tokens": 4096.0,
				"tokens_per_second": map[string]any{"prefill": 60.0, "decode": 9.0}, "ends_at": "2026-12-01T13:00:00Z",
			},
			map[string]any{
				"id": "phone-2", "model": "qwen", "engine": "mnn", "build": "b10587", "generation": 1.0,
				"state": "down", "reason": "offline: connection reset", "since": "2026-12-01T12:00:00Z",
				"leave_alone_until": "2026-12-01T12:00:05Z", "resting_here": true, "slots": 1.0, "depth": 0.0,
				"tokens_per_second": map[string]any{"prefill": 0.0, "decode": 0.0},
			},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("replicas (-want +got):\n%s", diff)
	}
}

func TestReadyz(t *testing.T) {
	t.Parallel()
	checks := []Check{{Name: "redis", OK: true}, {Name: "phones", Detail: "none of 3 is ready"}}
	h := handler(t, func(c *Config) { c.Ready = func(context.Context) []Check { return checks } })
	w := call(t, h, "/readyz", nil)
	want := `{"status":"unavailable","checks":[{"name":"redis","ok":true},{"name":"phones","ok":false,"detail":"none of 3 is ready"}]}`
	if w.Code != http.StatusServiceUnavailable || strings.TrimSpace(w.Body.String()) != want {
		t.Errorf("got %d %s, want 503 %s", w.Code, w.Body, want)
	}
}

func TestUnknownErrorsAreNotShown(t *testing.T) {
	t.Parallel()
	var logged bytes.Buffer
	s := &server{cfg: Config{Log: slog.New(slog.NewTextHandler(&logged, nil))}}
	w := httptest.NewRecorder()
	s.writeError(errors.New("disk is on fire"), echo.New().NewContext(httptest.NewRequestWithContext(t.Context(), "GET", "/", nil), w))
	if w.Code != http.StatusInternalServerError || strings.Contains(w.Body.String(), "fire") {
		t.Errorf("got %d %s, want 500 without the cause", w.Code, w.Body)
	}
	wantErrorBody(t, w)
	if !strings.Contains(logged.String(), "fire") {
		t.Error("the cause is not logged")
	}
}

func TestPartsThatAreLeftOut(t *testing.T) {
	t.Parallel()
	if _, err := New(Config{}); err == nil {
		t.Error("got no error for an empty config")
	}
	h := handler(t, func(c *Config) { c.Metrics, c.About = nil, nil })
	if w := call(t, h, "/metrics", withKey); w.Code != http.StatusNotFound {
		t.Errorf("metrics that are not: got %d, want 404", w.Code)
	}
	if w := call(t, h, "/admin/v1/replicas", withKey); w.Code != http.StatusOK {
		t.Errorf("replicas that say nothing of themselves: got %d, want 200", w.Code)
	}
}
