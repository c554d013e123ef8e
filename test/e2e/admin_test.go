package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"phonebank/test/harness"
)

// replica is what the operators' API says of a phone.
type replica struct {
	ID     string `json:"id"`
	State  string `json:"state"`
	Reason string `json:"reason"`
	Slots  int    `json:"slots"`
	Depth  int    `json:"depth"`
}

// replicas asks a gateway for the fleet.
func replicas(ctx context.Context, g *harness.Gateway) ([]replica, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, g.Admin+"/admin/v1/replicas", nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+harness.AdminKey)
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("admin answered %d", resp.StatusCode)
	}
	var list struct {
		Data []replica `json:"data"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&list); err != nil {
		return nil, err
	}
	return list.Data, nil
}

// awaitReady waits until n phones are ready on g.
func awaitReady(t *testing.T, g *harness.Gateway, n int) {
	t.Helper()
	harness.Eventually(t, 30*time.Second, func() (bool, string) {
		list, err := replicas(t.Context(), g)
		if err != nil {
			return false, err.Error()
		}
		ready := 0
		for _, r := range list {
			if r.State == "ready" {
				ready++
			}
		}
		return ready >= n, fmt.Sprintf("%d of %d phones ready", ready, n)
	})
}

// depth is the number of occupied slots of the whole fleet.
func depth(t *testing.T, g *harness.Gateway) int {
	t.Helper()
	list, err := replicas(t.Context(), g)
	if err != nil {
		t.Fatal(err)
	}
	total := 0
	for _, r := range list {
		total += r.Depth
	}
	return total
}
