package redisstore

import (
	"context"

	"github.com/redis/go-redis/v9"

	"phonebank/balancer"
)

// noticeBuffer is how far a reader may fall behind before notices are lost to it. Polling makes up for those.
const noticeBuffer = 256

// Notices implements balancer.Store. It uses a connection of its own, outside the pool, and subscribes again by itself; since notices may
// have been missed then, each subscription is followed by one of Fleet.
func (s *Store) Notices(ctx context.Context, by balancer.Owner) <-chan balancer.Notice {
	mine, fleet := s.keys.ownerNews(string(by)), s.keys.fleetNews()
	out := make(chan balancer.Notice, noticeBuffer)
	go func() {
		defer close(out)
		sub := s.client.Subscribe(ctx, mine, fleet)
		defer sub.Close()
		in := sub.ChannelWithSubscriptions(redis.WithChannelSize(noticeBuffer))
		for {
			select {
			case <-ctx.Done():
				return
			case m, ok := <-in:
				if !ok {
					return
				}
				n, ok := s.noticeOf(m, mine, fleet)
				if !ok {
					continue
				}
				select {
				case out <- n:
				default:
				}
			}
		}
	}()
	return out
}

func (s *Store) noticeOf(m any, mine, fleet string) (balancer.Notice, bool) {
	switch m := m.(type) {
	case *redis.Subscription:
		return balancer.Notice{Fleet: true}, m.Kind == "subscribe" && m.Channel == fleet
	case *redis.Message:
		if m.Channel != mine {
			return balancer.Notice{Fleet: true}, true
		}
		l, err := parseOffer(m.Payload)
		if err != nil {
			s.log.Error("malformed offer", "error", err)
			return balancer.Notice{}, false
		}
		return balancer.Notice{Lease: &l}, true
	default:
		return balancer.Notice{}, false
	}
}
