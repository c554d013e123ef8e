package deploy_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// service is the part of a compose service whose meaning is promised.
type service struct {
	Image       string            `yaml:"image"`
	User        string            `yaml:"user"`
	Command     []string          `yaml:"command"`
	Ports       []string          `yaml:"ports"`
	Volumes     []string          `yaml:"volumes"`
	Environment map[string]string `yaml:"environment"`
	ReadOnly    bool              `yaml:"read_only"`
	CapDrop     []string          `yaml:"cap_drop"`
	Healthcheck *struct {
		Test []string `yaml:"test"`
	} `yaml:"healthcheck"`
	Build *struct {
		Context    string `yaml:"context"`
		Dockerfile string `yaml:"dockerfile"`
	} `yaml:"build"`
}

// says reports whether the command has the words, side by side.
func (s service) says(words ...string) bool {
	for i := range s.Command {
		if i+len(words) <= len(s.Command) && slices.Equal(s.Command[i:i+len(words)], words) {
			return true
		}
	}
	return false
}

func compose(t *testing.T) map[string]service {
	t.Helper()
	var file struct {
		Services map[string]service `yaml:"services"`
		Volumes  map[string]any     `yaml:"volumes"`
	}
	if err := yaml.Unmarshal(read(t, "../docker-compose.yml"), &file); err != nil {
		t.Fatalf("docker-compose.yml: %v", err)
	}
	return file.Services
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	raw, err := os.ReadFile(filepath.FromSlash(name))
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func TestComposeIsLocked(t *testing.T) {
	t.Parallel()
	for name, s := range compose(t) {
		if uid, _, _ := strings.Cut(s.User, ":"); uid == "" || uid == "0" || uid == "root" {
			t.Errorf("%s runs as %q, want a user other than root", name, s.User)
		}
		if !s.ReadOnly || !slices.Contains(s.CapDrop, "ALL") {
			t.Errorf("%s: read_only %t, cap_drop %v; want a read-only system without capabilities", name, s.ReadOnly, s.CapDrop)
		}
		for _, port := range s.Ports {
			if !strings.HasPrefix(port, "127.0.0.1:") {
				t.Errorf("%s publishes %s, want only loopback", name, port)
			}
		}
		if strings.HasSuffix(s.Image, ":latest") {
			t.Errorf("%s: image %s is not pinned", name, s.Image)
		}
		for variable, value := range s.Environment {
			if strings.HasSuffix(variable, "KEY") && !strings.HasPrefix(value, "${"+variable+":-") {
				t.Errorf("%s: %s is written down; want it from the environment", name, variable)
			}
		}
	}
}

func TestComposeHasTheWholeWorld(t *testing.T) {
	t.Parallel()
	services := compose(t)
	var gateways, phones, callers []string
	for name, s := range services {
		switch {
		case s.says("serve"):
			gateways = append(gateways, name)
		case s.says("fakephone"):
			phones = append(phones, name)
		}
		for _, port := range s.Ports {
			if strings.HasPrefix(port, "127.0.0.1:8080:") {
				callers = append(callers, name)
			}
		}
	}
	if len(gateways) != 2 || len(phones) != 3 {
		t.Errorf("gateways %v, phones %v; want two and three", gateways, phones)
	}
	if !slices.Equal(callers, []string{"proxy"}) {
		t.Errorf("callers reach %v, want only the proxy", callers)
	}
	if proxy := services["proxy"]; proxy.Healthcheck == nil {
		t.Error("the proxy has no health check")
	}
	redis := services["redis"]
	if !redis.says("--appendonly", "yes") || !redis.says("--maxmemory-policy", "noeviction") {
		t.Errorf("redis runs %v, want an append-only file and noeviction", redis.Command)
	}
	if redis.Healthcheck == nil || !slices.Contains(redis.Volumes, "redis:/data") {
		t.Error("redis has no health check, or no volume for its file")
	}
	nginx := string(read(t, "nginx/nginx.conf"))
	for _, name := range gateways {
		if !strings.Contains(nginx, "server "+name+":8080") {
			t.Errorf("nginx.conf does not know %s", name)
		}
	}
}

// What compose mounts and builds exists.
func TestComposeFilesExist(t *testing.T) {
	t.Parallel()
	for name, s := range compose(t) {
		files := []string{}
		for _, volume := range s.Volumes {
			if from, _, _ := strings.Cut(volume, ":"); strings.HasPrefix(from, "./") {
				files = append(files, from)
			}
		}
		if s.Build != nil {
			files = append(files, filepath.Join(s.Build.Context, s.Build.Dockerfile))
		}
		for _, file := range files {
			if _, err := os.Stat(filepath.Join("..", file)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

func TestImage(t *testing.T) {
	t.Parallel()
	dockerfile := string(read(t, "docker/Dockerfile"))
	final := dockerfile[strings.LastIndex(dockerfile, "\nFROM "):]
	for _, want := range []string{"FROM scratch", "USER 65532:65532", `ENTRYPOINT ["/phonebank"]`} {
		if !strings.Contains(final, want) {
			t.Errorf("the final image lacks %q", want)
		}
	}
	if !strings.Contains(dockerfile, "CGO_ENABLED=0") {
		t.Error("the binary is not static: nothing to load it with in an empty image")
	}
	built := regexp.MustCompile(`FROM golang:([0-9.]+)`).FindStringSubmatch(dockerfile)
	asked := regexp.MustCompile(`(?m)^go ([0-9.]+)$`).FindStringSubmatch(string(read(t, "../go.mod")))
	if built == nil || asked == nil || built[1] != asked[1] {
		t.Errorf("the image builds with Go %v, go.mod asks for %v", built, asked)
	}
}
