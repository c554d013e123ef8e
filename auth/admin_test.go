package auth

import (
	"encoding/base64"
	"errors"
	"net/http"
	"testing"
)

func basicHeader(user, password string) http.Header {
	return http.Header{"Authorization": {"Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))}}
}

func TestAdminKey(t *testing.T) {
	t.Parallel()
	const dotted = "admin.key.with-dots"
	tests := []struct {
		name    string
		key     string
		header  http.Header
		wantErr error
	}{
		{name: "bearer", key: testKey, header: bearerHeader(testKey)},
		{name: "x-api-key", key: testKey, header: http.Header{"X-Api-Key": {testKey}}},
		{name: "basic, any user", key: testKey, header: basicHeader("ops", testKey)},
		{name: "basic, no user", key: testKey, header: basicHeader("", testKey)},
		{name: "basic, wrong password", key: testKey, header: basicHeader("ops", "wrong"), wantErr: ErrInvalid},
		{name: "basic, empty password", key: testKey, header: basicHeader("ops", ""), wantErr: ErrEmpty},
		{name: "basic, not base64", key: testKey, header: http.Header{"Authorization": {"Basic %%%"}}, wantErr: ErrMalformed},
		{name: "basic, no colon", key: testKey, header: http.Header{"Authorization": {"Basic YQ=="}}, wantErr: ErrMalformed},
		{name: "basic and x-api-key", key: testKey, header: http.Header{"Authorization": basicHeader("", testKey)["Authorization"], "X-Api-Key": {testKey}}, wantErr: ErrConflict},
		{name: "wrong", key: testKey, header: bearerHeader("wrong"), wantErr: ErrInvalid},
		{name: "none", key: testKey, header: http.Header{}, wantErr: ErrMissing},
		{name: "key that looks like a token", key: dotted, header: bearerHeader(dotted)},
		{name: "no key configured", header: bearerHeader(testKey), wantErr: ErrInvalid},
		{name: "no key configured, empty bearer", header: bearerHeader(""), wantErr: ErrMissing},
		{name: "no key configured, empty password", header: basicHeader("", ""), wantErr: ErrMissing},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			a, err := NewAdmin(AdminConfig{Key: tt.key})
			if err != nil {
				t.Fatal(err)
			}
			if got, want := a.Configured(), tt.key != ""; got != want {
				t.Errorf("configured: got %t, want %t", got, want)
			}
			got, err := a.Authenticate(tt.header)
			if !errors.Is(err, tt.wantErr) {
				t.Fatalf("got error %v, want %v", err, tt.wantErr)
			}
			want := Operator{}
			if tt.wantErr == nil {
				want = Operator{Subject: "admin-key", Role: RoleAdmin}
			}
			if got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
		})
	}
}

func TestZeroAdminLetsNobodyIn(t *testing.T) {
	t.Parallel()
	var a Admin
	for _, h := range []http.Header{{}, bearerHeader("x"), bearerHeader(""), basicHeader("a", "b")} {
		if got, err := a.Authenticate(h); err == nil {
			t.Errorf("got %+v for %v, want an error", got, h)
		}
	}
}

func TestRoleAllows(t *testing.T) {
	t.Parallel()
	roles := []Role{0, RoleViewer, RoleOperator, RoleAdmin}
	for i, has := range roles {
		for j, need := range roles {
			// A need of no role at all is a mistake of the route, not an open door.
			if got, want := has.Allows(need), j > 0 && i >= j; got != want {
				t.Errorf("%v allows %v: got %t, want %t", has, need, got, want)
			}
		}
	}
}
