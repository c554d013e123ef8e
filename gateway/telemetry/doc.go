// Package telemetry sets up what the program says about itself: OpenTelemetry metrics behind a Prometheus handler, and the logger.
//
// It knows no metric and no log key; package account does. Each [Telemetry] has a registry of its own, so several live in one process and
// nothing global changes. It starts no goroutine: metrics are collected when the handler is scraped.
package telemetry
