package arch_test

// A rule says which packages of this module a package may import.
type rule struct {
	anything bool     // wiring and tests
	imports  []string // paths below the module
	tests    []string // further ones for its tests
}

// importTable has a line for every package. What is not here fails: a new
// package is a decision about the shape of the program. A line without a
// package is fine.
func importTable() map[string]rule {
	return map[string]rule{
		// Wiring. It holds no logic worth a test of its own.
		"cmd/phonebank": {anything: true},

		// The edge: the one package that sees the whole way of a request.
		"gateway": {imports: []string{
			"auth", "auth/limit", "balancer", "health",
			"gateway/account", "gateway/admin", "gateway/batch", "gateway/openai", "gateway/relay", "gateway/telemetry",
		}},
		"gateway/account": {imports: []string{"auth", "auth/limit", "balancer", "gateway/openai", "gateway/relay"}},
		"gateway/admin":   {imports: []string{"auth", "balancer", "health"}},
		"gateway/batch":   {imports: []string{"auth", "balancer", "gateway/openai"}},
		"gateway/relay":   {imports: []string{"balancer", "gateway/openai"}},

		// The adapter that knows every store contract. Only wiring imports it.
		"gateway/redisstore": {imports: []string{
			"auth", "auth/limit", "balancer", "health", "gateway/account", "gateway/batch",
		}},

		"health":       {imports: []string{"balancer"}},
		"balancer/sim": {imports: []string{"balancer"}},

		// Leaves: they decide, and know nobody.
		"auth":              {},
		"auth/limit":        {},
		"balancer":          {tests: []string{"auth/limit", "gateway/redisstore"}}, // the dispatcher and the scripts are proved together
		"gateway/openai":    {},
		"gateway/telemetry": {},

		"deploy": {},

		"test/arch":      {anything: true},
		"test/bench":     {anything: true},
		"test/chaos":     {anything: true},
		"test/clients":   {anything: true},
		"test/demo":      {anything: true},
		"test/cases":     {anything: true},
		"test/e2e":       {anything: true},
		"test/fakephone": {anything: true},
		"test/harness":   {anything: true},
		"test/redistest": {anything: true},
	}
}

// libraryTable says which packages may import a library that would otherwise
// spread. Packages below test may import any.
func libraryTable() map[string][]string {
	return map[string][]string{
		"github.com/redis/go-redis": {"gateway/redisstore"},
		"github.com/labstack/echo":  {"gateway", "gateway/admin"},
		"github.com/golang-jwt/jwt": {"auth"},
	}
}
