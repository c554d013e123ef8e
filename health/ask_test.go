package health

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"phonebank/balancer"
)

func TestAskJudges(t *testing.T) {
	t.Parallel()
	fail := func(err error) answerer {
		return func(*http.Request) (*http.Response, error) { return nil, err }
	}
	tests := []struct {
		name   string
		engine balancer.Engine
		answer answerer
		want   Kind
		wait   time.Duration
	}{
		{"well", balancer.LlamaCpp, status(200, healthy), Alive, 0},
		{"a captive portal's page", balancer.LlamaCpp, status(200, "<html>"), Broken, 0},
		{"an empty answer", balancer.LlamaCpp, status(200, ""), Broken, 0},
		{"half an answer", balancer.LlamaCpp, status(200, `{"status":`), Broken, 0},
		{"too much", balancer.LlamaCpp, status(200, `{"a":"`+strings.Repeat("x", 1<<20)+`"}`), Broken, 0},
		{"loading", balancer.LlamaCpp, status(503, `{"error":{"message":"Loading model"}}`), ProbeBusy, 0},
		{"told to wait", balancer.LlamaCpp, status(503, "", "Retry-After", "7"), ProbeBusy, 7 * time.Second},
		{"a proxy's 503 page", balancer.LlamaCpp, status(503, "<html>"), Broken, 0},
		{"too many requests", balancer.OpenAI, status(429, "", "Retry-After", "soon"), ProbeBusy, 0},
		{"bad gateway", balancer.LlamaCpp, status(502, ""), Broken, 0},
		{"a redirect is not followed", balancer.LlamaCpp, status(302, "", "Location", "https://elsewhere.example/"), Broken, 0},
		{"wrong key", balancer.OpenAI, status(401, ""), Refused, 0},
		{"forbidden", balancer.OpenAI, status(403, ""), Refused, 0},
		{"another server", balancer.LlamaCpp, status(404, "{}"), Refused, 0},
		{"nobody", balancer.LlamaCpp, fail(&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}), Unreachable, 0},
		{"not registered at the relay", balancer.LlamaCpp, fail(&net.OpError{Op: "read", Err: syscall.ECONNRESET}), Unreachable, 0},
		{"tunnel without a server", balancer.LlamaCpp, fail(io.EOF), Unreachable, 0},
		{"frozen", balancer.MNN, fail(context.DeadlineExceeded), Unreachable, 0},
		{"MNN's models, without object and owner", balancer.MNN, status(200, `{"data":[{"id":"ModelScope/MNN/x"}]}`), Alive, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			target := Target{URL: "https://phone.example", Engine: tt.engine, Model: "m", Client: &http.Client{Transport: &phone{answer: tt.answer}}}
			got := ask(t.Context(), target, false)
			if got.kind != tt.want || got.leaveAlone != tt.wait {
				t.Errorf("got %v, wait %v (%s); want %v, %v", got.kind, got.leaveAlone, got.reason, tt.want, tt.wait)
			}
			if got.kind != Alive && got.reason == "" {
				t.Error("no reason")
			}
		})
	}
}

// What Go's transport really says, over real sockets.
func TestAskJudgesRealConnections(t *testing.T) {
	t.Parallel()
	secure := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if _, err := io.WriteString(w, healthy); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(secure.Close)
	errPin := errors.New("not the pinned key")
	pinned := secure.Client()
	pinned.Transport.(*http.Transport).TLSClientConfig.VerifyConnection = func(tls.ConnectionState) error { return errPin }

	tests := []struct {
		name       string
		target     Target
		want       Kind
		wantReason string
	}{
		{"unknown certificate", Target{URL: secure.URL, Client: &http.Client{Transport: &http.Transport{}}}, Refused, "certificate"},
		{"pinned key", Target{URL: secure.URL, Client: pinned, WrongIdentity: func(err error) bool { return errors.Is(err, errPin) }},
			Refused, "certificate"},
		{"nobody listens", Target{URL: "http://" + slamming(t, true), Client: new(http.Client)}, Unreachable, "connection refused"},
		{"closed in the handshake", Target{URL: "https://" + slamming(t, false), Client: new(http.Client)}, Unreachable, "connection"},
		{"closed before the headers", Target{URL: "http://" + slamming(t, false), Client: new(http.Client)}, Unreachable, "connection"},
		{"not a URL", Target{URL: "http://[", Client: new(http.Client)}, Refused, "URL"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.target.Engine = balancer.LlamaCpp
			got := ask(t.Context(), tt.target, true)
			if got.kind != tt.want || !strings.Contains(got.reason, tt.wantReason) {
				t.Errorf("got %v (%s), want %v (%s)", got.kind, got.reason, tt.want, tt.wantReason)
			}
		})
	}
}

// slamming is the address of a server that closes every connection, or of none at all.
func slamming(t *testing.T, gone bool) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if gone {
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		return l.Addr().String()
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
	}()
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		<-ended
	})
	return l.Addr().String()
}

func TestReasonsAreFromAClosedList(t *testing.T) {
	t.Parallel()
	local := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 53422}
	v := transportVerdict(Target{}, &net.OpError{Op: "read", Net: "tcp", Source: local, Err: errors.New("odd")})
	if v.reason != "no connection" {
		t.Errorf("got %q: a port in it would change with every probe", v.reason)
	}
}

func TestModelFacts(t *testing.T) {
	t.Parallel()
	resp, err := recorded(t, map[string]string{"/v1/models": "models.http"})(httptestRequest(t, "/v1/models"))
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil {
		t.Fatal(err)
	}
	f := modelFacts(balancer.OpenAI, body)
	if !slices.Equal(f.Models, []string{"phone-model"}) || !f.Serves("phone-model") || f.Serves("other") {
		t.Errorf("got %+v, want phone-model alone", f)
	}
	if f := modelFacts(balancer.MNN, body); !f.Serves("other") {
		t.Error("MNN's constant name was believed")
	}
}

func httptestRequest(t *testing.T, path string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://phone.example"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
