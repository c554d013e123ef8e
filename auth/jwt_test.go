package auth

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

func publicPEM(t *testing.T, key crypto.PublicKey) []byte {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
}

func newECDSA(t *testing.T, curve elliptic.Curve) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func newAdmin(t *testing.T, key crypto.PublicKey) *Admin {
	t.Helper()
	a, err := NewAdmin(AdminConfig{Key: testKey, JWT: &JWTConfig{
		PublicKeyPEM: publicPEM(t, key), Audience: "phonebank", Issuer: "ops", Leeway: 5 * time.Second,
	}})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// fields are the claims of a token that would be accepted, for tests to spoil.
func fields() jwt.MapClaims {
	now := time.Now()
	return jwt.MapClaims{
		"sub": "jo@example.org", "aud": "phonebank", "iss": "ops", "role": "operator",
		"iat": now.Unix(), "nbf": now.Unix(), "exp": now.Add(time.Minute).Unix(),
	}
}

func sign(t *testing.T, method jwt.SigningMethod, key any, header map[string]string, claims jwt.Claims) string {
	t.Helper()
	token := jwt.NewWithClaims(method, claims)
	for k, v := range header {
		token.Header[k] = v
	}
	s, err := token.SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestTokenClaims(t *testing.T) {
	t.Parallel()
	key := newECDSA(t, elliptic.P256())
	admin := newAdmin(t, key.Public())
	at := func(d time.Duration) int64 { return time.Now().Add(d).Unix() }
	const absent = "absent"
	tests := []struct {
		name    string
		claim   string
		value   any
		want    Role
		wantErr error
	}{
		{name: "operator", claim: "role", value: "operator", want: RoleOperator},
		{name: "admin", claim: "role", value: "admin", want: RoleAdmin},
		{name: "viewer", claim: "role", value: "viewer", want: RoleViewer},
		{name: "no role may look", claim: "role", value: absent, want: RoleViewer},
		{name: "unknown role", claim: "role", value: "root", wantErr: ErrInvalid},
		{name: "role of another type", claim: "role", value: []string{"admin"}, wantErr: ErrInvalid},

		{name: "audience among others", claim: "aud", value: []string{"other", "phonebank"}, want: RoleOperator},
		{name: "no audience", claim: "aud", value: absent, wantErr: jwt.ErrTokenRequiredClaimMissing},
		{name: "audience list empty", claim: "aud", value: []string{}, wantErr: jwt.ErrTokenRequiredClaimMissing},
		{name: "audience of nothing", claim: "aud", value: []string{""}, wantErr: jwt.ErrTokenRequiredClaimMissing},
		{name: "other audience", claim: "aud", value: "phonebank2", wantErr: jwt.ErrTokenInvalidAudience},
		{name: "audience of another type", claim: "aud", value: 7, wantErr: ErrInvalid},
		{name: "audience with another type in it", claim: "aud", value: []any{"phonebank", 7}, wantErr: ErrInvalid},

		{name: "no expiry", claim: "exp", value: absent, wantErr: jwt.ErrTokenRequiredClaimMissing},
		{name: "expiry null", claim: "exp", value: nil, wantErr: jwt.ErrTokenRequiredClaimMissing},
		{name: "expired", claim: "exp", value: at(-time.Minute), wantErr: jwt.ErrTokenExpired},
		{name: "expired within leeway", claim: "exp", value: at(-2 * time.Second), want: RoleOperator},
		{name: "expiry of another type", claim: "exp", value: "never", wantErr: ErrInvalid},
		{name: "not yet valid", claim: "nbf", value: at(time.Minute), wantErr: jwt.ErrTokenNotValidYet},
		{name: "issued in the future", claim: "iat", value: at(time.Minute), wantErr: jwt.ErrTokenUsedBeforeIssued},

		{name: "no issuer", claim: "iss", value: absent, wantErr: jwt.ErrTokenRequiredClaimMissing},
		{name: "other issuer", claim: "iss", value: "evil", wantErr: jwt.ErrTokenInvalidIssuer},

		{name: "no subject", claim: "sub", value: absent, wantErr: ErrInvalid},
		{name: "subject that would break a log line", claim: "sub", value: "jo\nlevel=error", wantErr: ErrInvalid},
		{name: "subject too long", claim: "sub", value: strings.Repeat("j", 129), wantErr: ErrInvalid},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := fields()
			c[tt.claim] = tt.value
			if tt.value == absent {
				delete(c, tt.claim)
			}
			token := sign(t, jwt.SigningMethodES256, key, nil, c)
			got, err := admin.Authenticate(bearerHeader(token))
			if !errors.Is(err, tt.wantErr) || (tt.wantErr != nil && !errors.Is(err, ErrInvalid)) {
				t.Fatalf("got error %v, want %v", err, tt.wantErr)
			}
			if got.Role != tt.want {
				t.Errorf("got role %v, want %v", got.Role, tt.want)
			}
		})
	}
}

