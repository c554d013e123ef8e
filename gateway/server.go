package gateway

import (
	"net/http"
	"sync/atomic"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"

	"phonebank/balancer"
	"phonebank/gateway/openai"
)

// Gateway serves the public API.
type Gateway struct {
	Deps
	cfg      Config
	models   map[string]*Model
	stopping atomic.Bool
}

// New returns a gateway. It starts nothing.
func New(d Deps, c Config) *Gateway {
	g := &Gateway{Deps: d, cfg: c.withDefaults(), models: make(map[string]*Model, len(c.Models))}
	for i := range c.Models {
		g.models[c.Models[i].ID] = &c.Models[i]
	}
	return g
}

// Stop makes the gateway not ready and turns new work away; what was accepted goes on.
func (g *Gateway) Stop() { g.stopping.Store(true) }

// Stopping reports whether Stop was called.
func (g *Gateway) Stopping() bool { return g.stopping.Load() }

// Handler returns the public routes. ready tells whether the shared state can be reached, and why not.
func (g *Gateway) Handler(ready func() error) http.Handler {
	e := echo.New()
	e.HTTPErrorHandler = g.handleError
	e.IPExtractor = echo.ExtractIPDirect() // callers write X-Forwarded-For as they please
	e.Use(middleware.RecoverWithConfig(middleware.RecoverConfig{
		DisablePrintStack: true,
		LogErrorFunc: func(c echo.Context, err error, stack []byte) error {
			g.Log.Error("panic", "error", err, "route", c.Path(), "stack", string(stack))
			return err
		},
	}))
	// SDKs are given base URLs with and without /v1.
	for _, prefix := range []string{"/v1", ""} {
		e.POST(prefix+"/chat/completions", g.handle(openai.ChatCompletions))
		e.POST(prefix+"/completions", g.handle(openai.Completions))
		e.GET(prefix+"/models", g.listModels)
		e.GET(prefix+"/models/:id", g.getModel)
	}
	e.GET("/livez", func(c echo.Context) error { return c.String(http.StatusOK, "ok\n") })
	e.GET("/readyz", func(c echo.Context) error { return g.readyz(c, ready) })
	return e
}

func (g *Gateway) handle(ep openai.Endpoint) echo.HandlerFunc {
	return func(c echo.Context) error {
		g.serve(c.Response(), c.Request(), ep)
		return nil
	}
}

func (g *Gateway) readyz(c echo.Context, ready func() error) error {
	if g.Stopping() {
		return c.String(http.StatusServiceUnavailable, "stopping\n")
	}
	if err := ready(); err != nil {
		return c.String(http.StatusServiceUnavailable, "degraded: "+err.Error()+"\n")
	}
	return c.String(http.StatusOK, "ok\n")
}

// modelsBorn is the "created" of every model: nobody knows when a model on a phone was made, and all gateways must say the same.
const modelsBorn = 1767225600 // 2026-01-01

// offered reports whether any phone of a model may answer soon: one that is down for long takes its model off the list.
func offered(s *balancer.Snapshot, model string) bool {
	for _, i := range s.Pool(model) {
		if s.Views[i].State != balancer.Down {
			return true
		}
	}
	return false
}

func (g *Gateway) listModels(c echo.Context) error {
	c.Response().Header().Set("x-request-id", newRequestID())
	if _, err := g.Auth.Authenticate(c.Request().Header); err != nil {
		return err
	}
	snap := g.Room.Snapshot()
	list := make([]openai.Model, 0, len(g.cfg.Models))
	for i := range g.cfg.Models {
		if id := g.cfg.Models[i].ID; offered(snap, id) {
			list = append(list, openai.NewModel(id, modelsBorn, "phonebank"))
		}
	}
	return c.JSON(http.StatusOK, openai.NewModelList(list))
}

func (g *Gateway) getModel(c echo.Context) error {
	c.Response().Header().Set("x-request-id", newRequestID())
	if _, err := g.Auth.Authenticate(c.Request().Header); err != nil {
		return err
	}
	id := c.Param("id")
	if g.models[id] == nil || !offered(g.Room.Snapshot(), id) {
		return openai.ModelNotFound(id)
	}
	return c.JSON(http.StatusOK, openai.NewModel(id, modelsBorn, "phonebank"))
}

func newRequestID() string { return "req_" + balancer.NewID() }
