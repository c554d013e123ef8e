package admin

import (
	"errors"
	"net/http"

	"github.com/labstack/echo/v4"

	"phonebank/auth"
)

// failure is an error with what its caller is told, in the form of OpenAI's errors.
type failure struct {
	Status  int    `json:"-"`
	Message string `json:"message"`
	Type    string `json:"type"`
	Code    string `json:"code"`
}

func (f *failure) Error() string { return f.Message }

// errorBody is the envelope.
type errorBody struct {
	Error *failure `json:"error"`
}

var errStranger = &failure{
	Status: http.StatusUnauthorized, Type: "authentication_error", Code: "unauthorized",
	Message: "No admin credentials are configured, so only requests made on this machine to a loopback address are answered. " +
		"Set admin.key or admin.jwt to let others in.",
}

func unauthorized(cause error) error {
	return &failure{
		Status: http.StatusUnauthorized, Type: "authentication_error", Code: "unauthorized",
		Message: "Admin credentials needed: " + cause.Error() + ". Send the admin key or a token as Authorization: Bearer.",
	}
}

func forbidden(need auth.Role) error {
	return &failure{
		Status: http.StatusForbidden, Type: "permission_error", Code: "forbidden",
		Message: "This needs the role " + need.String() + ".",
	}
}

// writeError answers with an error. An error that is none of ours is a bug: its text goes to the log only.
func (s *server) writeError(err error, c echo.Context) {
	if c.Response().Committed {
		return
	}
	f, ok := errors.AsType[*failure](err)
	if he, isHTTP := errors.AsType[*echo.HTTPError](err); !ok && isHTTP {
		f, ok = fromEcho(he), true
	}
	if !ok {
		s.cfg.Log.Error("admin request", "route", c.Path(), "error", err)
		f = &failure{Status: http.StatusInternalServerError, Type: "server_error", Code: "internal_error", Message: "Internal error."}
	}
	if f.Status == http.StatusUnauthorized {
		c.Response().Header().Set("WWW-Authenticate", `Basic realm="phonebank", charset="UTF-8"`)
	}
	if err := c.JSON(f.Status, errorBody{Error: f}); err != nil {
		s.cfg.Log.Debug("admin answer", "error", err)
	}
}

func fromEcho(he *echo.HTTPError) *failure {
	f := &failure{Status: he.Code, Type: "invalid_request_error", Code: "invalid_request", Message: http.StatusText(he.Code) + "."}
	switch he.Code {
	case http.StatusNotFound:
		f.Code, f.Message = "not_found", "There is no such admin route."
	case http.StatusMethodNotAllowed:
		f.Code, f.Message = "method_not_allowed", "This admin route does not answer that method."
	}
	return f
}
