package main

import (
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var updateGolden = flag.Bool("update-config", false, "rewrite testdata/config/*.faults")

// fakeEnv looks variables up in a map.
func fakeEnv(vars map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		value, ok := vars[name]
		return value, ok
	}
}

// writeConfig puts text into a file of its own directory.
func writeConfig(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "phonebank.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const minimal = `
auth: {keys: [{id: shop, key: "${SHOP_KEY}"}]}
models: [{id: qwen}]
replicas: [{id: phone-01, url: https://phone.example, model: qwen}]
`

func TestMinimalFileGetsEveryDefault(t *testing.T) {
	t.Parallel()
	got, err := Load(writeConfig(t, minimal), fakeEnv(map[string]string{"SHOP_KEY": "sk-shop"}))
	if err != nil {
		t.Fatal(err)
	}
	want := &Config{
		Listen: "127.0.0.1:8080",
		Admin:  AdminConfig{Listen: "127.0.0.1:8081"},
		Redis:  RedisConfig{Namespace: "phonebank", Timeout: 250 * time.Millisecond},
		Auth:   AuthConfig{Keys: []KeyConfig{{ID: "shop", Key: "sk-shop", Class: "chat"}}},
		Models: []Model{{ID: "qwen", Upstream: "qwen", Context: 8192, MaxTokens: 1024}},
		Replicas: []Replica{{
			ID: "phone-01", URL: "https://phone.example", Model: "qwen", Engine: "llama.cpp", Slots: 1, Context: 8192,
			Prior: Prior{PrefillTPS: 60, DecodeTPS: 9},
		}},
		Limits: LimitsConfig{BodyBytes: 10 << 20},
		Queue: QueueConfig{Max: 10_000, PerKey: 2_000, Patience: PatienceConfig{
			Guard: 10 * time.Second, Chat: time.Minute, Review: 540 * time.Second,
		}},
		CommitAfter:  10 * time.Second,
		DrainTimeout: 30 * time.Second,
		TimeFactor:   1,
		Health:       HealthConfig{Interval: 5 * time.Second, Timeout: 4 * time.Second},
		Log:          LogConfig{Format: "json", Level: "info"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("config (-want +got):\n%s", diff)
	}
}

// One field changed must not make the default of another wrong.
func TestDefaultsFollowOtherFields(t *testing.T) {
	t.Parallel()
	text := strings.Replace(minimal, "{id: qwen}", "{id: qwen, context: 512}", 1) + `
queue: {max: 10}
health: {interval: 1s}
`
	c, err := Load(writeConfig(t, text), fakeEnv(map[string]string{"SHOP_KEY": "sk-shop"}))
	if err != nil {
		t.Fatal(err)
	}
	got := []int{c.Models[0].MaxTokens, c.Replicas[0].Context, c.Queue.PerKey, int(c.Health.Timeout.Milliseconds())}
	if diff := cmp.Diff([]int{256, 512, 10, 800}, got); diff != "" {
		t.Errorf("max_tokens, replica context, per_key, timeout in ms (-want +got):\n%s", diff)
	}
}

func TestFaultListing(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/config/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("got %v, %v; want files", files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			_, err := Load(file, fakeEnv(map[string]string{"SHOP_KEY": "sk-hunter2"}))
			if err == nil {
				t.Fatal("got no faults")
			}
			got := err.Error() + "\n"
			if strings.Contains(got, "hunter2") {
				t.Errorf("got a secret in\n%s", got)
			}
			golden := strings.TrimSuffix(file, ".yaml") + ".faults"
			if *updateGolden {
				if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("faults (-want +got):\n%s", diff)
			}
		})
	}
}

func TestLoadUnreadable(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "none.yaml")
	_, err := Load(path, fakeEnv(nil))
	faults, ok := errors.AsType[*Faults](err)
	if !ok || len(faults.List) != 1 {
		t.Fatalf("got %v, want one fault", err)
	}
	if want := path + ": cannot be read: no such file or directory"; err.Error() != want {
		t.Errorf("got %q, want %q", err, want)
	}
}

func TestSecretShowsNothing(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	c := Config{
		Redis:    RedisConfig{URL: "redis://:hunter2@localhost"},
		Auth:     AuthConfig{Keys: []KeyConfig{{ID: "shop", Key: "hunter2"}}},
		Replicas: []Replica{{Key: "hunter2", Headers: map[string]Secret{"X-A": "hunter2"}}},
	}
	slog.New(slog.NewJSONHandler(&log, nil)).Info("config", "config", c, "key", c.Replicas[0].Key)
	for _, text := range []string{fmt.Sprintf("%v %+v %#v %s", c, c, c, c.Auth.Keys[0].Key), log.String()} {
		if strings.Contains(text, "hunter2") || !strings.Contains(text, redacted) {
			t.Errorf("got a secret in %s", text)
		}
	}
}

func TestCallersAndOperators(t *testing.T) {
	t.Parallel()
	text := strings.Replace(minimal, `"${SHOP_KEY}"`, `"${SHOP_KEY}", class: batch, limits: {requests_per_minute: 1, tokens_per_minute: 2, concurrent: 3}`, 1)
	c, err := Load(writeConfig(t, text), fakeEnv(map[string]string{"SHOP_KEY": "sk-shop"}))
	if err != nil {
		t.Fatal(err)
	}
	callers := c.Auth.callers()
	if err := callers.Validate(); err != nil {
		t.Errorf("got %v from package auth for a valid file", err)
	}
	got := callers.Keys[0]
	if got.KeyID != "shop" || got.Secret != "sk-shop" || got.Class != "batch" || got.RequestsPerMinute != 1 || got.TokensPerMinute != 2 || got.Concurrent != 3 {
		t.Errorf("got %+v", got)
	}
	operators, err := c.Admin.operators()
	if err != nil || operators.Key != "" || operators.JWT != nil {
		t.Errorf("got %+v, %v; want nothing configured", operators, err)
	}
}
