package fakephone

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func itoa(n int) string { return strconv.Itoa(n) }

func TestCertificate(t *testing.T) {
	t.Parallel()
	p, _ := overTLS(t, Config{ID: "phone-7", Hosts: []string{"phone7.example", "10.1.2.3"}})
	block, _ := pem.Decode(p.CertPEM())
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"localhost", "127.0.0.1", "phone7.example", "10.1.2.3"} {
		if err := cert.VerifyHostname(host); err != nil {
			t.Error(err)
		}
	}
	sum := sha256.Sum256(cert.RawSubjectPublicKeyInfo)
	if got, want := p.PinSHA256(), "sha256/"+base64.StdEncoding.EncodeToString(sum[:]); got != want {
		t.Errorf("pin %s, want %s", got, want)
	}
	again, err := New(Config{CertPEM: p.CertPEM(), KeyPEM: p.KeyPEM()})
	if err != nil || again.PinSHA256() != p.PinSHA256() {
		t.Errorf("phone with the same certificate: %v, pin %s", err, again.PinSHA256())
	}
	conn := rawConn(t, p, "").(*tls.Conn)
	if got := conn.ConnectionState().NegotiatedProtocol; got == "h2" {
		t.Error("the phone speaks HTTP/2")
	}
}

// TestConnectionsEndAsRecorded checks the life of connections: after a stream, after an error, after 100 requests, after 5 s.
func TestConnectionsEndAsRecorded(t *testing.T) {
	t.Parallel()
	const get = "GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
	post := func(body string) string {
		return "POST " + chat + " HTTP/1.1\r\nHost: x\r\nContent-Length: " + itoa(len(body)) + "\r\n\r\n" + body
	}
	t.Run("stream announces keep-alive and closes", func(t *testing.T) {
		t.Parallel()
		p, _ := overTLS(t, fast())
		b, err := io.ReadAll(rawConn(t, p, post(say)))
		if err != nil || !bytes.Contains(b, []byte("Keep-Alive: timeout=5, max=100\r\n")) || !bytes.HasSuffix(b, []byte("data: [DONE]\n\n\r\n0\r\n\r\n")) || bytes.Contains(b, []byte("Connection: close")) {
			t.Errorf("%v, %s", err, b)
		}
	})
	t.Run("error closes", func(t *testing.T) {
		t.Parallel()
		p, _ := overTLS(t, fast())
		b, err := io.ReadAll(rawConn(t, p, post("{")))
		if err != nil || !bytes.Contains(b, []byte("Connection: close\r\n")) {
			t.Errorf("%v, %s", err, b)
		}
	})
	t.Run("100 requests and 5 s", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			_, l := serveRecorded(t, Config{Profile: quick()})
			conn, err := l.DialContext(t.Context(), "", "")
			if err != nil {
				t.Fatal(err)
			}
			r := bufio.NewReader(conn)
			for i := 1; i <= 100; i++ {
				if _, err := io.WriteString(conn, get); err != nil {
					t.Fatal(err)
				}
				resp, err := http.ReadResponse(r, nil)
				if err != nil {
					t.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				if resp.Close != (i == 100) {
					t.Fatalf("request %d: close %t", i, resp.Close)
				}
			}
			if _, err := r.ReadByte(); err != io.EOF {
				t.Errorf("after 100 requests: %v, want EOF", err)
			}
			if conn, err = l.DialContext(t.Context(), "", ""); err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(conn, get); err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			if _, err := io.Copy(io.Discard, conn); err != nil || !near(time.Since(start), 5*time.Second) {
				t.Errorf("idle connection: %v after %v, want closed after 5 s", err, time.Since(start))
			}
		})
	})
}

func TestBodies(t *testing.T) {
	t.Parallel()
	_, c := overTLS(t, fast())
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, c.url+chat, strings.NewReader(say))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Encoding", "gzip")
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusUnsupportedMediaType {
		t.Errorf("gzip body: %d, want 415", resp.StatusCode)
	}
	if code, b := c.whole(t, chat, "{\"messages\":\"\xff\"}"); code != 500 || !strings.Contains(string(b), "ill-formed UTF-8") {
		t.Errorf("bad UTF-8: %d %s", code, b)
	}
	req, err = http.NewRequestWithContext(t.Context(), http.MethodPost, c.url+chat, io.MultiReader(strings.NewReader(say))) // no length: chunked
	if err != nil {
		t.Fatal(err)
	}
	if resp, err = c.Do(req); err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if events, err := readStream(time.Now(), resp.Body); err != nil || !done(events) {
		t.Errorf("chunked request body: %v", err)
	}
}

