package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestExpand(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{"key": "from-file\n", "literal": "${A}$$", "binary": "\xff\xfe"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	e := expander{dir: dir, env: fakeEnv(map[string]string{
		"A": "alpha", "_B2": "beta", "EMPTY": "", "YAML": "x: [1, 2] # ${A}", "BINARY": "\xff",
	})}
	tests := []struct {
		name, text, want string
		wantErr          string
	}{
		{name: "nothing", text: "plain", want: "plain"},
		{name: "whole", text: "${A}", want: "alpha"},
		{name: "several", text: "<${A}-${_B2}>", want: "<alpha-beta>"},
		{name: "set but empty", text: "${EMPTY}", want: ""},
		{name: "what it holds is not read again", text: "${YAML}", want: "x: [1, 2] # ${A}"},
		{name: "escaped", text: "$${A} costs $$5", want: "${A} costs $5"},
		{name: "lone dollar", text: "a$b$", want: "a$b$"},
		{name: "file", text: "${file:key}", want: "from-file"},
		{name: "absolute file", text: "${file:" + filepath.Join(dir, "key") + "}", want: "from-file"},
		{name: "what a file holds is not read again", text: "${file:literal}", want: "${A}$$"},
		{name: "not set", text: "${NOPE}", wantErr: "variable NOPE, which is not set"},
		{name: "not UTF-8", text: "${BINARY}", wantErr: "variable BINARY, which is not UTF-8"},
		{name: "no such file", text: "${file:nope}", wantErr: "no such file"},
		{name: "file is not UTF-8", text: "${file:binary}", wantErr: "not UTF-8"},
		{name: "open", text: "${A", wantErr: "without }"},
		{name: "empty name", text: "${}", wantErr: "neither a variable"},
		{name: "shell syntax", text: "${A:-b}", wantErr: "neither a variable"},
		{name: "name with a digit first", text: "${2A}", wantErr: "neither a variable"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, _, err := e.expand(tt.text)
			if tt.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tt.wantErr) {
					t.Fatalf("got %q, %v; want an error with %q", got, err, tt.wantErr)
				}
				return
			}
			if err != nil || got != tt.want {
				t.Errorf("got %q, %v; want %q", got, err, tt.want)
			}
		})
	}
}

// parse reads a minimal file with more text after it.
func parse(t *testing.T, more string) (*Config, []Fault) {
	t.Helper()
	e := expander{dir: t.TempDir(), env: fakeEnv(map[string]string{"SHOP_KEY": "sk-shop", "SLOTS": "4", "YES": "true"})}
	return parseConfig([]byte(minimal+more), e)
}

