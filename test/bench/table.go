package bench

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"
)

// WriteTable writes r for a person to read.
func (r Report) WriteTable(w io.Writer) error {
	load := fmt.Sprintf("%d callers", r.Concurrency)
	if r.Mode == "open" {
		load = fmt.Sprintf("%g arrivals/s, at most %d in flight", r.TargetRate, r.Concurrency)
	}
	form := "JSON"
	if r.Stream {
		form = "streamed"
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(tw, "%s %s, %s, %s\n\n", r.Model, r.Endpoint, form, load)
	fmt.Fprintf(tw, "requests\t%d in %.1f s\n", r.Requests, r.ElapsedS)
	fmt.Fprintf(tw, "ok\t%d\t%.1f/s\n", r.OK, r.RPS)
	for _, kind := range slices.Sorted(maps.Keys(r.Errors)) {
		fmt.Fprintf(tw, "failed: %s\t%d\n", kind, r.Errors[kind])
	}
	fmt.Fprintf(tw, "prompt tokens\t%d\t%.1f/s\n", r.PromptTokens, r.PromptTokensPerS)
	fmt.Fprintf(tw, "completion tokens\t%d\t%.1f/s\n\n", r.CompletionTokens, r.CompletionTokensPer)

	fmt.Fprintln(tw, "ms\tmean\tp50\tp90\tp95\tp99\tp99.9\tmax")
	for _, row := range []struct {
		name string
		q    Quantiles
	}{
		{"first token", r.TTFT},
		{"between tokens", r.InterToken},
		{"total", r.Total},
		{"until failure", r.FailedAfter},
		{"generator late", r.Lag},
	} {
		if row.q.Count == 0 {
			continue
		}
		fmt.Fprintf(tw, "%s\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\n",
			row.name, row.q.Mean, row.q.P50, row.q.P90, row.q.P95, row.q.P99, row.q.P999, row.q.Max)
	}
	if err := tw.Flush(); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}
