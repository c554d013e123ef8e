package main

import (
	"encoding"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// decoder fills a value from a YAML tree, strictly: every field of the tree
// must have a place, every value the right type. It goes on after a fault, so
// that one run finds them all.
//
// Names come from the yaml tags. A type with a setDefaults method gets its
// defaults before it is filled. An empty value ("auth:" with nothing after it)
// counts as absent for structs, lists and maps.
type decoder struct {
	*collector
	expander expander
}

// defaulter is a value that is not all zeros when the file says nothing.
type defaulter interface{ setDefaults() }

var (
	durationType = reflect.TypeFor[time.Duration]()
	timeType     = reflect.TypeFor[time.Time]()
	pathType     = reflect.TypeFor[Path]()
	fieldsType   = reflect.TypeFor[Fields]()
)

// decode fills v, which is settable, from n.
func (d *decoder) decode(n *yaml.Node, path string, v reflect.Value) {
	if n.Kind == yaml.AliasNode {
		// The anchor's own faults are reported where the anchor stands.
		n = n.Alias
	}
	d.at[path] = position{n.Line, n.Column}
	if v.Kind() == reflect.Pointer {
		if isNull(n) {
			return
		}
		v.Set(reflect.New(v.Type().Elem()))
		v = v.Elem()
	}
	if dv, ok := v.Addr().Interface().(defaulter); ok {
		dv.setDefaults()
	}
	switch {
	case v.Type() == fieldsType:
		v.Set(reflect.ValueOf(d.fields(n, path)))
	case isScalarType(v.Type()):
		d.scalar(n, path, v)
	case isNull(n):
	case v.Kind() == reflect.Struct:
		d.structure(n, path, v)
	case v.Kind() == reflect.Slice:
		d.list(n, path, v)
	case v.Kind() == reflect.Map:
		d.dictionary(n, path, v)
	default:
		d.fault(n, path, "has a type this program cannot read: "+v.Type().String())
	}
}

func isScalarType(t reflect.Type) bool {
	if t == timeType || reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) {
		return true
	}
	switch t.Kind() {
	case reflect.Struct, reflect.Slice, reflect.Map:
		return false
	default:
		return true
	}
}

func (d *decoder) structure(n *yaml.Node, path string, v reflect.Value) {
	if !d.want(n, yaml.MappingNode, path) {
		return
	}
	index := fieldIndex(v.Type())
	for key, value := range d.members(n, path) {
		i, ok := index[key.Value]
		if !ok {
			d.unknown(key, path, slices.Sorted(maps.Keys(index)))
			continue
		}
		d.decode(value, join(path, key.Value), v.Field(i))
	}
}

// unknown reports a field that has no place.
func (d *decoder) unknown(key *yaml.Node, path string, known []string) {
	name := clip(key.Value)
	text := "unknown field" + didYouMean(name, known)
	if near := nearest(name, known); near != "" {
		d.bad[join(path, near)] = true // not missing as well
	} else {
		text += "; known are " + strings.Join(known, ", ")
	}
	d.fault(key, join(path, name), text)
}

func (d *decoder) list(n *yaml.Node, path string, v reflect.Value) {
	if !d.want(n, yaml.SequenceNode, path) {
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
	for i, element := range n.Content {
		d.decode(element, fmt.Sprintf("%s[%d]", path, i), v.Index(i))
	}
}

// dictionary fills a map from strings to scalars.
func (d *decoder) dictionary(n *yaml.Node, path string, v reflect.Value) {
	if !d.want(n, yaml.MappingNode, path) {
		return
	}
	v.Set(reflect.MakeMap(v.Type()))
	for key, value := range d.members(n, path) {
		element := reflect.New(v.Type().Elem()).Elem()
		d.decode(value, join(path, clip(key.Value)), element)
		v.SetMapIndex(reflect.ValueOf(key.Value), element)
	}
}

// members yields the keys and values of a mapping whose keys are proper names.
func (d *decoder) members(n *yaml.Node, path string) func(yield func(key, value *yaml.Node) bool) {
	return func(yield func(key, value *yaml.Node) bool) {
		seen := make(map[string]int, len(n.Content)/2)
		for i := 0; i+1 < len(n.Content); i += 2 {
			key, value := n.Content[i], n.Content[i+1]
			switch {
			case key.Kind != yaml.ScalarNode:
				d.fault(key, path, "has a field whose name is not a plain word")
				continue
			case key.Tag == "!!merge":
				d.fault(key, join(path, key.Value), "merge keys (<<) are not supported; write the fields out")
				continue
			case seen[key.Value] > 0:
				d.fault(key, join(path, clip(key.Value)), fmt.Sprintf("is set twice, first on line %d; keep one", seen[key.Value]))
				continue
			}
			seen[key.Value] = key.Line
			if !yield(key, value) {
				return
			}
		}
	}
}

// want reports a node of another kind than wanted.
func (d *decoder) want(n *yaml.Node, kind yaml.Kind, path string) bool {
	if n.Kind != kind {
		d.fault(n, path, fmt.Sprintf("is %s; want %s", kindName(n.Kind), kindName(kind)))
	}
	return n.Kind == kind
}

func (d *decoder) fault(n *yaml.Node, path, text string) {
	d.addAt(position{n.Line, n.Column}, path, text)
}

func kindName(k yaml.Kind) string {
	switch k {
	case yaml.MappingNode:
		return "a mapping of fields"
	case yaml.SequenceNode:
		return "a list"
	default:
		return "a single value"
	}
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

// fieldIndex maps the yaml names of a struct to its fields.
func fieldIndex(t reflect.Type) map[string]int {
	index := make(map[string]int, t.NumField())
	for i := range t.NumField() {
		index[t.Field(i).Tag.Get("yaml")] = i
	}
	return index
}

// clip shortens a name that is quoted in a fault.
func clip(name string) string {
	const most = 40
	if len(name) > most {
		return strings.ToValidUTF8(name[:most], "") + "..."
	}
	return name
}
