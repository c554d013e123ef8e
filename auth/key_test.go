package auth

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
)

func bearerHeader(key string) http.Header {
	return http.Header{"Authorization": {"Bearer " + key}}
}

func shopKey() Key {
	return Key{
		Principal: Principal{KeyID: "shop", Class: "review", RequestsPerMinute: 600, TokensPerMinute: 200_000, Concurrent: 2000},
		Secret:    testKey,
	}
}

func TestAuthenticate(t *testing.T) {
	t.Parallel()
	shop := shopKey()
	closed := Config{Keys: []Key{shop, {Principal: Principal{KeyID: "desk", Class: "chat"}, Secret: "other"}}}
	open, empty := closed, Config{Open: true}
	open.Open = true
	tests := []struct {
		name    string
		config  Config
		header  http.Header
		want    Principal
		wantErr error
	}{
		{name: "known", config: closed, header: bearerHeader(testKey), want: shop.Principal},
		{name: "unknown", config: closed, header: bearerHeader(testKey + "x"), wantErr: ErrInvalid},
		{name: "prefix", config: closed, header: bearerHeader(testKey[:10]), wantErr: ErrInvalid},
		{name: "other case", config: closed, header: bearerHeader(strings.ToUpper(testKey)), wantErr: ErrInvalid},
		{name: "key id is no key", config: closed, header: bearerHeader("shop"), wantErr: ErrInvalid},
		{name: "none", config: closed, header: http.Header{}, wantErr: ErrMissing},
		{name: "empty bearer", config: closed, header: bearerHeader(""), wantErr: ErrMissing},
		{name: "open, none", config: open, header: http.Header{}, want: Anonymous()},
		{name: "open, known", config: open, header: bearerHeader(testKey), want: shop.Principal},
		{name: "open, unknown: a typo is not turned into somebody else", config: open, header: bearerHeader("typo"), wantErr: ErrInvalid},
		{name: "open without keys, whatever the SDK sends", config: empty, header: bearerHeader("unused"), want: Anonymous()},
		{name: "open without keys, basic", config: empty, header: http.Header{"Authorization": {"Basic YTpi"}}, want: Anonymous()},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			keys, err := NewKeys(tt.config)
			if err != nil {
				t.Fatal(err)
			}
			got, err := keys.Authenticate(tt.header)
			if !errors.Is(err, tt.wantErr) {
				t.Fatalf("got error %v, want %v", err, tt.wantErr)
			}
			if got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

func TestConfigValidate(t *testing.T) {
	t.Parallel()
	key := func(id, secret string) Key { return Key{Principal: Principal{KeyID: id}, Secret: secret} }
	tests := []struct {
		name   string
		config Config
		want   string
	}{
		{"no keys", Config{}, "keys: none"},
		{"no id", Config{Keys: []Key{key("", testKey)}}, "keys[0].id"},
		{"reserved id", Config{Keys: []Key{key(AnonymousID, testKey)}}, "keys[0].id"},
		{"id twice", Config{Keys: []Key{key("a", "1"), key("a", "2")}}, "keys[1].id"},
		{"empty secret", Config{Keys: []Key{key("a", "")}}, "keys[0].key: no credentials: empty"},
		{"secret that cannot be sent", Config{Keys: []Key{key("a", "with space")}}, "keys[0].key: malformed"},
		{"secret twice", Config{Keys: []Key{key("a", testKey), key("b", testKey)}}, "keys[1].key"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			keys, err := NewKeys(tt.config)
			if err == nil || keys != nil {
				t.Fatalf("got %v, %v; want an error alone", keys, err)
			}
			if !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), testKey) {
				t.Errorf("got %q, want it to contain %q and no secret", err, tt.want)
			}
		})
	}
}

// What is kept of a secret is its hash: nothing that is printed holds either.
func TestKeysShowNoSecret(t *testing.T) {
	t.Parallel()
	keys, err := NewKeys(Config{Keys: []Key{shopKey()}})
	if err != nil {
		t.Fatal(err)
	}
	p, err := keys.Authenticate(bearerHeader(testKey))
	if err != nil {
		t.Fatal(err)
	}
	_, unknown := keys.Authenticate(bearerHeader("sk-unknown-secret-value"))
	for _, text := range []string{fmt.Sprintf("%+v", keys), fmt.Sprintf("%+v", p), unknown.Error()} {
		if strings.Contains(text, testKey) || strings.Contains(text, "unknown-secret") {
			t.Errorf("got a secret in %q", text)
		}
	}
}

func TestAuthenticateConcurrently(t *testing.T) {
	t.Parallel()
	keys, err := NewKeys(Config{Keys: []Key{shopKey()}})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				if _, err := keys.Authenticate(bearerHeader(testKey)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

func BenchmarkAuthenticate(b *testing.B) {
	keys, err := NewKeys(Config{Keys: []Key{shopKey()}})
	if err != nil {
		b.Fatal(err)
	}
	h := bearerHeader(testKey)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := keys.Authenticate(h); err != nil {
			b.Fatal(err)
		}
	}
}