func TestStatsKeepTheLastRequest(t *testing.T) {
	t.Parallel()
	p, c := overTLS(t, fast())
	if _, err := c.keyed("secret").stream(t, chat, say); err != nil {
		t.Fatal(err)
	}
	s := p.Stats()
	if s.LastHeader.Get("Authorization") != "Bearer secret" || string(s.LastBody) != say {
		t.Errorf("last header %v, body %s", s.LastHeader, s.LastBody)
	}
	if s.Requests != 1 || s.Completed != 1 {
		t.Errorf("stats = %+v", s)
	}
}

func TestHandlerUnderAForeignServer(t *testing.T) {
	t.Parallel()
	p, err := New(fast())
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(p.Handler())
	t.Cleanup(server.Close)
	c := client{server.Client(), server.URL}
	events, err := c.stream(t, chat, say)
	if err != nil || texts(events) != Answer(chat, []byte(say)) || !done(events) {
		t.Errorf("%v, %q", err, texts(events))
	}
	setFault(t, p, Fault{Kind: ResetStream, After: 2})
	if _, err := c.stream(t, chat, say); err == nil {
		t.Error("reset-stream: the stream ended properly")
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if resp, err := c.get(t.Context(), "/health"); err == nil {
		resp.Body.Close()
		t.Error("a closed phone answers")
	}
}

func TestControl(t *testing.T) {
	t.Parallel()
	p, c := overTLS(t, fast())
	server := httptest.NewServer(p.ControlHandler())
	t.Cleanup(server.Close)
	do := func(method, path, body string) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, server.URL+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := server.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(b)
	}
	for _, bad := range []string{``, `{"kind":"x"}`, `{"kind":"reset","oops":1}`} {
		if code, _ := do("POST", "/fault", bad); code != http.StatusBadRequest {
			t.Errorf("fault %q: %d, want 400", bad, code)
		}
	}
	if code, b := do("POST", "/fault", `{"kind":"status-503","retry_after":"3"}`); code != http.StatusNoContent {
		t.Fatalf("set fault: %d %s", code, b)
	}
	if code, _ := c.whole(t, chat, say); code != http.StatusServiceUnavailable {
		t.Errorf("with the fault: %d", code)
	}
	if code, b := do("DELETE", "/fault", ""); code != http.StatusNoContent {
		t.Fatalf("clear fault: %d %s", code, b)
	}
	if code, b := do("POST", "/restart", ""); code != http.StatusNoContent {
		t.Fatalf("restart: %d %s", code, b)
	}
	healthy(t, p, c)
	var s Stats
	if code, b := do("GET", "/stats", ""); code != http.StatusOK || json.Unmarshal([]byte(b), &s) != nil || s.Requests != 2 || s.Struck != 1 {
		t.Errorf("stats: %d %s", code, b)
	}
}

func TestStartTwice(t *testing.T) {
	t.Parallel()
	p, _ := overTLS(t, fast())
	if err := p.Start("127.0.0.1:0"); err == nil {
		t.Error("started twice")
	}
	q, err := New(fast())
	if err != nil {
		t.Fatal(err)
	}
	if err := q.Restart(); err == nil {
		t.Error("restarted a phone that was never started")
	}
	if err := q.Start(strings.TrimPrefix(p.URL(), "https://")); err == nil {
		t.Error("started on a port in use")
	}
	if err := q.Close(); err != nil {
		t.Error(err)
	}
}

// TestManyPhonesLeaveNothingBehind runs a fleet under load, kills it in mid-work and looks for goroutines. It does not run in parallel
// with other tests, whose phones it would find.
func TestManyPhonesLeaveNothingBehind(t *testing.T) {
	const phones, each = 20, 5
	fleet := make([]*Phone, phones)
	profiles := Profiles()
	var wg sync.WaitGroup
	for i := range fleet {
		p, c := overTLS(t, Config{ID: itoa(i), Profile: profiles[i%len(profiles)], Speed: 20, Heat: true})
		fleet[i] = p
		for range each {
			wg.Go(func() { _, _ = c.stream(t, chat, strings.Replace(say, "12", "30", 1)) })
		}
	}
	eventually(t, "all at work", func() bool {
		for _, p := range fleet {
			if p.Stats().PeakActive == 0 {
				return false
			}
		}
		return true
	})
	for _, p := range fleet {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		if s := p.Stats(); s.Active != 0 || s.Queued != 0 || s.PeakActive > p.Config().Slots {
			t.Errorf("%s: %+v", p.Config().Profile.Name, s)
		}
	}
	wg.Wait()
	noLeaks(t)
}
