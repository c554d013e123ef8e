package account

import (
	"cmp"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// seriesKey is what the labels of a request are made of.
type seriesKey struct {
	model, route string
	class        string
	outcome      Outcome
}

// noClass is the label of requests that were refused before their class was known.
const noClass = "none"

// series are the ready-made labels of one kind of request. Making them anew took most of the time of Finish.
type series struct {
	request               []metric.AddOption
	work, wait            []metric.RecordOption
	input, cached, output []metric.AddOption
}

func newSeries(k seriesKey) *series {
	model, class, route := attribute.String("model", k.model), attribute.String("class", cmp.Or(k.class, noClass)), attribute.String("route", k.route)
	add := func(labels ...attribute.KeyValue) []metric.AddOption {
		return []metric.AddOption{metric.WithAttributes(labels...)}
	}
	record := func(labels ...attribute.KeyValue) []metric.RecordOption {
		return []metric.RecordOption{metric.WithAttributes(labels...)}
	}
	return &series{
		request: add(model, class, route, attribute.String("outcome", string(k.outcome))),
		work:    record(model, class, route),
		wait:    record(model, class),
		input:   add(model, attribute.String("direction", "input")),
		cached:  add(model, attribute.String("direction", "cached")),
		output:  add(model, attribute.String("direction", "output")),
	}
}

// callKey is what the labels of a call to the shared state are made of.
type callKey struct {
	script string
	failed bool
}

func newCall(k callKey) []metric.RecordOption {
	result := "ok"
	if k.failed {
		result = "error"
	}
	return []metric.RecordOption{metric.WithAttributes(attribute.String("script", k.script), attribute.String("result", result))}
}

func newAttempt(kind string) []metric.AddOption {
	return []metric.AddOption{metric.WithAttributes(attribute.String("kind", kind))}
}

// memo remembers what was made of a key. Keys are from closed sets; should they not be, it forgets all rather than grow.
type memo[K comparable, V any] struct {
	mu   sync.RWMutex
	made map[K]V // guarded by mu
}

func (m *memo[K, V]) get(k K, build func(K) V) V {
	m.mu.RLock()
	v, ok := m.made[k]
	m.mu.RUnlock()
	if ok {
		return v
	}
	v = build(k)
	m.put(k, v)
	return v
}

func (m *memo[K, V]) put(k K, v V) {
	const most = 4096
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.made == nil || len(m.made) >= most {
		m.made = make(map[K]V)
	}
	m.made[k] = v
}
