package e2e_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"phonebank/test/harness"
	"phonebank/test/redistest"
)

func TestMetricsAfterTraffic(t *testing.T) {
	t.Parallel()
	fleet := harness.StartFleet(t, 1, 20, steady(2))
	g := harness.StartGateway(t, fleet.Config(harness.Options{Extra: patient}))
	awaitReady(t, g, 1)
	if r := send(t.Context(), g.URL, call{class: "chat", prompt: "Measure me", maxTokens: 32, stream: true}); r.status != http.StatusOK {
		t.Fatal(r)
	}
	for i := range 3 { // two run, one waits
		background(t, g.URL, lasting(fmt.Sprint("Long ", i), 3000))
	}
	awaitDepth(t, g, 2)
	id := fleet.Phones[0].Config().ID
	replica := fmt.Sprintf(`{model=%q,replica=%q`, harness.Model, id)
	for _, want := range []string{
		"phonebank_replica_state" + replica + `,state="ready"} 1`,
		"phonebank_replica_depth" + replica + "} 2",
		"phonebank_replica_slots" + replica + "} 2",
		fmt.Sprintf(`phonebank_replica_tokens_per_second{model=%q,phase="prefill",replica=%q} `, harness.Model, id),
		fmt.Sprintf(`phonebank_replica_tokens_per_second{model=%q,phase="decode",replica=%q} `, harness.Model, id),
		fmt.Sprintf("phonebank_queue_length{model=%q} 1", harness.Model),
		fmt.Sprintf(`phonebank_queue_wait_seconds_bucket{class="chat",model=%q,le="600"}`, harness.Model),
		`phonebank_attempts_total{kind="done"} 1`,
		fmt.Sprintf(`phonebank_time_to_first_token_seconds_bucket{class="chat",model=%q,route="/v1/chat/completions",le="600"} 1`, harness.Model),
		fmt.Sprintf(`phonebank_request_duration_seconds_bucket{class="chat",model=%q,route="/v1/chat/completions",le="600"} 1`, harness.Model),
		`phonebank_redis_call_seconds_bucket{result="ok",script="admit",le="0.25"}`,
		"phonebank_redis_up 1",
		`phonebank_gateway_requests{phase="running"} 2`,
	} {
		harness.Eventually(t, 10*time.Second, func() (bool, string) {
			status, metrics := harness.Get(t, g.Admin+"/metrics", harness.AdminKey)
			return status == http.StatusOK && strings.Contains(metrics, "\n"+want), "no " + want
		})
	}
}

// Operators' routes are on their own listener only, and ask for their own key.
func TestPublicListenerHasNoOperatorsRoutes(t *testing.T) {
	t.Parallel()
	fleet := harness.StartFleet(t, 1, 20)
	g := harness.StartGateway(t, fleet.Config(harness.Options{}))
	for _, path := range []string{"/metrics", "/admin", "/admin/v1/replicas", "/debug/pprof/", "/debug/vars", "/", "/v1"} {
		for _, key := range []string{harness.Key, harness.AdminKey} {
			status, body := harness.Get(t, g.URL+path, key)
			var e struct {
				Error struct{ Message, Type string }
			}
			if err := json.Unmarshal([]byte(body), &e); err != nil || status != http.StatusNotFound || e.Error.Type != "invalid_request_error" || e.Error.Message == "" {
				t.Errorf("%s: %d %s, want 404 with an error body", path, status, body)
			}
		}
	}
	for _, path := range []string{"/metrics", "/admin/v1/replicas", "/debug/pprof/"} {
		if status, body := harness.Get(t, g.Admin+path, harness.Key); status != http.StatusUnauthorized {
			t.Errorf("%s with a caller's key: %d %s, want 401", path, status, body)
		}
	}
}

