package admin

import (
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"phonebank/balancer"
)

// referencePrompt is the prompt length, in tokens, for which prefill speed is shown.
const referencePrompt = 1000

// replicaList is the answer of GET /admin/v1/replicas.
type replicaList struct {
	Object string        `json:"object"` // list
	At     time.Time     `json:"at"`     // when the fleet was read, by the clock of the shared state
	Data   []replicaView `json:"data"`   // ordered by id
}

// replicaView is one replica as an operator sees it. Addresses and keys are not shown.
type replicaView struct {
	ID         balancer.ReplicaID `json:"id"`
	Model      string             `json:"model"`
	Engine     balancer.Engine    `json:"engine"`
	Build      string             `json:"build,omitempty"`
	Generation int64              `json:"generation"`

	State      string    `json:"state"`
	Reason     string    `json:"reason,omitempty"`
	Since      time.Time `json:"since,omitzero"`
	LeaveAlone time.Time `json:"leave_alone_until,omitzero"` // only while it lies ahead
	Resting    bool      `json:"resting_here,omitempty"`     // kept out by this gateway's own breaker

	Slots   int       `json:"slots"`
	Depth   int       `json:"depth"` // occupied slots
	Context int       `json:"context_tokens,omitempty"`
	Speed   speedView `json:"tokens_per_second"`
	EndsAt  time.Time `json:"ends_at,omitzero"`
}

// speedView is what the choice reckons with; prefill for a prompt of 1,000 tokens, decode with one slot busy.
type speedView struct {
	Prefill float64 `json:"prefill"`
	Decode  float64 `json:"decode"`
}

func (s *server) replicas(c echo.Context) error {
	snapshot, now := s.cfg.Fleet.Snapshot(), s.cfg.Fleet.Now()
	list := replicaList{Object: "list", At: snapshot.At, Data: make([]replicaView, 0, len(snapshot.Views))}
	for i := range snapshot.Views {
		list.Data = append(list.Data, s.view(&snapshot.Views[i], now))
	}
	return c.JSON(http.StatusOK, list)
}

func (s *server) view(v *balancer.View, now time.Time) replicaView {
	about := s.cfg.About(v.ID)
	out := replicaView{
		ID: v.ID, Model: v.Model, Engine: v.Engine, Build: about.Build, Generation: v.Generation,
		State: v.State.String(), Reason: v.Reason, Since: v.Since, Resting: about.Resting,
		Slots: v.Slots, Depth: v.Depth(), Context: v.Context, EndsAt: v.EndsAt,
	}
	if v.LeaveAlone.After(now) {
		out.LeaveAlone = v.LeaveAlone
	}
	if rates, ok := s.cfg.Fleet.Rates(v.ID); ok {
		out.Speed.Prefill = rates.Prefill[balancer.PrefillBucket(referencePrompt)]
		out.Speed.Decode = rates.Decode[balancer.DecodeBucket(1)]
	}
	return out
}
