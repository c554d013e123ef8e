package main

import (
	"encoding"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// scalar fills a single value. A fault never quotes the value: it may be a
// secret in the wrong place.
func (d *decoder) scalar(n *yaml.Node, path string, v reflect.Value) {
	if !d.want(n, yaml.ScalarNode, path) {
		return
	}
	switch n.Tag {
	case "!!str", "!!int", "!!float", "!!bool", "!!timestamp":
	case "!!null":
		d.fault(n, path, "has no value; give it one or remove the field")
		return
	default:
		d.fault(n, path, "has a tag that means nothing here; remove it")
		return
	}
	text, expanded, err := d.expander.expand(n.Value)
	if err != nil {
		d.fault(n, path, err.Error())
		return
	}
	// "5" in quotes is text, and a number where text is wanted may be meant as
	// it stands; what came from the environment has no type of its own.
	quoted := n.Tag == "!!str" && n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) != 0 && !expanded
	if err := d.set(v, text, quoted); err != nil {
		d.fault(n, path, err.Error())
	}
}

// set parses text into v. Errors say what is wrong with "it".
func (d *decoder) set(v reflect.Value, text string, quoted bool) error {
	switch v.Type() {
	case durationType:
		return setDuration(v, text)
	case timeType:
		t, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return errors.New("is not a time; write it as 2026-12-24T06:00:00Z")
		}
		v.Set(reflect.ValueOf(t))
		return nil
	case pathType:
		v.SetString(d.expander.abs(text))
		return nil
	}
	if u, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		return u.UnmarshalText([]byte(text))
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
		return nil
	case reflect.Bool:
		if (text != "true" && text != "false") || quoted {
			return errors.New("is not a truth value; write true or false, without quotes")
		}
		v.SetBool(text == "true")
		return nil
	case reflect.Int:
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || quoted {
			return errors.New("is not a whole number; write it as 600, without quotes")
		}
		v.SetInt(n)
		return nil
	case reflect.Float64:
		f, err := strconv.ParseFloat(text, 64)
		if err != nil || quoted || math.IsNaN(f) || math.IsInf(f, 0) {
			return errors.New("is not a number; write it as 9.5, without quotes")
		}
		v.SetFloat(f)
		return nil
	default:
		return fmt.Errorf("has a type this program cannot read: %s", v.Type())
	}
}

func setDuration(v reflect.Value, text string) error {
	t, err := time.ParseDuration(text)
	if err != nil || t < 0 {
		return errors.New("is not a duration; write it as 10s, 1m30s or 0")
	}
	v.SetInt(int64(t))
	return nil
}

// expander replaces ${NAME} by an environment variable and ${file:NAME} by the
// content of a file, in values and after parsing: what they hold can be
// anything and is never read as YAML. $$ is a dollar sign.
type expander struct {
	dir string // what relative file names are relative to
	env func(string) (string, bool)
}

func (e expander) abs(name string) string {
	if name == "" || filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(e.dir, name)
}

// expand returns the text with everything replaced, and whether anything was.
func (e expander) expand(text string) (_ string, expanded bool, _ error) {
	var b strings.Builder
	for {
		before, after, found := strings.Cut(text, "$")
		b.WriteString(before)
		if !found {
			return b.String(), expanded, nil
		}
		switch {
		case strings.HasPrefix(after, "$"):
			b.WriteByte('$')
			text = after[1:]
		case strings.HasPrefix(after, "{"):
			name, rest, closed := strings.Cut(after[1:], "}")
			if !closed {
				return "", false, errors.New("has ${ without }; write $$ for a plain dollar sign")
			}
			value, err := e.lookup(name)
			if err != nil {
				return "", false, err
			}
			b.WriteString(value)
			text, expanded = rest, true
		default:
			b.WriteByte('$')
			text = after
		}
	}
}

func (e expander) lookup(name string) (string, error) {
	if file, ok := strings.CutPrefix(name, "file:"); ok {
		return e.file(file)
	}
	if !isEnvName(name) {
		return "", errors.New("has ${...} around something that is neither a variable's name nor file:PATH; write $$ for a plain dollar sign")
	}
	value, ok := e.env(name)
	if !ok {
		return "", fmt.Errorf("needs the environment variable %s, which is not set", name)
	}
	if !utf8.ValidString(value) {
		return "", fmt.Errorf("needs the environment variable %s, which is not UTF-8", name)
	}
	return value, nil
}

// file returns what a file holds, without the newline at its end.
func (e expander) file(name string) (string, error) {
	const maxBytes = 64 << 10
	f, err := os.Open(e.abs(name))
	if err != nil {
		return "", fmt.Errorf("needs a file: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxBytes+1))
	if err != nil {
		return "", fmt.Errorf("needs a file: %w", err)
	}
	if len(text) > maxBytes || !utf8.Valid(text) {
		return "", fmt.Errorf("needs the file %s, which is not UTF-8 of at most 64 KiB", name)
	}
	return strings.TrimRight(string(text), "\r\n"), nil
}

func isEnvName(s string) bool {
	for i, r := range s {
		letter := r == '_' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
		if !letter && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return s != ""
}
