package auth

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// What may be wrong with credentials. The more precise errors wrap one of
// ErrMissing and ErrMalformed. All of them are the caller's: 401.
var (
	ErrMissing   = errors.New("no credentials")
	ErrMalformed = errors.New("malformed credentials")
	ErrInvalid   = errors.New("unknown or expired credentials")

	// ErrEmpty is a credential header with nothing in it.
	ErrEmpty = fmt.Errorf("%w: empty", ErrMissing)
	// ErrDuplicate is a credential header sent more than once.
	ErrDuplicate = fmt.Errorf("%w: sent more than once", ErrMalformed)
	// ErrConflict is two headers that name different keys.
	ErrConflict = fmt.Errorf("%w: Authorization and x-api-key differ", ErrMalformed)
	// ErrTooLong is a credential beyond the size that is looked at.
	ErrTooLong = fmt.Errorf("%w: too long", ErrMalformed)
	// ErrScheme is an Authorization header of another scheme than Bearer.
	ErrScheme = fmt.Errorf("%w: want the scheme Bearer", ErrMalformed)
)

const (
	maxKeyBytes   = 4 << 10
	maxTokenBytes = 8 << 10
)

// FromHeader returns the API key a request carries, as "Authorization: Bearer
// KEY" (scheme in any case) or "x-api-key: KEY". Both may be sent if they agree.
// The key is visible ASCII without spaces, at most 4 KiB.
func FromHeader(h http.Header) (string, error) {
	return bearer(h, maxKeyBytes)
}

func bearer(h http.Header, maxBytes int) (string, error) {
	authorization, hasAuthorization, err := single(h, "Authorization", maxBytes)
	if err != nil {
		return "", err
	}
	apiKey, hasAPIKey, err := single(h, "X-Api-Key", maxBytes)
	if err != nil {
		return "", err
	}
	if hasAPIKey {
		if apiKey, err = secret(apiKey, maxBytes); err != nil {
			return "", err
		}
	}
	if !hasAuthorization {
		if !hasAPIKey {
			return "", ErrMissing
		}
		return apiKey, nil
	}
	scheme, rest, _ := strings.Cut(authorization, " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return "", ErrScheme
	}
	key, err := secret(strings.Trim(rest, " "), maxBytes)
	if err != nil {
		return "", err
	}
	// Both come from the same caller, so how long this takes tells nothing.
	if hasAPIKey && apiKey != key {
		return "", ErrConflict
	}
	return key, nil
}

// basicPassword returns the password of "Authorization: Basic", which is how a
// browser sends a key. The user name says nothing and is ignored. False means
// that the header is absent or of another scheme.
func basicPassword(h http.Header) (string, bool, error) {
	authorization, ok, err := single(h, "Authorization", maxTokenBytes)
	if err != nil || !ok {
		return "", false, err
	}
	scheme, rest, _ := strings.Cut(authorization, " ")
	if !strings.EqualFold(scheme, "Basic") {
		return "", false, nil
	}
	if h.Get("X-Api-Key") != "" {
		return "", false, ErrConflict
	}
	plain, err := base64.StdEncoding.DecodeString(strings.Trim(rest, " "))
	if err != nil {
		return "", false, ErrMalformed // the cause would quote the credential
	}
	_, password, ok := strings.Cut(string(plain), ":")
	if !ok {
		return "", false, ErrMalformed
	}
	password, err = secret(password, maxKeyBytes)
	return password, err == nil, err
}

// single returns the one value of a header, without spaces around it.
func single(h http.Header, name string, maxBytes int) (string, bool, error) {
	values := h.Values(name)
	if len(values) == 0 {
		return "", false, nil
	}
	if len(values) > 1 {
		return "", false, ErrDuplicate
	}
	// Room for the scheme; whatever is larger is not worth a scan.
	if len(values[0]) > maxBytes+64 {
		return "", false, ErrTooLong
	}
	value := strings.Trim(values[0], " \t")
	if value == "" {
		return "", false, ErrEmpty
	}
	return value, true, nil
}

func secret(s string, maxBytes int) (string, error) {
	switch {
	case s == "":
		return "", ErrEmpty
	case len(s) > maxBytes:
		return "", ErrTooLong
	case !visibleASCII(s):
		return "", ErrMalformed
	}
	return s, nil
}

func visibleASCII(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}
