package cases

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"phonebank/test/harness"
)

// raw sends a request as written, so that headers may be as odd as a client likes, and returns the answer.
func (w *world) sendRaw(t *testing.T, c call, headers string) *answer {
	t.Helper()
	u, err := url.Parse(w.URL)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", u.Host)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patient)); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: gateway.example\r\nContent-Length: %d\r\n%s\r\n%s", chatPath, len(c.body), headers, c.body)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	a := read(t, resp)
	if a == nil {
		t.FailNow()
	}
	return a
}

// The phone gets its own token and the headers of its own configuration, and nothing of what the caller sent, however it was sent; it is
// asked by its own name and in HTTP/1.1.
func TestNothingOfTheCallersHeadersReachesAPhone(t *testing.T) {
	t.Parallel()
	w, s := scriptedWorld(t, harness.Options{}, `, headers: {x-tunnel-skip-warning: "1", X-Tenant: secret-tenant}`)
	type seen struct {
		header http.Header
		host   string
		proto  string
	}
	requests := make(chan seen, 1)
	s.on("headers", func(w http.ResponseWriter, r *http.Request) {
		requests <- seen{r.Header, r.Host, r.Proto}
		writes(roleEvent, says("ok"), finishEvent, doneEvent)(w, r)
	})
	own := url.URL{}
	if u, err := url.Parse(s.URL); err == nil {
		own = *u
	}
	tests := []struct{ name, headers string }{
		{"credentials", "Authorization: Bearer " + harness.Key + "\r\nX-Api-Key: " + harness.Key + "\r\nProxy-Authorization: Basic c2VjcmV0\r\nCookie: session=secret\r\n"},
		{"browser", "Authorization: Bearer " + harness.Key + "\r\nOrigin: https://evil.example\r\nReferer: https://evil.example/\r\nUser-Agent: Mozilla/5.0\r\nSec-Fetch-Site: cross-site\r\n"},
		{"proxy", "Authorization: Bearer " + harness.Key + "\r\nX-Forwarded-For: 10.0.0.1\r\nX-Forwarded-Host: x\r\nForwarded: for=1\r\nVia: 1.1 x\r\nX-Real-Ip: 1\r\nX-Request-Id: mine\r\n"},
		{"hop by hop", "Authorization: Bearer " + harness.Key + "\r\nConnection: close, Authorization, X-Tenant, Content-Type\r\nTE: trailers\r\nTrailer: X-T\r\nUpgrade: websocket\r\nKeep-Alive: timeout=1\r\n"},
		{"empty first Connection", "Authorization: Bearer " + harness.Key + "\r\nConnection:\r\nConnection: X-Hop\r\nX-Hop: secret\r\n"},
		{"switches of the engine", "Authorization: Bearer " + harness.Key + "\r\nX-Conversation-Id: c\r\nAccept-Encoding: gzip, br\r\nExpect: \r\nx-phonebank-class: review\r\nx-phonebank-session: s\r\n"},
	}
	want := http.Header{
		"Accept": {"text/event-stream"}, "Authorization": {"Bearer scripted-key"}, "Connection": {"close"}, "Content-Type": {"application/json"},
		"User-Agent": {"phonebank"}, "X-Tunnel-Skip-Warning": {"1"}, "X-Tenant": {"secret-tenant"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := w.sendRaw(t, topic("headers", true), tt.headers)
			if got.status != http.StatusOK || got.text != "ok" {
				t.Fatalf("got %d %s", got.status, got.raw)
			}
			r := <-requests
			r.header.Del("Content-Length")
			if diff := cmp.Diff(want, r.header); diff != "" {
				t.Errorf("headers at the phone (-want +got):\n%s", diff)
			}
			if r.host != own.Host || r.proto != "HTTP/1.1" {
				t.Errorf("got host %s, %s, want %s, HTTP/1.1", r.host, r.proto, own.Host)
			}
		})
	}
	for _, secret := range []string{"scripted-key", "secret-tenant", harness.Key, "session=secret"} {
		if strings.Contains(w.Log(), secret) {
			t.Errorf("the log holds %q", secret)
		}
	}
}

// The caller gets the gateway's headers and none of the phone's, informational answers included.
func TestNothingOfAPhonesHeadersReachesItsCaller(t *testing.T) {
	t.Parallel()
	w, s := scriptedWorld(t, harness.Options{}, "")
	s.on("leaky", func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Link", "</style.css>")
		w.WriteHeader(http.StatusEarlyHints)
		for name, value := range map[string]string{
			"Set-Cookie": "session=phone", "Server": "llama.cpp", "Access-Control-Allow-Origin": "*", "Proxy-Authenticate": "Basic", "Www-Authenticate": "Basic",
			"X-Hop": "phone", "Connection": "X-Hop", "Keep-Alive": "timeout=5", "Trailer": "X-T", "X-Request-Id": "phone", "X-Ratelimit-Limit-Requests": "1", "Retry-After": "100",
		} {
			h.Set(name, value)
		}
		writes(roleEvent, says("ok"), finishEvent, doneEvent)(w, r)
	})
	for _, stream := range []bool{false, true} {
		got := w.sendRaw(t, topic("leaky", stream), "Authorization: Bearer "+harness.Key+"\r\n")
		if got.status != http.StatusOK || got.text != "ok" {
			t.Fatalf("got %d %s", got.status, got.raw)
		}
		want := []string{"Content-Type", "Date", "Openai-Processing-Ms", "X-Phonebank-Attempts", "X-Phonebank-Queue-Ms", "X-Phonebank-Replica", "X-Request-Id"}
		if stream {
			want = append(want, "Cache-Control", "X-Accel-Buffering")
		} else {
			want = append(want, "Content-Length")
		}
		slices.Sort(want)
		if diff := cmp.Diff(want, slices.Sorted(maps.Keys(got.header))); diff != "" {
			t.Errorf("headers at the caller, stream %t (-want +got):\n%s", stream, diff)
		}
		if id := got.header.Get("X-Request-Id"); !strings.HasPrefix(id, "req_") {
			t.Errorf("got request id %q, want the gateway's", id)
		}
	}
}

// A tunnel that puts a page in front of those who do not know its secret header is passed with the phone's own headers; without them the
// page is a failure of the phone and is never shown.
func TestTunnelsThatWantAHeader(t *testing.T) {
	t.Parallel()
	door := func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("ngrok-skip-browser-warning") == "" {
			w.Header().Set("Content-Type", "text/html")
			_, _ = io.WriteString(w, "<html>You are about to visit a phone</html>")
			return
		}
		writes(roleEvent, says("ok"), finishEvent, doneEvent)(w, r)
	}
	t.Run("with it", func(t *testing.T) {
		t.Parallel()
		w, s := scriptedWorld(t, harness.Options{}, `, headers: {ngrok-skip-browser-warning: "1"}`)
		s.on("door", door)
		if got := w.ask(t, topic("door", false)); got.text != "ok" {
			t.Errorf("got %d %s", got.status, got.raw)
		}
	})
	t.Run("without it", func(t *testing.T) {
		t.Parallel()
		w, s := scriptedWorld(t, harness.Options{}, "")
		s.on("door", door)
		got := w.ask(t, topic("door", true))
		if got.status != http.StatusBadGateway || got.err.code() != "bad_gateway" || strings.Contains(string(got.raw), "html") {
			t.Errorf("got %d %s, want 502 bad_gateway", got.status, got.raw)
		}
		if got.header.Get("x-should-retry") != "false" {
			t.Error("SDKs are not told that our own retries are spent")
		}
	})
}