func TestDecode(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, more string
		want       func(*Config) any
		wantValue  any
	}{
		{"number from the environment", `queue: {max: "${SLOTS}", per_key: 1}`, func(c *Config) any { return c.Queue.Max }, 4},
		{"truth from the environment", "redis:\n  embedded: ${YES}\n", func(c *Config) any { return c.Redis.Embedded }, true},
		{"empty section keeps its defaults", "redis:\nlog:\n", func(c *Config) any { return c.Log.Format }, "json"},
		{"absent pointer", "admin: {jwt: }", func(c *Config) any { return c.Admin.JWT == nil }, true},
		{"size in bytes", "limits: {body_bytes: 2048}", func(c *Config) any { return c.Limits.BodyBytes }, Size(2048)},
		{"size in MB", "limits: {body_bytes: 5 MB}", func(c *Config) any { return c.Limits.BodyBytes }, Size(5_000_000)},
		{"zero duration", "commit_after: 0", func(c *Config) any { return int(c.CommitAfter) }, 0},
		{"anchor and alias", "health: {interval: &d 3s, timeout: *d}", func(c *Config) any { return c.Health.Timeout.String() }, "3s"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c, faults := parse(t, tt.more)
			if len(faults) > 0 {
				t.Fatalf("got faults %v", faults)
			}
			if diff := cmp.Diff(tt.wantValue, tt.want(c)); diff != "" {
				t.Errorf("value (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDecodeFaults(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 100)
	tests := []struct{ name, text, want string }{
		{"empty", "", "1:1: is empty"},
		{"comment alone", "# nothing\n", "1:1: is empty"},
		{"a list", "- a\n", "1:1: is a list; want a mapping of fields"},
		{"syntax", "auth: {keys: [\nmodels: ]", "is not YAML"},
		{"tab", "auth:\n\tkeys: []", "2:1: is not YAML"},
		{"unknown anchor", "auth: *nobody", "is not YAML"},
		{"second document", minimal + "---\na: 1\n", "5:1: holds a second document"},
		{"name that is a list", minimal + "? [a]\n: b\n", "a field whose name is not a plain word"},
		{"long name is clipped", minimal + long + ": 1\n", strings.Repeat("x", 40) + "...: unknown field"},
		{"tag", minimal + "listen: !secret a\n", "5:9: listen: has a tag"},
		{"alias to its parent", minimal + "redis: &r {url: *r}\n", "redis.url: is a mapping of fields; want a single value"},
		{"size beyond all bounds", minimal + "limits: {body_bytes: 9999999999GiB}\n", "limits.body_bytes: is not a size"},
		{"quoted number", minimal + `queue: {max: "5"}`, "queue.max: is not a whole number"},
		{"number in octal", minimal + "queue: {max: 0o17}", "queue.max: is not a whole number"},
		{"not a number", minimal + "replicas2: []", "did you mean replicas?"},
		{"defaults nested without end", strings.Replace(minimal, "{id: qwen}", "{id: qwen, defaults: &d {a: *d}}", 1), "nested too deeply"},
		{"nobody may call", strings.Replace(minimal, `keys: [{id: shop, key: "${SHOP_KEY}"}]`, "open: false", 1), "2:7: auth.keys: nobody could call"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, list := parseConfig([]byte(tt.text), expander{env: fakeEnv(map[string]string{"SHOP_KEY": "sk-shop"})})
			got := (&Faults{File: "f", List: list}).Error()
			if !strings.Contains(got, tt.want) {
				t.Errorf("got %q, want it to contain %q", got, tt.want)
			}
		})
	}
}

func TestDefaultsKeepOrderAndSpelling(t *testing.T) {
	t.Parallel()
	text := strings.Replace(minimal, "[{id: qwen}]", `
  - id: qwen
    defaults:
      zeta: 1.50
      alpha: 12345678901234567890123
      nested: {b: [true, null, ~, "5", 2026-01-01], a: {}}
      text: "a<b & \"c\" ${SLOTS}"
      small: 1e-3
      plain: yes`, 1)
	c, faults := parseConfig([]byte(text), expander{env: fakeEnv(map[string]string{"SHOP_KEY": "k", "SLOTS": "4"})})
	if len(faults) > 0 {
		t.Fatalf("got faults %v", faults)
	}
	var got []string
	for _, f := range c.Models[0].Defaults {
		got = append(got, f.Name+"="+string(f.Raw))
	}
	want := []string{
		"zeta=1.50",
		"alpha=12345678901234567890123",
		`nested={"b":[true,null,null,"5","2026-01-01"],"a":{}}`,
		`text="a<b & \"c\" 4"`,
		"small=1e-3",
		`plain="yes"`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("fields (-want +got):\n%s", diff)
	}
}

func TestReplicaURLs(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, fields string
		want         string // "" for no fault
	}{
		{"loopback in the clear", "url: http://127.0.0.1:9080", ""},
		{"localhost in the clear", "url: http://localhost:9080", ""},
		{"IPv6 loopback in the clear", `url: "http://[::1]:9080"`, ""},
		{"insecure on purpose", "url: http://10.0.0.7, tls: {insecure: true}", ""},
		{"prefix", "url: https://relay.example/phone-7", ""},
		{"in the clear", "url: http://10.0.0.7", "in the clear"},
		{"loopback as a name's prefix", "url: http://127.0.0.1.example", "in the clear"},
		{"no scheme", "url: phone.example", "is not the URL"},
		{"other scheme", "url: ftp://phone.example", "is not the URL"},
		{"bad port", "url: https://phone.example:http", "is not the URL"},
		{"query", `url: "https://phone.example/?a=b"`, "a query or a fragment"},
		{"base URL of an SDK", "url: https://other.example/v1", ""},
		{"same phone again, as an SDK's base URL", "url: https://phone.example/v1", "is the same phone and model as replicas[0]"},
		{"pin without TLS", "url: http://127.0.0.1:1, tls: {pin: x}", "has no effect"},
		{"pin", "url: https://a.example, tls: {pin: sha256/AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=}", ""},
		{"mnn with slots", "url: https://a.example, engine: mnn, slots: 2", "one request at a time"},
		{"same phone again", "url: https://phone.example/", "is the same phone and model as replicas[0]"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			text := strings.Replace(minimal, "model: qwen}]", "model: qwen}, {id: phone-02, model: qwen, "+tt.fields+"}]", 1)
			_, list := parseConfig([]byte(text), expander{env: fakeEnv(map[string]string{"SHOP_KEY": "k"})})
			got := (&Faults{List: list}).Error()
			if (tt.want == "") != (len(list) == 0) || !strings.Contains(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func FuzzParseConfig(f *testing.F) {
	f.Add(minimal)
	f.Add("a: &a [*a, *a]\nmodels: [{id: x, defaults: *a}]")
	f.Add("replicas: [{labels: {a: b}, headers: {c: d}, ends_at: 2026-12-24T06:00:00Z}]")
	f.Add("? {a: b}\n: c\n<<: *x")
	for _, name := range []string{"testdata/config/everything-wrong.yaml", "../../deploy/phonebank.example.yaml"} {
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	f.Fuzz(func(t *testing.T, text string) {
		// Relative names lead nowhere; device files would be read without end.
		e := expander{dir: "/nonexistent", env: func(name string) (string, bool) { return "value-of-" + name, len(name) < 9 }}
		if strings.Contains(text, "/dev") || strings.Contains(text, "/proc") {
			t.Skip("may name a file that never ends")
		}
		c, list := parseConfig([]byte(text), e)
		if (c == nil) != (len(list) > 0) {
			t.Fatalf("got config %v with %d faults", c != nil, len(list))
		}
		for _, fault := range list {
			if fault.Line < 1 || fault.Column < 1 || fault.Text == "" {
				t.Errorf("got fault %+v, want a place and a text", fault)
			}
			if strings.Contains(fault.Text, "value-of-") {
				t.Errorf("got what the environment holds in %q", fault.Text)
			}
		}
	})
}
