package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/alecthomas/kong"
)

// checkCmd validates a configuration file and does nothing else.
type checkCmd struct {
	Config string `short:"c" required:"" placeholder:"FILE" help:"Configuration file."`
}

// Run prints every fault on a line of its own, file:line:column first, or what
// the file describes.
func (c *checkCmd) Run(k *kong.Context) error {
	cfg, err := Load(c.Config, os.LookupEnv)
	if faults, ok := errors.AsType[*Faults](err); ok {
		fmt.Fprintln(k.Stderr, faults)
		return fmt.Errorf("%s: %s", c.Config, count(len(faults.List), "fault"))
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(k.Stdout, "ok: %s, %s\n", count(len(cfg.Models), "model"), count(len(cfg.Replicas), "replica"))
	return err
}

// count spells a number of things.
func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
