package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"go.yaml.in/yaml/v3"
)

const examplePath = "../../deploy/phonebank.example.yaml"

// copyExample puts the example beside the files it names.
func copyExample(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	text, err := os.ReadFile(examplePath)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{
		"phonebank.yaml": text,
		"desk.key":       []byte("sk-desk\n"),
		"ops.pem":        pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}),
		"phone.crt":      pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate}),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "phonebank.yaml")
}

func exampleEnv() map[string]string {
	return map[string]string{"ADMIN_KEY": "admin", "SHOP_KEY": "sk-shop", "PHONE_01_KEY": "phone"}
}

func TestExampleLoads(t *testing.T) {
	t.Parallel()
	path := copyExample(t)
	c, err := Load(path, fakeEnv(exampleEnv()))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := c.Auth.Keys[1].Key, Secret("sk-desk"); got != want {
		t.Error("the key from a file is not what the file holds")
	}
	if got, want := string(c.Replicas[0].TLS.CA), filepath.Join(filepath.Dir(path), "phone.crt"); got != want {
		t.Errorf("got ca %q, want it beside the file, %q", got, want)
	}
	if got := c.Replicas[0].Labels["ram_gb"]; got != "16" {
		t.Errorf("got label ram_gb %q, want 16", got)
	}
	operators, err := c.Admin.operators()
	if err != nil || operators.JWT == nil || operators.JWT.Audience != "phonebank" {
		t.Errorf("got %+v, %v; want the key and the audience", operators.JWT, err)
	}
}

// The values the example shows as defaults are the defaults.
func TestExampleTellsTheDefaults(t *testing.T) {
	t.Parallel()
	example, err := Load(copyExample(t), fakeEnv(exampleEnv()))
	if err != nil {
		t.Fatal(err)
	}
	defaults, err := Load(writeConfig(t, minimal), fakeEnv(exampleEnv()))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"Listen", "Limits", "Queue", "CommitAfter", "DrainTimeout", "TimeFactor", "Health", "Log"} {
		got := reflect.ValueOf(*example).FieldByName(name).Interface()
		want := reflect.ValueOf(*defaults).FieldByName(name).Interface()
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: the example has %+v, the default is %+v", name, got, want)
		}
	}
}

// Every key of the configuration is in the example, where it belongs or, when
// it would contradict another, in a comment.
func TestExampleMentionsEveryKey(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(examplePath)
	if err != nil {
		t.Fatal(err)
	}
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		t.Fatal(err)
	}
	present := map[string]bool{}
	collectKeys(document.Content[0], "", present)
	for _, path := range configKeys(reflect.TypeFor[Config](), "") {
		name := path[strings.LastIndex(path, ".")+1:]
		commented := regexp.MustCompile(`(?m)^\s*# ` + name + `: `).Match(text)
		if !present[path] && !commented {
			t.Errorf("%s does not mention %s", examplePath, path)
		}
	}
}

// collectKeys gathers the paths of all fields in a tree, lists left out.
func collectKeys(n *yaml.Node, path string, into map[string]bool) {
	switch n.Kind {
	case yaml.SequenceNode:
		for _, element := range n.Content {
			collectKeys(element, path, into)
		}
	case yaml.MappingNode:
		for i := 0; i < len(n.Content); i += 2 {
			name := join(path, n.Content[i].Value)
			into[name] = true
			collectKeys(n.Content[i+1], name, into)
		}
	}
}

// configKeys lists the paths of all fields of a type, lists left out.
func configKeys(t reflect.Type, path string) []string {
	for t.Kind() == reflect.Pointer || (t.Kind() == reflect.Slice && t != fieldsType) {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || t == timeType {
		return nil
	}
	var keys []string
	for field := range t.Fields() {
		name := join(path, field.Tag.Get("yaml"))
		keys = append(append(keys, name), configKeys(field.Type, name)...)
	}
	return keys
}

func TestCheck(t *testing.T) {
	t.Setenv("ADMIN_KEY", "admin")
	t.Setenv("SHOP_KEY", "sk-shop")
	t.Setenv("PHONE_01_KEY", "phone")
	tests := []struct {
		name, path          string
		wantOut, wantFaults string
		wantErr             string
	}{
		{name: "example", path: copyExample(t), wantOut: "ok: 1 model, 1 replica\n"},
		{name: "faults", path: writeConfig(t, "auth: {open: true}\nmodels: []\nlog: {level: loud}\n"), wantFaults: "3:14: log.level: is none of", wantErr: "2 faults"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var out, faults bytes.Buffer
			var cli struct {
				Check checkCmd `cmd:""`
			}
			parser, err := kong.New(&cli, kong.Writers(&out, &faults))
			if err != nil {
				t.Fatal(err)
			}
			ctx, err := parser.Parse([]string{"check", "-c", tt.path})
			if err != nil {
				t.Fatal(err)
			}
			err = ctx.Run()
			if (tt.wantErr == "") != (err == nil) || (err != nil && !strings.Contains(err.Error(), tt.wantErr)) {
				t.Errorf("got error %v, want %q", err, tt.wantErr)
			}
			if out.String() != tt.wantOut {
				t.Errorf("got output %q, want %q", out.String(), tt.wantOut)
			}
			if !strings.Contains(faults.String(), tt.wantFaults) || (tt.wantFaults == "" && faults.Len() > 0) {
				t.Errorf("got faults %q, want %q", faults.String(), tt.wantFaults)
			}
		})
	}
}
