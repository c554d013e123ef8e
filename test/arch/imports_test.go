package arch_test

import (
	"slices"
	"strings"
	"testing"
)

func TestImports(t *testing.T) {
	t.Parallel()
	table := importTable()
	unknown := map[string]bool{}
	for _, f := range sources(t) {
		rule, known := table[f.pkg]
		if !known {
			unknown[f.pkg] = true
			continue
		}
		for _, imported := range f.imports() {
			if fault := judge(f, rule, imported); fault != "" {
				t.Errorf("%s imports %s: %s", f.path, imported, fault)
			}
		}
	}
	for pkg := range unknown {
		t.Errorf("package %s is not in the import table: add it, with what it may import", pkg)
	}
}

// judge says what is wrong with one import, or nothing.
func judge(f file, r rule, imported string) string {
	for library, owners := range libraryTable() {
		if strings.HasPrefix(imported, library+"/") && !slices.Contains(owners, f.pkg) && !inTest(f.pkg) {
			return "only " + strings.Join(owners, ", ") + " may"
		}
	}
	sibling, ours := strings.CutPrefix(imported, module+"/")
	switch {
	case !ours, r.anything, slices.Contains(r.imports, sibling):
		return ""
	case f.test && (sibling == f.pkg || inTest(sibling) || slices.Contains(r.tests, sibling)):
		return "" // a test looks at its own package from outside, with what the test rooms offer
	case inTest(sibling):
		return "what runs in production never imports a test room"
	case len(r.imports) == 0:
		return f.pkg + " is a leaf"
	default:
		return f.pkg + " may import only " + strings.Join(r.imports, ", ")
	}
}

func inTest(pkg string) bool { return strings.HasPrefix(pkg, "test/") }

func TestJudge(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name     string
		pkg      string
		test     bool
		imported string
		allowed  bool
	}{
		{"standard library", "balancer", false, "time", true},
		{"a leaf imports a sibling", "balancer", false, "phonebank/health", false},
		{"a sub-package imports the edge", "gateway/relay", false, "phonebank/gateway", false},
		{"relay imports the balancer", "gateway/relay", false, "phonebank/balancer", true},
		{"the edge imports the adapter", "gateway", false, "phonebank/gateway/redisstore", false},
		{"wiring imports the adapter", "cmd/phonebank", false, "phonebank/gateway/redisstore", true},
		{"production imports a test room", "health", false, "phonebank/test/fakephone", false},
		{"a test imports a test room", "health", true, "phonebank/test/fakephone", true},
		{"a test imports its own package", "balancer", true, "phonebank/balancer", true},
		{"a test imports a room it is proved with", "balancer", true, "phonebank/gateway/redisstore", true},
		{"production does not", "balancer", false, "phonebank/gateway/redisstore", false},
		{"a test imports another room", "balancer", true, "phonebank/gateway/relay", false},
		{"the adapter imports go-redis", "gateway/redisstore", false, "github.com/redis/go-redis/v9", true},
		{"wiring imports go-redis", "cmd/phonebank", false, "github.com/redis/go-redis/v9", false},
		{"a test room imports go-redis", "test/redistest", false, "github.com/redis/go-redis/v9", true},
		{"the relay imports echo", "gateway/relay", false, "github.com/labstack/echo/v4", false},
		{"the edge imports echo", "gateway", false, "github.com/labstack/echo/v4/middleware", true},
		{"the edge imports jwt", "gateway", false, "github.com/golang-jwt/jwt/v5", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			fault := judge(file{pkg: tt.pkg, test: tt.test}, importTable()[tt.pkg], tt.imported)
			if (fault == "") != tt.allowed {
				t.Errorf("judge(%s, %s) = %q, want allowed %t", tt.pkg, tt.imported, fault, tt.allowed)
			}
		})
	}
}
