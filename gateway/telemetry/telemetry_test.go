package telemetry

import (
	"bytes"
	"net/http/httptest"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

func scrape(t *testing.T, tel *Telemetry) string {
	t.Helper()
	w := httptest.NewRecorder()
	tel.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
	if w.Code != 200 {
		t.Fatalf("scrape: got %d, want 200: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

func TestHandlerShowsMetricsOfTheProcessAndTheProgram(t *testing.T) {
	t.Parallel()
	tel, err := New(t.Context(), Config{Version: "v1.2.3"})
	if err != nil {
		t.Fatal(err)
	}
	h, err := tel.Meter().Float64Histogram("phonebank.test", metric.WithUnit("s"), metric.WithExplicitBucketBoundaries(1, 600))
	if err != nil {
		t.Fatal(err)
	}
	h.Record(t.Context(), 42, metric.WithAttributes(attribute.String("model", "m")))
	got := scrape(t, tel)
	for _, want := range []string{
		`phonebank_test_seconds_bucket{model="m",le="600"} 1`,
		`target_info{service_name="phonebank",service_version="v1.2.3"} 1`,
		"go_goroutines ",
		"process_resident_memory_bytes ",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in the scrape", want)
		}
	}
	if err := tel.Shutdown(t.Context()); err != nil {
		t.Errorf("shutdown: %v", err)
	}
}

func TestSeveralLiveBesideEachOther(t *testing.T) {
	t.Parallel()
	for range 3 {
		tel, err := New(t.Context(), Config{})
		if err != nil {
			t.Fatal(err)
		}
		scrape(t, tel)
	}
}

func TestNewLogger(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		format Format
		level  string
		want   string // of a line at info; empty: none
		fails  bool
	}{
		{"defaults", "", "", `"msg":"hello"`, false},
		{"json", JSON, "info", `"msg":"hello"`, false},
		{"text", Text, "debug", "msg=hello", false},
		{"above", Text, "warn", "", false},
		{"no such format", "xml", "", "", true},
		{"no such level", JSON, "loud", "", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			log, err := NewLogger(&out, tt.format, tt.level)
			if (err != nil) != tt.fails {
				t.Fatalf("got error %v, want one: %v", err, tt.fails)
			}
			if tt.fails {
				return
			}
			log.Info("hello")
			if got := out.String(); !strings.Contains(got, tt.want) || (tt.want == "") != (got == "") {
				t.Errorf("got %q, want %q in it", got, tt.want)
			}
		})
	}
}
