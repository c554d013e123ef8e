package redisstore

import (
	"context"
	"fmt"
	"io/fs"
	"net"
	"path"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"phonebank/balancer"
)

func TestScriptsSayWhatTheyDo(t *testing.T) {
	t.Parallel()
	files, err := fs.Glob(sources, "lua/*.lua")
	if err != nil {
		t.Fatal(err)
	}
	number := regexp.MustCompile(`\.\. *(now|[a-z_]*ms|tonumber)\b`)
	for _, name := range files {
		b, err := fs.ReadFile(sources, name)
		if err != nil {
			t.Fatal(err)
		}
		text := string(b)
		header, _, _ := strings.Cut(text, "\n\n")
		if !strings.HasPrefix(header, "-- "+path.Base(name)) {
			t.Errorf("%s: its header does not begin with its name", name)
		}
		for _, word := range []string{"KEYS", "ARGV", "Returns", "Cost"} {
			if !strings.Contains(header, word) {
				t.Errorf("%s: no %q in its header", name, word)
			}
		}
		if hit := number.FindString(text); hit != "" {
			t.Errorf("%s: %q puts a number into a text by itself", name, hit)
		}
	}
}

// replyTypes remembers of which types the elements of all replies are.
type replyTypes struct {
	mu   sync.Mutex
	seen map[string]bool
}

func (h *replyTypes) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (h *replyTypes) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if c, ok := cmd.(*redis.Cmd); ok && err == nil {
			h.mu.Lock()
			h.add(c.Val())
			h.mu.Unlock()
		}
		return err
	}
}

func (h *replyTypes) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h *replyTypes) add(v any) {
	if list, ok := v.([]any); ok {
		for _, e := range list {
			h.add(e)
		}
		return
	}
	h.seen[fmt.Sprintf("%T", v)] = true
}

// Replies consist of integers and strings, so nothing is rounded or cut short: no nil, no float.
func TestRepliesAreIntegersAndStrings(t *testing.T) {
	onBoth(t, func(t *testing.T, s *Store) {
		h := &replyTypes{seen: make(map[string]bool)}
		s.client.AddHook(h)
		a := phone(t, s, "a", 2)
		admit(t, s, gw1, offer(ticket(1), "L1", a))
		hold := offer(ticket(2), "")
		hold.Hold = true
		admit(t, s, gw1, hold)
		admit(t, s, gw1, offer(ticket(3), ""))
		heads(t, s)
		assign(t, s, gw2, "t3", "L3", a)
		for _, f := range []func() error{
			func() error { _, err := s.Take(t.Context(), gw1, "t3", "L3"); return err },
			func() error { _, err := s.Positions(t.Context(), []balancer.Ticket{ticket(1), ticket(2)}); return err },
			func() error { _, err := s.Due(t.Context(), 1, 5); return err },
			func() error { return s.Restore(t.Context(), gw1, ticket(4), nil) },
			func() error { _, err := s.Beat(t.Context(), gw1); return err },
		} {
			if err := f(); err != nil {
				t.Error(err)
			}
		}
		finish(t, s, balancer.Finish{By: gw1, Ticket: "t1", Lease: "L1", Samples: []balancer.Sample{{Kind: "p", Amount: 1.5, Seconds: 0.1}}})
		tick(t, s, gw1)
		view(t, s, "a")
		if err := s.Resign(t.Context(), gw1); err != nil {
			t.Error(err)
		}
		if err := s.Leave(t.Context(), "a"); err != nil {
			t.Error(err)
		}
		for kind := range h.seen {
			if kind != "int64" && kind != "string" {
				t.Errorf("a reply holds a %s", kind)
			}
		}
	})
}