// Nothing in a token's header chooses the key or the algorithm.
func TestTokenForgeries(t *testing.T) {
	t.Parallel()
	key, other := newECDSA(t, elliptic.P256()), newECDSA(t, elliptic.P256())
	publicText := publicPEM(t, key.Public())
	_, edwards, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	admin := newAdmin(t, key.Public())
	good := sign(t, jwt.SigningMethodES256, key, nil, fields())
	head, payload, _ := strings.Cut(good, ".")
	payload, signature, _ := strings.Cut(payload, ".")

	tests := []struct{ name, token string }{
		{"alg none", sign(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, nil, fields())},
		{"alg None", unsigned(t, "None")},
		{"alg missing", unsigned(t, "")},
		{"HS256 with the public key", hmacToken(t, publicText)},
		{"HS256 with the key's DER", hmacToken(t, derOf(publicText))},
		{"EdDSA for an ECDSA key", sign(t, jwt.SigningMethodEdDSA, edwards, nil, fields())},
		{"another key", sign(t, jwt.SigningMethodES256, other, nil, fields())},
		{"another key, kid a path", sign(t, jwt.SigningMethodES256, other, map[string]string{"kid": "../../dev/null"}, fields())},
		{"another key, kid SQL", sign(t, jwt.SigningMethodES256, other, map[string]string{"kid": "' OR 1=1 --"}, fields())},
		{"another key, jku", sign(t, jwt.SigningMethodES256, other, map[string]string{"jku": "https://evil.example/jwks"}, fields())},
		{"another key, x5u", sign(t, jwt.SigningMethodES256, other, map[string]string{"x5u": "https://evil.example/crt"}, fields())},
		{"no signature", head + "." + payload + "."},
		{"signature of zeros", head + "." + payload + "." + base64.RawURLEncoding.EncodeToString(make([]byte, 64))},
		{"payload changed", head + "." + strings.Replace(payload, payload[:4], "eyJ4", 1) + "x." + signature},
		{"padded", head + "." + payload + "." + signature + "=="},
		{"dots", strings.Repeat(".", 8000)},
		{"two dots", ".."},
		{"four parts", good + ".x"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := admin.Authenticate(bearerHeader(tt.token))
			if !errors.Is(err, ErrInvalid) {
				t.Fatalf("got %+v, %v; want %v", got, err, ErrInvalid)
			}
			if strings.Contains(err.Error(), tt.token) {
				t.Errorf("got the token in %q", err)
			}
		})
	}

	t.Run("a kid does not hurt a good token", func(t *testing.T) {
		t.Parallel()
		token := sign(t, jwt.SigningMethodES256, key, map[string]string{"kid": "../../dev/null"}, fields())
		if _, err := admin.Authenticate(bearerHeader(token)); err != nil {
			t.Errorf("got %v, want it accepted", err)
		}
	})
}

// A token of dots alone used to cost memory before anything was checked
// (CVE-2025-30204). Not parallel: it counts allocations.
func TestMegabyteOfDotsIsNotLookedAt(t *testing.T) {
	admin := newAdmin(t, newECDSA(t, elliptic.P256()).Public())
	h := bearerHeader(strings.Repeat(".", 900_000))
	allocated := testing.AllocsPerRun(10, func() {
		if _, err := admin.Authenticate(h); !errors.Is(err, ErrTooLong) {
			t.Errorf("got %v, want %v", err, ErrTooLong)
		}
	})
	if allocated > 0 {
		t.Errorf("got %v allocations, want none", allocated)
	}
}

func TestEdDSA(t *testing.T) {
	t.Parallel()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	admin := newAdmin(t, public)
	if _, err := admin.Authenticate(bearerHeader(sign(t, jwt.SigningMethodEdDSA, private, nil, fields()))); err != nil {
		t.Errorf("got %v for an EdDSA token, want it accepted", err)
	}
	es := sign(t, jwt.SigningMethodES256, newECDSA(t, elliptic.P256()), nil, fields())
	if _, err := admin.Authenticate(bearerHeader(es)); !errors.Is(err, ErrInvalid) {
		t.Errorf("got %v for an ES256 token, want %v", err, ErrInvalid)
	}
	if op, err := admin.Authenticate(bearerHeader(testKey)); err != nil || op.Role != RoleAdmin {
		t.Errorf("got %+v, %v for the key beside tokens, want admin", op, err)
	}
}

func TestNewAdminRefuses(t *testing.T) {
	t.Parallel()
	p256 := newECDSA(t, elliptic.P256())
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(p256)
	if err != nil {
		t.Fatal(err)
	}
	private := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	good := publicPEM(t, p256.Public())
	tests := []struct {
		name   string
		config AdminConfig
	}{
		{"key with a space", AdminConfig{Key: "a b"}},
		{"no PEM", AdminConfig{JWT: &JWTConfig{PublicKeyPEM: []byte("key"), Audience: "a"}}},
		{"nothing", AdminConfig{JWT: &JWTConfig{Audience: "a"}}},
		{"private key", AdminConfig{JWT: &JWTConfig{PublicKeyPEM: private, Audience: "a"}}},
		{"RSA", AdminConfig{JWT: &JWTConfig{PublicKeyPEM: publicPEM(t, rsaKey.Public()), Audience: "a"}}},
		{"P-384", AdminConfig{JWT: &JWTConfig{PublicKeyPEM: publicPEM(t, newECDSA(t, elliptic.P384()).Public()), Audience: "a"}}},
		{"no audience", AdminConfig{JWT: &JWTConfig{PublicKeyPEM: good}}},
		{"negative leeway", AdminConfig{JWT: &JWTConfig{PublicKeyPEM: good, Audience: "a", Leeway: -1}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if a, err := NewAdmin(tt.config); err == nil {
				t.Errorf("got %+v, want an error", a)
			}
		})
	}
}

func part(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

func unsigned(t *testing.T, algorithm string) string {
	t.Helper()
	header := map[string]string{"typ": "JWT"}
	if algorithm != "" {
		header["alg"] = algorithm
	}
	return part(t, header) + "." + part(t, fields()) + "."
}

func hmacToken(t *testing.T, key []byte) string {
	t.Helper()
	text := part(t, map[string]string{"typ": "JWT", "alg": "HS256"}) + "." + part(t, fields())
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(text))
	return text + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

func derOf(text []byte) []byte {
	block, _ := pem.Decode(text)
	return block.Bytes
}
