package redisstore
import ("testing";"strings";"fmt")
func stats(b *testing.B, s *Store, n int) {
	info, _ := s.client.Info(b.Context(), "commandstats").Result()
	for l := range strings.Lines(info) { if strings.Contains(l,"eval") { fmt.Println(n, strings.TrimSpace(l)) } }
	s.client.ConfigResetStat(b.Context())
}
