package arch_test

import (
	"go/ast"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Sizes of a file in lines. Above the first it is named, above the second it
// fails. Tests hold tables, so theirs are larger.
const (
	longFile, tooLongFile = 300, 500
	tooLongTest           = 800
)

func TestFileSizes(t *testing.T) {
	t.Parallel()
	for _, f := range sources(t) {
		switch {
		case f.test && f.lines > tooLongTest:
			t.Errorf("%s has %d lines, more than %d: it tests more than one thing", f.path, f.lines, tooLongTest)
		case !f.test && f.lines > tooLongFile:
			t.Errorf("%s has %d lines, more than %d: it does more than one thing", f.path, f.lines, tooLongFile)
		case !f.test && f.lines > longFile:
			t.Logf("%s has %d lines; look whether it does more than one thing", f.path, f.lines)
		}
	}
}

func TestPackagesAreDocumented(t *testing.T) {
	t.Parallel()
	documented := map[string]bool{}
	for _, f := range sources(t) {
		want := "Package " + f.ast.Name.Name + " "
		if f.ast.Name.Name == "main" {
			want = "Command "
		}
		documented[f.pkg] = documented[f.pkg] || strings.HasPrefix(f.ast.Doc.Text(), want)
	}
	for pkg, ok := range documented {
		if !ok {
			t.Errorf("package %s has no doc comment (%q, or %q for a main package)", pkg, "Package name ...", "Command name ...")
		}
	}
}

// Every script says what it takes, gives and costs; a Lua file has no types to
// tell it.
func TestScriptsHaveHeaders(t *testing.T) {
	t.Parallel()
	scripts, err := filepath.Glob(filepath.Join(root(), "gateway", "redisstore", "lua", "*.lua"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range scripts {
		raw, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		header := leadingComment(string(raw))
		for _, want := range []string{"KEYS", "ARGV", "Returns", "Cost"} {
			if !regexp.MustCompile(`\b` + want + `\b`).MatchString(header) {
				t.Errorf("%s: its leading comment lacks %s", filepath.Base(name), want)
			}
		}
	}
}

func leadingComment(source string) string {
	var header strings.Builder
	for line := range strings.Lines(source) {
		if !strings.HasPrefix(line, "--") {
			break
		}
		header.WriteString(line)
	}
	return header.String()
}

// A test that sleeps is slow or flaky, or both. In a synctest bubble sleeping
// is how time passes, so files that make bubbles may.
func TestTestsDoNotSleep(t *testing.T) {
	t.Parallel()
	for _, f := range sources(t) {
		if !f.test || slices.Contains(f.imports(), "testing/synctest") {
			continue
		}
		ast.Inspect(f.ast, func(node ast.Node) bool {
			if call, ok := node.(*ast.CallExpr); ok && selector(call) == "time.Sleep" {
				t.Errorf("%s: time.Sleep in a test: use testing/synctest, a channel, or poll up to a deadline", f.at(call))
			}
			return true
		})
	}
}

// Tests run beside each other and beside whatever else the machine does: they
// listen on port 0 or on a unix socket.
func TestTestsClaimNoPorts(t *testing.T) {
	t.Parallel()
	port := regexp.MustCompile(`:[1-9][0-9]*"$`)
	for _, f := range sources(t) {
		if !f.test {
			continue
		}
		ast.Inspect(f.ast, func(node ast.Node) bool {
			call, ok := node.(*ast.CallExpr)
			if !ok || !listens(call) {
				return true
			}
			for _, arg := range call.Args {
				if text, ok := arg.(*ast.BasicLit); ok && text.Kind == token.STRING && port.MatchString(text.Value) {
					t.Errorf("%s: a fixed port in a test: listen on port 0", f.at(text))
				}
			}
			return true
		})
	}
}

func listens(call *ast.CallExpr) bool {
	name := selector(call)
	name = name[strings.LastIndexByte(name, '.')+1:]
	return strings.HasPrefix(name, "Listen") || name == "Start" || name == "StartTLS"
}

// selector is "x.Name" of a call to it, or "" for other calls.
func selector(call *ast.CallExpr) string {
	s, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	x, ok := s.X.(*ast.Ident)
	if !ok {
		return "." + s.Sel.Name
	}
	return x.Name + "." + s.Sel.Name
}
