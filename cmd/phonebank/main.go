// Command phonebank makes a crowd of phones, each running one language model, look like one dependable OpenAI endpoint.
//
// Each subcommand is a thin file here; what it does lives in its package. This package is the only one that knows all the others: app.go
// builds the rooms of a gateway and stops them in order.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/alecthomas/kong"
)

type cli struct {
	Serve     serveCmd         `cmd:"" help:"Run a gateway."`
	Demo      demoCmd          `cmd:"" help:"Run a whole world in one process: Redis, ten fake phones, a gateway and a light load."`
	Check     checkCmd         `cmd:"" help:"Validate a configuration file and do nothing else."`
	Bench     benchCmd         `cmd:"" help:"Put load on an OpenAI endpoint, or be the instant upstream behind one."`
	Fakephone fakephoneCmd     `cmd:"" help:"Run one fake phone that speaks llama-server's dialect."`
	Version   kong.VersionFlag `short:"v" help:"Print the version."`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	exitOnSecondSignal()

	var c cli
	parser := kong.Must(&c,
		kong.Name("phonebank"),
		kong.Description("One dependable OpenAI endpoint in front of a crowd of phones."),
		kong.UsageOnError(),
		kong.Vars{"version": version()},
		kong.BindTo(ctx, (*context.Context)(nil)),
	)
	k, err := parser.Parse(os.Args[1:])
	parser.FatalIfErrorf(err)
	if err := k.Run(); err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "phonebank:", err)
		os.Exit(1)
	}
}

// exitOnSecondSignal ends the process at once when it is told to stop for the second time, however soon that comes after the first. Its
// goroutine lives as long as the process.
func exitOnSecondSignal() {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		<-signals
		os.Exit(1)
	}()
}

// version is what the build says of itself.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	v := info.Main.Version
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && v == "(devel)" {
			v = s.Value
		}
	}
	return v
}
