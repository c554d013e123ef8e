package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	"phonebank/test/bench"
	"phonebank/test/demo"
	"phonebank/test/fakephone"
)

// demoCmd is a whole world in one process.
type demoCmd struct {
	Phones      int     `default:"10" help:"Fake phones, with the profiles in turn."`
	Speed       float64 `default:"20" help:"Times faster than life."`
	Load        float64 `default:"2" help:"Requests a second of the demo's own light load; 0 is off."`
	Once        bool    `help:"Send a review, a guard message and a chat, kill a phone on the way, show what happens, and exit 0 if every answer is right."`
	Listen      string  `default:"127.0.0.1:8080" help:"Address of the public API."`
	AdminListen string  `default:"127.0.0.1:8081" help:"Address of the operators' listener."`
	Key         string  `default:"pb-demo-key" help:"API key to accept."`
	Seed        uint64  `default:"1" help:"Makes phones and load repeatable."`
}

const demoModel = "qwen3.5-4b"

// Run runs the world until ctx ends or, with --once, until the show is over.
func (c *demoCmd) Run(ctx context.Context) error {
	if c.Phones < 1 || c.Once && c.Phones < 2 {
		return errors.New("--phones: at least 1, and 2 for --once, which kills one")
	}
	phones, err := c.startPhones()
	defer func() {
		for _, p := range phones {
			_ = p.Close() // killed already, perhaps
		}
	}()
	if err != nil {
		return err
	}
	cfg := c.config(phones)
	a, err := newApp(ctx, cfg, slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return a.run(ctx) })
	g.Go(func() error {
		defer cancel() // the show is over: the gateway stops
		return c.show(ctx, a, phones)
	})
	err = g.Wait()
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

func (c *demoCmd) startPhones() ([]*fakephone.Phone, error) {
	profiles := fakephone.Profiles()
	var phones []*fakephone.Phone
	for i := range c.Phones {
		p, err := fakephone.New(fakephone.Config{
			ID: fmt.Sprintf("phone-%02d", i+1), Model: demoModel, Profile: profiles[i%len(profiles)], Speed: c.Speed,
			Context: 16384, Key: fmt.Sprintf("demo-phone-key-%02d", i+1), Seed: c.Seed + uint64(i), Heat: true,
		})
		if err == nil {
			err = p.Start("127.0.0.1:0")
		}
		if err != nil {
			return phones, err
		}
		phones = append(phones, p)
	}
	return phones, nil
}

// config is what a configuration file for these phones would hold.
func (c *demoCmd) config(phones []*fakephone.Phone) *Config {
	cfg := new(Config)
	cfg.setDefaults()
	cfg.Listen, cfg.Admin.Listen = c.Listen, c.AdminListen
	cfg.Redis.Embedded = true
	cfg.TimeFactor = c.Speed
	cfg.CommitAfter = time.Second // so that there is something to see
	cfg.DrainTimeout = time.Second
	cfg.Auth.Keys = []KeyConfig{{ID: "demo", Key: Secret(c.Key), Class: "guard"}}
	cfg.Models = []Model{{ID: demoModel, Context: 16384, MaxTokens: 256}}
	for _, p := range phones {
		pc := p.Config()
		cfg.Replicas = append(cfg.Replicas, Replica{
			ID: pc.ID, URL: p.URL(), Model: demoModel, Engine: "llama.cpp", Slots: pc.Slots, Context: pc.Context,
			Key: Secret(pc.Key), TLS: TLSConfig{Pin: p.PinSHA256()},
			// As whoever runs the fleet would have measured cold phones; how hot ones do is for the gateway to learn.
			Prior: Prior{PrefillTPS: pc.Profile.PrefillShortTPS * c.Speed, DecodeTPS: pc.Profile.DecodeTPS * c.Speed / float64(pc.Slots)},
		})
	}
	cfg.resolve()
	return cfg
}

// show waits for the phones, tells where everything is, and keeps the load going, or plays once.
func (c *demoCmd) show(ctx context.Context, a *app, phones []*fakephone.Phone) error {
	base := "http://" + a.onPublic.Addr().String() + "/v1"
	if err := waitModel(ctx, base, c.Key); err != nil {
		return err
	}
	if c.Once {
		return c.once(ctx, base, phones)
	}
	c.banner(os.Stdout, base, "http://"+a.onAdmin.Addr().String(), len(phones))
	if c.Load <= 0 {
		<-ctx.Done()
		return nil
	}
	_, err := bench.Run(ctx, bench.Config{
		URL: base, Key: c.Key, Model: demoModel, Endpoint: "chat", Stream: true, Rate: c.Load,
		Duration: 10 * 365 * 24 * time.Hour, PromptTokens: 300, MaxTokens: 32, Seed: c.Seed,
	})
	return err
}

func (c *demoCmd) banner(w io.Writer, base, admin string, phones int) {
	fmt.Fprintf(w, `Phonebank demo: %d fake phones over TLS, %gx faster than life, embedded Redis (nothing is kept).

  base URL   %s
  API key    %s
  model      %s
  admin      %s   (metrics at %s/metrics)

Try it:

  curl -N %s/chat/completions -H 'Authorization: Bearer %s' -H 'Content-Type: application/json' \
    -d '{"model":"%s","stream":true,"messages":[{"role":"user","content":"Hello, phones"}]}'

Ctrl-C stops it.
`, phones, c.Speed, base, c.Key, demoModel, admin, admin, base, c.Key, demoModel)
}

func (c *demoCmd) once(ctx context.Context, base string, phones []*fakephone.Phone) error {
	show := &demo.Show{
		BaseURL: base, Key: c.Key, Model: demoModel, Out: os.Stdout,
		Pause:  time.Duration(float64(4*time.Second) / c.Speed), // the fastest phone needs 15 s of its life
		Expect: func(body []byte) string { return fakephone.Answer("/v1/chat/completions", body) },
		Reading: func(text string) (busy []string) {
			for _, p := range phones {
				if s := p.Stats(); s.Active > 0 && bytes.Contains(s.LastBody, []byte(text)) {
					busy = append(busy, p.Config().ID)
				}
			}
			return busy
		},
		Kill: func(id string) {
			for _, p := range phones {
				if p.Config().ID == id {
					_ = p.Close() // what the show wants is that it is gone
				}
			}
		},
	}
	return show.Run(ctx)
}

// waitModel waits until the gateway offers the demo's model: until a phone has been probed.
func waitModel(ctx context.Context, base, key string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	poll := time.NewTicker(100 * time.Millisecond)
	defer poll.Stop()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/models/"+demoModel, nil)
		if err != nil {
			return err
		}
		req.Header.Set("Authorization", "Bearer "+key)
		if resp, err := http.DefaultClient.Do(req); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("no phone became ready: %w", context.Cause(ctx))
		case <-poll.C:
		}
	}
}
