package admin

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/labstack/echo/v4"

	"phonebank/auth"
	"phonebank/balancer"
)

// Authenticator says who an operator is. *auth.Admin is one.
type Authenticator interface {
	// Configured says whether anybody can be let in by credentials at all.
	Configured() bool
	// Authenticate returns who sent these headers. Its error is shown to the sender.
	Authenticate(h http.Header) (auth.Operator, error)
}

// Fleet is what is shown of the replicas. *balancer.Dispatcher is one.
type Fleet interface {
	Now() time.Time
	Snapshot() *balancer.Snapshot
	Rates(balancer.ReplicaID) (balancer.Rates, bool)
}

// Check is one part of readiness.
type Check struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail,omitempty"` // for an operator; no secrets: anybody may read it
}

// Config is what New builds from. All fields but Ready, Metrics and About are required.
type Config struct {
	Listen    string // the address of the listener, for the loopback rule: host:port as configured
	Operators Authenticator
	Fleet     Fleet
	Log       *slog.Logger

	Ready   func(context.Context) []Check // not ready if one is not OK; must be quick. Nil is always ready
	Metrics http.Handler                  // nil: no /metrics
	About   func(balancer.ReplicaID) About
}

// About is what a replica has said of itself beside the fleet's knowledge.
type About struct {
	Build   string // of its engine
	Resting bool   // this gateway's own breaker keeps away from it
}

// New returns the handler of the admin listener.
func New(cfg Config) (http.Handler, error) {
	if cfg.Operators == nil || cfg.Fleet == nil || cfg.Log == nil {
		return nil, errors.New("admin: operators, fleet and log are required")
	}
	if cfg.Ready == nil {
		cfg.Ready = func(context.Context) []Check { return nil }
	}
	if cfg.About == nil {
		cfg.About = func(balancer.ReplicaID) About { return About{} }
	}
	s := &server{cfg: cfg, door: newDoor(cfg)}
	e := echo.New()
	e.HTTPErrorHandler = s.writeError
	e.Use(harden)
	e.GET("/livez", s.livez)
	e.GET("/readyz", s.readyz)
	viewer := s.door.require(auth.RoleViewer)
	if cfg.Metrics != nil {
		e.GET("/metrics", echo.WrapHandler(cfg.Metrics), viewer)
	}
	e.GET("/admin/v1/whoami", s.whoami, viewer)
	e.GET("/admin/v1/replicas", s.replicas, viewer)
	profile(e, s.door.require(auth.RoleOperator))
	return e, nil
}

// server holds what the handlers need; it is immutable.
type server struct {
	cfg  Config
	door *door
}

// profile mounts net/http/pprof. Its index also serves the named profiles. There is no group for the routes: echo's would answer every
// path it does not know itself, and methods it does not know with 404.
func profile(e *echo.Echo, operator echo.MiddlewareFunc) {
	const prefix = "/debug/pprof"
	routes := map[string]http.HandlerFunc{
		"/cmdline": pprof.Cmdline, "/profile": pprof.Profile, "/symbol": pprof.Symbol, "/trace": pprof.Trace, "/*": pprof.Index,
	}
	for path, handler := range routes {
		e.GET(prefix+path, echo.WrapHandler(handler), operator)
	}
}

// harden sets the headers every answer has: nothing here may be cached, framed or guessed at.
func harden(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		h := c.Response().Header()
		h.Set("Cache-Control", "no-store")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		return next(c)
	}
}
