package telemetry

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/attribute"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
)

// scope names the meter of the whole program.
const scope = "phonebank"

// MaxSeries bounds the series of one metric; what goes beyond is one series with otel_metric_overflow="true". Labels are from closed sets,
// so only the fleet counts: five states of 10,000 replicas.
const MaxSeries = 50_000

// Config describes the running program.
type Config struct {
	Service string // service.name; empty: phonebank
	Version string // service.version
}

// Telemetry holds the meter provider and its registry. Its methods may be called concurrently.
type Telemetry struct {
	registry *prometheus.Registry
	provider *sdkmetric.MeterProvider
}

// New returns a running Telemetry. Call Shutdown at the end.
func New(ctx context.Context, cfg Config) (*Telemetry, error) {
	if cfg.Service == "" {
		cfg.Service = scope
	}
	res, err := resource.New(ctx, resource.WithAttributes(
		attribute.String("service.name", cfg.Service),
		attribute.String("service.version", cfg.Version),
	))
	if err != nil {
		return nil, fmt.Errorf("describe service: %w", err)
	}
	registry := prometheus.NewRegistry()
	err = errors.Join(
		registry.Register(collectors.NewGoCollector()),
		registry.Register(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})),
	)
	if err != nil {
		return nil, fmt.Errorf("register collectors: %w", err)
	}
	exporter, err := otelprometheus.New(otelprometheus.WithRegisterer(registry), otelprometheus.WithoutScopeInfo())
	if err != nil {
		return nil, fmt.Errorf("prometheus exporter: %w", err)
	}
	provider := sdkmetric.NewMeterProvider(
		sdkmetric.WithReader(exporter),
		sdkmetric.WithResource(res),
		sdkmetric.WithCardinalityLimit(MaxSeries),
	)
	return &Telemetry{registry: registry, provider: provider}, nil
}

// Meter makes the program's instruments. Histograms bring their own buckets.
func (t *Telemetry) Meter() metric.Meter { return t.provider.Meter(scope) }

// Handler answers a scrape. Metrics name models, replicas and states, never callers or keys; still it is for operators only.
func (t *Telemetry) Handler() http.Handler {
	return promhttp.HandlerFor(t.registry, promhttp.HandlerOpts{
		EnableOpenMetrics:   true,
		MaxRequestsInFlight: 4,
		Timeout:             10 * time.Second,
	})
}

// Shutdown ends collection. Scrapes afterwards hold the process's metrics only.
func (t *Telemetry) Shutdown(ctx context.Context) error { return t.provider.Shutdown(ctx) }
