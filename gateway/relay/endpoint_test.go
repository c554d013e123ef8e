package relay

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/url"
	"slices"
	"strings"
	"testing"

	"phonebank/balancer"
	"phonebank/test/fakephone"
)

func TestTrustOffersWhatARelayCanRead(t *testing.T) {
	t.Parallel()
	c := Trust{}.Config("phone.example")
	if c.ServerName != "phone.example" || c.MinVersion != tls.VersionTLS12 || c.InsecureSkipVerify {
		t.Errorf("got %+v", c)
	}
	if want := []tls.CurveID{tls.X25519, tls.CurveP256}; !slices.Equal(c.CurvePreferences, want) {
		t.Errorf("got curves %v, want %v: a post-quantum share does not fit into one segment", c.CurvePreferences, want)
	}
	if len(c.NextProtos) != 0 {
		t.Errorf("got protocols %v, want none", c.NextProtos)
	}
}

func TestTrustDecidesWhoAnswers(t *testing.T) {
	t.Parallel()
	phone, err := fakephone.New(fakephone.Config{ID: "phone-1", Key: "phone-key", Speed: 100})
	if err != nil {
		t.Fatal(err)
	}
	if err := phone.Start("127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := phone.Close(); err != nil {
			t.Error(err)
		}
	})
	known := x509.NewCertPool()
	known.AppendCertsFromPEM(phone.CertPEM())
	tests := []struct {
		name  string
		trust Trust
		kind  Kind
	}{
		{"its own authority", Trust{CA: known}, Done},
		{"the system's authorities", Trust{}, Misconfigured},
		{"another authority", Trust{CA: x509.NewCertPool()}, Misconfigured},
		{"its pin", Trust{Pin: phone.PinSHA256()}, Done},
		{"its pin without padding", Trust{Pin: strings.TrimRight(phone.PinSHA256(), "=")}, Done},
		{"another pin", Trust{Pin: "sha256/AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="}, Misconfigured},
		{"anybody", Trust{Insecure: true}, Done},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			u, err := url.Parse(phone.URL())
			if err != nil {
				t.Fatal(err)
			}
			e := &Endpoint{URL: u, Key: "phone-key", Model: "qwen", Engine: balancer.LlamaCpp, Trust: tt.trust}
			transport := NewTransport(NewDirectory(map[balancer.ReplicaID]*Endpoint{"phone-1": e}), TransportConfig{})
			defer transport.CloseIdleConnections()
			res, c := attempt(t, transport, `{"model":"m","messages":[{"role":"user","content":"LENGTH=4"}],"stream":true}`, func(j *Job) { j.Endpoint = e })
			if res.Kind != tt.kind {
				t.Errorf("got %v (%v), want %v", res.Kind, res.Err, tt.kind)
			}
			if res.Kind == Misconfigured && (res.Phase != Connecting || c.text() != "") {
				t.Errorf("got phase %d and %q, want nothing sent and nothing received", res.Phase, c.text())
			}
		})
	}
}

func TestDirectory(t *testing.T) {
	t.Parallel()
	tests := []struct{ address, dialled string }{
		{"https://a.acu.run", "a.acu.run:443"},
		{"http://a.acu.run", "a.acu.run:80"},
		{"https://a.acu.run:8443/path", "a.acu.run:8443"},
		{"https://[::1]", "[::1]:443"},
	}
	for _, tt := range tests {
		t.Run(tt.address, func(t *testing.T) {
			t.Parallel()
			u, err := url.Parse(tt.address)
			if err != nil {
				t.Fatal(err)
			}
			e := &Endpoint{URL: u, Trust: Trust{Pin: "sha256/x"}}
			d := NewDirectory(map[balancer.ReplicaID]*Endpoint{"a": e})
			if got := d.trust(tt.dialled); got.Pin != e.Trust.Pin {
				t.Errorf("got %+v for %s, want the endpoint's", got, tt.dialled)
			}
			if got := d.trust("b.acu.run:443"); got.Pin != "" || got.Insecure {
				t.Errorf("got %+v for a stranger, want the system's authorities", got)
			}
			if got, ok := d.Lookup("a"); !ok || got != e {
				t.Errorf("Lookup(a) = %v, %t", got, ok)
			}
			if _, ok := d.Lookup("b"); ok {
				t.Error("Lookup(b) found something")
			}
		})
	}
}

func TestDialErrorKeepsItsCause(t *testing.T) {
	t.Parallel()
	cause := errors.New("no route")
	for _, e := range []*DialError{{Err: cause}, {Err: cause, Handshake: true}} {
		if !errors.Is(e, cause) || !strings.HasSuffix(e.Error(), "no route") {
			t.Errorf("got %q", e)
		}
	}
}

func TestTransportSpeaksOnlyHTTP1AndAsksForNoCompression(t *testing.T) {
	t.Parallel()
	transport := NewTransport(NewDirectory(nil), TransportConfig{})
	if !transport.DisableCompression || transport.Protocols.HTTP2() || !transport.Protocols.HTTP1() {
		t.Errorf("got compression off %t, protocols %v", transport.DisableCompression, transport.Protocols)
	}
}
