package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"

	"go.yaml.in/yaml/v3"
)

// maxConfigBytes has room for some ten thousand replicas.
const maxConfigBytes = 16 << 20

// Load reads, expands and validates a configuration file. env looks up an
// environment variable, as os.LookupEnv does. The error is a [*Faults] with
// everything that is wrong. It reads the files that the configuration names,
// and changes nothing.
func Load(path string, env func(string) (string, bool)) (*Config, error) {
	text, err := readConfig(path)
	if err != nil {
		return nil, &Faults{File: path, List: []Fault{{Text: err.Error()}}}
	}
	c, list := parseConfig(text, expander{dir: filepath.Dir(path), env: env})
	if len(list) > 0 {
		return nil, &Faults{File: path, List: list}
	}
	return c, nil
}

func readConfig(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		if pe, ok := errors.AsType[*os.PathError](err); ok {
			err = pe.Err // the path stands before it anyway
		}
		return nil, fmt.Errorf("cannot be read: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxConfigBytes+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("cannot be read: %w", err)
	case len(text) > maxConfigBytes:
		return nil, fmt.Errorf("is larger than %d MiB", maxConfigBytes>>20)
	}
	return text, nil
}

// parseConfig returns the configuration, or all faults of the text.
func parseConfig(text []byte, e expander) (*Config, []Fault) {
	c, faults := new(Config), newCollector()
	root, ok := parseYAML(text, faults)
	if !ok {
		return nil, faults.sorted()
	}
	d := &decoder{collector: faults, expander: e}
	d.decode(root, "", reflect.ValueOf(c).Elem())
	c.validate(faults)
	if len(faults.list) > 0 {
		return nil, faults.sorted()
	}
	c.resolve()
	return c, nil
}

// parseYAML returns the root of the one document in text.
func parseYAML(text []byte, faults *collector) (*yaml.Node, bool) {
	var document, second yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(text))
	if err := dec.Decode(&document); err != nil {
		if errors.Is(err, io.EOF) {
			faults.addAt(position{1, 1}, "", "is empty; it needs at least models, replicas and auth")
		} else {
			faults.addAt(syntaxFault(err))
		}
		return nil, false
	}
	switch err := dec.Decode(&second); {
	case err == nil:
		faults.addAt(position{second.Line, second.Column}, "", "holds a second document; keep one")
		return nil, false
	case !errors.Is(err, io.EOF):
		faults.addAt(syntaxFault(err))
		return nil, false
	}
	return document.Content[0], true
}

var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?(?s:(.*))$`)

// syntaxFault finds the line in the YAML library's text.
func syntaxFault(err error) (position, string, string) {
	p, text := position{1, 1}, err.Error()
	if m := yamlLine.FindStringSubmatch(text); m != nil {
		if line, err := strconv.Atoi(m[1]); err == nil {
			p.line = line
		}
		text = m[2]
	}
	return p, "", "is not YAML: " + text
}
