package admin

import (
	"context"
	"net"
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"

	"phonebank/auth"
)

// door decides who comes in.
type door struct {
	operators Authenticator
	local     bool   // people on this machine are viewers: no credentials are configured and the listener is on loopback
	host      string // of the listener
}

func newDoor(cfg Config) *door {
	host, _, err := net.SplitHostPort(cfg.Listen)
	if err != nil {
		host = cfg.Listen
	}
	return &door{operators: cfg.Operators, local: !cfg.Operators.Configured() && loopback(host), host: host}
}

// identityKey is the context key of the caller's auth.Operator.
type identityKey struct{}

func identity(ctx context.Context) auth.Operator {
	id, _ := ctx.Value(identityKey{}).(auth.Operator)
	return id
}

// require lets in who has at least the role.
func (d *door) require(role auth.Role) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			r := c.Request()
			id, err := d.identify(r)
			if err != nil {
				return err
			}
			if !id.Role.Allows(role) {
				return forbidden(role)
			}
			c.SetRequest(r.WithContext(context.WithValue(r.Context(), identityKey{}, id)))
			return next(c)
		}
	}
}

func (d *door) identify(r *http.Request) (auth.Operator, error) {
	if d.local {
		if !d.neighbour(r) {
			return auth.Operator{}, errStranger
		}
		return auth.Operator{Subject: "local", Role: auth.RoleViewer}, nil
	}
	id, err := d.operators.Authenticate(r.Header)
	if err != nil {
		return auth.Operator{}, unauthorized(err)
	}
	return id, nil
}

// neighbour reports whether the request was really made on this machine, for this listener.
func (d *door) neighbour(r *http.Request) bool {
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-Ip", "Via"} {
		if r.Header.Get(name) != "" {
			return false
		}
	}
	remote, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil || !loopback(remote) {
		return false
	}
	// The port is not compared: a name that resolves to us is what gives an attack away, and tunnels change ports.
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.Trim(host, "[]")
	return loopback(host) || strings.EqualFold(host, d.host)
}

// loopback reports whether host is a name or address of this machine that nobody else can have.
func loopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}
