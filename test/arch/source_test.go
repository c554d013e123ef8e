package arch_test

import (
	"bytes"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

const module = "phonebank"

// file is one Go file of the module.
type file struct {
	path  string // below the root, with slashes
	pkg   string // folder below the root, with slashes
	test  bool
	lines int
	set   *token.FileSet
	ast   *ast.File
}

// imports are the import paths of f.
func (f file) imports() []string {
	var paths []string
	for _, spec := range f.ast.Imports {
		paths = append(paths, strings.Trim(spec.Path.Value, `"`))
	}
	return paths
}

// at is the place of node, for a message.
func (f file) at(node ast.Node) string {
	return f.set.Position(node.Pos()).String()
}

// root is the folder with go.mod.
func root() string { return filepath.Join("..", "..") }

// sources parses every Go file of the module, leaving out nested modules.
func sources(t *testing.T) []file {
	t.Helper()
	var files []file
	err := filepath.WalkDir(root(), func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root(), name)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if entry.IsDir() {
			return visit(name, rel)
		}
		if path.Ext(rel) != ".go" {
			return nil
		}
		raw, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		set := token.NewFileSet()
		parsed, err := parser.ParseFile(set, rel, raw, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		files = append(files, file{
			path: rel, pkg: path.Dir(rel), test: strings.HasSuffix(rel, "_test.go"),
			lines: bytes.Count(raw, []byte("\n")), set: set, ast: parsed,
		})
		return nil
	})
	if err != nil {
		t.Fatalf("read the sources: %v", err)
	}
	if len(files) == 0 {
		t.Fatal("no sources found")
	}
	return files
}

// visit says whether a folder belongs to the module.
func visit(name, rel string) error {
	if rel == "." {
		return nil
	}
	base := path.Base(rel)
	if strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") || base == "testdata" || base == "node_modules" {
		return fs.SkipDir
	}
	_, err := os.Stat(filepath.Join(name, "go.mod"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return fs.SkipDir
}
