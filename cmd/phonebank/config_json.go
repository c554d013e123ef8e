package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Bounds of a JSON value in the configuration: far beyond any sensible default,
// and an end to aliases that contain each other.
const (
	maxJSONDepth = 32
	maxJSONNodes = 10_000
)

// fields turns a mapping into the members of a JSON object, keeping their order
// and the spelling of their numbers.
func (d *decoder) fields(n *yaml.Node, path string) Fields {
	if isNull(n) || !d.want(n, yaml.MappingNode, path) {
		return nil
	}
	w := jsonWriter{decoder: d}
	var fields Fields
	for key, value := range d.members(n, path) {
		name := join(path, clip(key.Value))
		d.at[name] = position{value.Line, value.Column}
		w.buf.Reset()
		if w.write(value, name, 0) {
			fields = append(fields, Field{Name: key.Value, Raw: bytes.Clone(w.buf.Bytes())})
		}
	}
	return fields
}

// jsonWriter writes YAML nodes as JSON.
type jsonWriter struct {
	*decoder
	buf   bytes.Buffer
	nodes int
}

// write appends n to the buffer, or reports why it cannot and returns false.
func (w *jsonWriter) write(n *yaml.Node, path string, depth int) bool {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if w.nodes++; depth > maxJSONDepth || w.nodes > maxJSONNodes {
		w.fault(n, path, "is nested too deeply or too large")
		return false
	}
	switch n.Kind {
	case yaml.MappingNode:
		return w.object(n, path, depth)
	case yaml.SequenceNode:
		return w.array(n, path, depth)
	default:
		text, err := w.scalarJSON(n)
		if err != nil {
			w.fault(n, path, err.Error())
			return false
		}
		w.buf.Write(text)
		return true
	}
}

func (w *jsonWriter) object(n *yaml.Node, path string, depth int) bool {
	ok, first := true, true
	w.buf.WriteByte('{')
	for key, value := range w.members(n, path) {
		if !first {
			w.buf.WriteByte(',')
		}
		first = false
		name, err := jsonString(key.Value)
		if err != nil {
			w.fault(key, path, err.Error())
			return false
		}
		w.buf.Write(name)
		w.buf.WriteByte(':')
		ok = w.write(value, join(path, clip(key.Value)), depth+1) && ok
		if w.nodes > maxJSONNodes {
			return false
		}
	}
	w.buf.WriteByte('}')
	return ok
}

func (w *jsonWriter) array(n *yaml.Node, path string, depth int) bool {
	ok := true
	w.buf.WriteByte('[')
	for i, value := range n.Content {
		if i > 0 {
			w.buf.WriteByte(',')
		}
		ok = w.write(value, fmt.Sprintf("%s[%d]", path, i), depth+1) && ok
		if w.nodes > maxJSONNodes {
			return false
		}
	}
	w.buf.WriteByte(']')
	return ok
}

func (w *jsonWriter) scalarJSON(n *yaml.Node) ([]byte, error) {
	switch n.Tag {
	case "!!null":
		return []byte("null"), nil
	case "!!bool":
		return []byte(strings.ToLower(n.Value)), nil
	case "!!int", "!!float":
		if !json.Valid([]byte(n.Value)) {
			return nil, errors.New("is a number that JSON cannot spell so; write it as 10 or 0.5")
		}
		return []byte(n.Value), nil
	case "!!str", "!!timestamp":
		text, _, err := w.expander.expand(n.Value)
		if err != nil {
			return nil, err
		}
		return jsonString(text)
	default:
		return nil, errors.New("has a tag that JSON does not know; remove it")
	}
}

// jsonString spells s without the escapes that only matter inside HTML.
func jsonString(s string) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
