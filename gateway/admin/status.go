package admin

import (
	"net/http"

	"github.com/labstack/echo/v4"
)

// statusView is the answer of /livez and /readyz.
type statusView struct {
	Status string  `json:"status"` // ok or unavailable
	Checks []Check `json:"checks,omitempty"`
}

// livez says that the process answers; it depends on nothing else.
func (s *server) livez(c echo.Context) error { return c.JSON(http.StatusOK, statusView{Status: "ok"}) }

// readyz says whether new requests should be sent here: 200, or 503 with what is missing.
func (s *server) readyz(c echo.Context) error {
	view := statusView{Status: "ok", Checks: s.cfg.Ready(c.Request().Context())}
	status := http.StatusOK
	for _, check := range view.Checks {
		if !check.OK {
			view.Status, status = "unavailable", http.StatusServiceUnavailable
		}
	}
	return c.JSON(status, view)
}

// identityView is the answer of GET /admin/v1/whoami.
type identityView struct {
	Subject string `json:"subject"`
	Role    string `json:"role"`
}

func (s *server) whoami(c echo.Context) error {
	id := identity(c.Request().Context())
	return c.JSON(http.StatusOK, identityView{Subject: id.Subject, Role: id.Role.String()})
}