// Every request has exactly one line, and neither prompts, answers nor keys are found in logs, metrics or Redis.
func TestOneLineEachAndNoSecrets(t *testing.T) {
	t.Parallel()
	redis := redistest.Server(t)
	fleet := harness.StartFleet(t, 2, 20, steady(1))
	g := harness.StartGateway(t, fleet.Config(harness.Options{Redis: redis.URL(), Namespace: "secrets", RedisTimeout: "3s", Extra: patient + "log: {level: debug}\n"}))
	awaitReady(t, g, 2)

	const prompt, wrongKey = "xyzzy-plugh", "pb-stolen-key-000000000000001"
	ids := make(map[string]bool)
	note := func(r reply) reply {
		if id := r.header.Get("x-request-id"); id == "" || ids[id] {
			t.Errorf("%v: request id %q missing or seen before", r, id)
		} else {
			ids[id] = true
		}
		return r
	}
	good := note(send(t.Context(), g.URL, call{class: "chat", prompt: "Short " + prompt, maxTokens: 32, stream: true}))
	if good.status != http.StatusOK || !good.delivered() {
		t.Fatal(good)
	}
	for _, body := range []string{
		`{"model":"` + harness.Model + `","messages":[{"role":"user","content":"` + prompt, // cut off
		`{"model":"` + harness.Model + `","messages":"` + prompt + `"}`,
		`{"model":"` + harness.Model + `","max_tokens":"` + prompt + `","messages":[{"role":"user","content":"` + prompt + `"}]}`,
	} {
		if r := note(post(t, g.URL, harness.Key, body)); r.status != http.StatusBadRequest {
			t.Errorf("%s: %v, want 400", body, r)
		}
	}
	if r := note(post(t, g.URL, wrongKey, `{"model":"m","messages":[]}`)); r.status != http.StatusUnauthorized {
		t.Errorf("wrong key: %v, want 401", r)
	}
	// Two run and one waits while Redis is read.
	var waits []func() reply
	for i := range 3 {
		waits = append(waits, background(t, g.URL, lasting(fmt.Sprint("Long ", prompt, " ", i), 500)))
	}
	harness.Eventually(t, 10*time.Second, func() (bool, string) {
		_, metrics := harness.Get(t, g.Admin+"/metrics", harness.AdminKey)
		return strings.Contains(metrics, `phonebank_gateway_requests{phase="waiting"} 1`), "nothing waits"
	})
	shared := dump(t, redis)
	_, metrics := harness.Get(t, g.Admin+"/metrics", harness.AdminKey)
	_, table := harness.Get(t, g.Admin+"/admin/v1/replicas", harness.AdminKey)
	for _, wait := range waits {
		note(wait())
	}
	if err := g.Stop(); err != nil {
		t.Errorf("exit: %v", err)
	}
	lines := make(map[string]int)
	for text := range strings.Lines(g.Log()) {
		var l struct {
			Msg string
			ID  string `json:"request_id"`
		}
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			t.Errorf("log line is no JSON: %s", text)
		}
		if l.Msg == "request" {
			lines[l.ID]++
		}
	}
	for id := range ids {
		if lines[id] != 1 {
			t.Errorf("request %s has %d lines, want 1", id, lines[id])
		}
	}
	if len(lines) != len(ids) {
		t.Errorf("%d requests logged, want %d", len(lines), len(ids))
	}
	if !strings.Contains(shared, "{secrets}:q:") {
		t.Errorf("the dump of Redis does not hold the queue:\n%s", shared)
	}
	for where, text := range map[string]string{"log": g.Log(), "metrics": metrics, "redis": shared, "admin": table} {
		for _, secret := range []string{prompt, good.text, harness.Key, harness.AdminKey, harness.PhoneKey, wrongKey} {
			if strings.Contains(text, secret) {
				t.Errorf("the %s holds %q", where, secret)
			}
		}
	}
}

// post sends a body as it is.
func post(t *testing.T, base, key, body string) reply {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, base+chatPath, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return reply{status: resp.StatusCode, header: resp.Header, err: err}
}

// dump is every key and value of a Redis as text.
func dump(t *testing.T, i *redistest.Instance) string {
	t.Helper()
	o, err := goredis.ParseURL(i.URL())
	if err != nil {
		t.Fatal(err)
	}
	c := goredis.NewClient(o)
	defer c.Close()
	ctx := t.Context()
	keys, err := c.Keys(ctx, "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, key := range keys {
		kind, err := c.Type(ctx, key).Result()
		if err != nil {
			t.Fatal(err)
		}
		var value any
		switch kind {
		case "string":
			value, err = c.Get(ctx, key).Result()
		case "hash":
			value, err = c.HGetAll(ctx, key).Result()
		case "set":
			value, err = c.SMembers(ctx, key).Result()
		case "zset":
			value, err = c.ZRangeWithScores(ctx, key, 0, -1).Result()
		case "none": // gone meanwhile
		default:
			t.Errorf("key %s is a %s: teach the test to read it", key, kind)
		}
		if err != nil && err != goredis.Nil { //nolint:errorlint // as go-redis documents it
			t.Fatal(err)
		}
		fmt.Fprintln(&b, key, value)
	}
	return b.String()
}
