package redistest_test

import (
	"testing"

	"phonebank/test/redistest"
)

func TestEach(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, i *redistest.Instance) {
		if got := i.Do("SET", "k", "v"); got != "+OK" {
			t.Errorf("SET: got %s, want +OK", got)
		}
		if got := i.Do("EXISTS", "k"); got != ":1" {
			t.Errorf("EXISTS: got %s, want :1", got)
		}
		i.FlushScripts()
	})
}

func TestServerComesBackEmpty(t *testing.T) {
	t.Parallel()
	i := redistest.Server(t)
	i.Do("SET", "k", "v")
	i.Freeze()
	i.Thaw()
	if got := i.Do("EXISTS", "k"); got != ":1" {
		t.Errorf("after a freeze: got %s, want :1", got)
	}
	i.Kill()
	i.Restart()
	if got := i.Do("EXISTS", "k"); got != ":0" {
		t.Errorf("after a restart: got %s, want :0", got)
	}
}
