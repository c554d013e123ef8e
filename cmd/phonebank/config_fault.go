package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Fault is one thing wrong with a configuration file, and what to do about it.
// It never quotes a secret or anything that came from the environment.
type Fault struct {
	Line, Column int    // from 1; 0 when the fault is the file itself
	Path         string // as in "replicas[3].tls.ca"; empty for the file
	Text         string
}

// Faults are all faults of one file, in the order of the file. It is the error
// that [Load] returns.
type Faults struct {
	File string
	List []Fault
}

// Error has one line a fault: file:line:column: path: text.
func (f *Faults) Error() string {
	lines := make([]string, len(f.List))
	for i, fault := range f.List {
		lines[i] = f.File + ":" + fault.String()
	}
	return strings.Join(lines, "\n")
}

func (f Fault) String() string {
	var b strings.Builder
	if f.Line > 0 {
		fmt.Fprintf(&b, "%d:%d:", f.Line, f.Column)
	}
	if f.Path != "" {
		fmt.Fprintf(&b, " %s:", f.Path)
	}
	return b.String() + " " + f.Text
}

// position is a place in the file, from 1.
type position struct{ line, column int }

// collector gathers faults and knows where each path stands in the file.
type collector struct {
	list []Fault
	at   map[string]position // of every value present in the file
	bad  map[string]bool     // paths with a fault already
}

func newCollector() *collector {
	return &collector{at: map[string]position{"": {1, 1}}, bad: map[string]bool{}}
}

// maxFaults is how many faults are listed; who has more starts with these.
const maxFaults = 200

// addAt records a fault at a place.
func (c *collector) addAt(p position, path, text string) {
	if len(c.list) == maxFaults {
		return
	}
	c.list = append(c.list, Fault{Line: p.line, Column: p.column, Path: path, Text: text})
	c.bad[path] = true
}

// add records a fault of a path, at the place of its value or, when the file
// does not have it, of what should have held it. A path that has a fault itself,
// around it or within it is left alone: the second fault would be a consequence
// of the first.
func (c *collector) add(path, format string, args ...any) {
	for bad := range c.bad {
		if bad != "" && (within(path, bad) || within(bad, path)) {
			return
		}
	}
	c.addAt(c.position(path), path, fmt.Sprintf(format, args...))
}

// has says whether the file holds a value for the path.
func (c *collector) has(path string) bool {
	_, ok := c.at[path]
	return ok
}

func (c *collector) position(path string) position {
	for {
		if p, ok := c.at[path]; ok {
			return p
		}
		path = path[:max(0, strings.LastIndexAny(path, ".["))]
	}
}

// sorted returns the faults in the order of the file.
func (c *collector) sorted() []Fault {
	slices.SortStableFunc(c.list, func(a, b Fault) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return c.list
}

// within says whether inner is outer or lies inside it.
func within(inner, outer string) bool {
	rest, ok := strings.CutPrefix(inner, outer)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// nearest returns the candidate a misspelt name probably meant, or "".
func nearest(name string, candidates []string) string {
	best, bestDistance := "", 3 // two slips are a slip, three another word
	for _, c := range candidates {
		if d := distance(strings.ToLower(name), c); d < bestDistance && d < len(c) {
			best, bestDistance = c, d
		}
	}
	return best
}

// didYouMean is the end of a fault about a misspelt value, or "".
func didYouMean(value string, candidates []string) string {
	near := nearest(value, candidates)
	if near == "" {
		return ""
	}
	return "; did you mean " + near + "?"
}

// distance counts the insertions, deletions and substitutions between a and b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			substituted := diagonal
			if a[i] != b[j] {
				substituted++
			}
			diagonal = row[j+1]
			row[j+1] = min(substituted, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
