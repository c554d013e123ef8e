package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"phonebank/test/fakephone"
)

// controlStop is how long requests to the control listener may take to finish.
const controlStop = time.Second

// fakephoneCmd runs one fake phone until the context ends.
type fakephoneCmd struct {
	Listen  string        `default:"127.0.0.1:9443" help:"Address to serve HTTPS on."`
	Profile string        `default:"elite-4b-mnn" help:"Profile that sets speed, slots and round trip; 'list' prints them all."`
	ID      string        `name:"id" default:"phone" help:"Name in the certificate; seeds the jitter together with --seed."`
	Model   string        `help:"Model alias to report [the profile's]."`
	Key     string        `env:"PHONE_KEY" help:"API key to ask for [none]."`
	Speed   float64       `default:"1" help:"Times faster than life."`
	Slots   int           `help:"Slots [the profile's]."`
	Context int           `default:"8192" help:"Context of each slot in tokens."`
	Batch   int           `default:"512" help:"Prompt tokens of one batch."`
	Load    time.Duration `default:"0s" help:"Time the phone loads its model after each start, divided by --speed."`
	Seed    uint64        `default:"1" help:"Seed of jitter and ids."`
	Heat    bool          `help:"Slow down under load as the profile says."`
	Host    []string      `help:"Further names and addresses of the certificate."`
	CertOut string        `type:"path" help:"File for the certificate (PEM), which clients take as their root."`
	KeyFile string        `type:"path" help:"File for the certificate's private key. If it and --cert-out exist they are used, else written."`
	Control string        `help:"Loopback address for the switches, plain HTTP: POST and DELETE /fault, GET /stats, POST /restart [none]."`
}

// Run serves until ctx ends, then kills the phone: running requests are reset.
func (c *fakephoneCmd) Run(ctx context.Context) error {
	if c.Profile == "list" {
		return listProfiles()
	}
	cfg, err := c.config()
	if err != nil {
		return err
	}
	phone, err := fakephone.New(cfg)
	if err != nil {
		return err
	}
	if err := c.writeCertificate(phone); err != nil {
		return err
	}
	if err := phone.Start(c.Listen); err != nil {
		return err
	}
	fmt.Fprintf(os.Stdout, "fake phone %s (%s) serves %s at %s, pin %s\n", cfg.ID, cfg.Profile.Name, phone.Config().Model, phone.URL(), phone.PinSHA256())
	if c.Control == "" {
		<-ctx.Done()
		return phone.Close()
	}
	return errors.Join(c.control(ctx, phone), phone.Close())
}

// config reads the flags and, when both files are there, the certificate.
func (c *fakephoneCmd) config() (fakephone.Config, error) {
	profile, ok := fakephone.ProfileByName(c.Profile)
	if !ok {
		return fakephone.Config{}, fmt.Errorf("unknown profile %q; --profile list prints them all", c.Profile)
	}
	cfg := fakephone.Config{
		ID: c.ID, Model: c.Model, Profile: profile, Speed: c.Speed, Slots: c.Slots, Context: c.Context, Batch: c.Batch,
		Key: c.Key, Load: c.Load, Seed: c.Seed, Heat: c.Heat, Hosts: c.Host,
	}
	if c.CertOut == "" || c.KeyFile == "" {
		return cfg, nil
	}
	cert, certErr := os.ReadFile(c.CertOut)
	key, keyErr := os.ReadFile(c.KeyFile)
	for _, err := range []error{certErr, keyErr} {
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return cfg, err
		}
	}
	if certErr == nil && keyErr == nil {
		cfg.CertPEM, cfg.KeyPEM = cert, key
	}
	return cfg, nil
}

func (c *fakephoneCmd) writeCertificate(phone *fakephone.Phone) error {
	if c.KeyFile != "" {
		if err := os.WriteFile(c.KeyFile, phone.KeyPEM(), 0o600); err != nil {
			return err
		}
	}
	if c.CertOut == "" {
		return nil
	}
	return os.WriteFile(c.CertOut, phone.CertPEM(), 0o644)
}

// control serves the switches until ctx ends. Everyone who reaches them may use them, hence loopback only.
func (c *fakephoneCmd) control(ctx context.Context, phone *fakephone.Phone) error {
	host, _, err := net.SplitHostPort(c.Control)
	if err != nil {
		return fmt.Errorf("--control: %w", err)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return fmt.Errorf("--control %s: not a loopback address", c.Control)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", c.Control)
	if err != nil {
		return fmt.Errorf("--control: %w", err)
	}
	fmt.Fprintf(os.Stdout, "control at http://%s\n", listener.Addr())
	server := &http.Server{Handler: phone.ControlHandler(), ReadHeaderTimeout: 5 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), controlStop)
	defer cancel()
	err = server.Shutdown(stop)
	if served := <-served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

func listProfiles() error {
	var b strings.Builder
	for _, p := range fakephone.Profiles() {
		fmt.Fprintf(&b, "%-16s %-12s %d slot(s), prefill %g tokens/s (7k: %g), decode %g tokens/s, %g ms away\n",
			p.Name, p.Model, p.Slots, p.PrefillShortTPS, p.Prefill7kTPS, p.DecodeTPS, p.RTTMS)
	}
	_, err := os.Stdout.WriteString(b.String())
	return err
}
