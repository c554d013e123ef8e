package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"phonebank/gateway/telemetry"
)

// serveCmd runs one gateway until a signal.
type serveCmd struct {
	Config string `short:"c" required:"" placeholder:"FILE" help:"Configuration file."`
}

// Run serves until ctx ends, then stops in order.
func (c *serveCmd) Run(ctx context.Context) error {
	cfg, err := Load(c.Config, os.LookupEnv)
	if faults, ok := errors.AsType[*Faults](err); ok {
		fmt.Fprintln(os.Stderr, faults)
		return fmt.Errorf("%s: %s", c.Config, count(len(faults.List), "fault"))
	}
	if err != nil {
		return err
	}
	log, err := telemetry.NewLogger(os.Stderr, telemetry.Format(cfg.Log.Format), cfg.Log.Level)
	if err != nil {
		return err
	}
	a, err := newApp(ctx, cfg, log)
	if err != nil {
		return err
	}
	return a.run(ctx)
}
