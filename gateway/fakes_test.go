package gateway

import (
	"context"
	"log/slog"
	"net/url"
	"testing"
	"time"

	"phonebank/balancer"
)

// roomTime is when the snapshot of roomOf was read.
var roomTime = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// table is a shared state that can only be looked at.
type table struct {
	balancer.Store
	views []balancer.View
}

func (s table) Snapshot(context.Context) (*balancer.Snapshot, error) {
	return balancer.NewSnapshot(roomTime, s.views, nil), nil
}

// roomOf is a room that knows these phones.
func roomOf(t testing.TB, views ...balancer.View) *balancer.Dispatcher {
	t.Helper()
	room := balancer.NewDispatcher(table{views: views}, balancer.Config{Rules: balancer.DefaultRules()}, slog.New(slog.DiscardHandler))
	if err := room.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	return room
}

func mustURL(t testing.TB, s string) *url.URL {
	t.Helper()
	u, err := url.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return u
}
