package auth

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
)

// Role is what an operator may do; a greater one includes the lesser. The zero
// value may do nothing.
type Role uint8

// The roles, from the least.
const (
	RoleViewer   Role = iota + 1 // reads
	RoleOperator                 // also drains, cancels, resumes
	RoleAdmin                    // also keys and replicas
)

func (r Role) String() string {
	switch r {
	case RoleViewer:
		return "viewer"
	case RoleOperator:
		return "operator"
	case RoleAdmin:
		return "admin"
	default:
		return "none"
	}
}

// Allows says whether r includes the needed role.
func (r Role) Allows(need Role) bool { return need != 0 && r >= need }

// Operator is who is calling the admin listener.
type Operator struct {
	Subject string // for the audit log: the token's sub, or "admin-key"
	Role    Role
}

// AdminConfig is what [NewAdmin] builds from. With neither a key nor a JWT
// section nobody is let in.
type AdminConfig struct {
	Key string // empty: no key is accepted
	JWT *JWTConfig
}

// Admin authenticates the operators at the admin listener. The zero value lets
// nobody in.
type Admin struct {
	hasKey  bool
	keyHash [sha256.Size]byte
	jwt     *verifier // nil: no tokens are accepted
}

// NewAdmin checks c and keeps the hash of its key.
func NewAdmin(c AdminConfig) (*Admin, error) {
	var a Admin
	var errs []error
	if c.Key != "" {
		if _, err := secret(c.Key, maxKeyBytes); err != nil {
			errs = append(errs, fmt.Errorf("key: %w", err))
		}
		a.hasKey, a.keyHash = true, sha256.Sum256([]byte(c.Key))
	}
	if c.JWT != nil {
		v, err := newVerifier(*c.JWT)
		if err != nil {
			errs = append(errs, fmt.Errorf("jwt: %w", err))
		}
		a.jwt = v
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return &a, nil
}

// Configured says whether anybody can be let in.
func (a *Admin) Configured() bool { return a.hasKey || a.jwt != nil }

// Authenticate returns who sent these headers: the admin key as Bearer, as
// x-api-key or as the password of Basic, with [RoleAdmin]; or a token as Bearer,
// with the role it claims. Tokens are at most 8 KiB and are looked at no
// further when longer.
func (a *Admin) Authenticate(h http.Header) (Operator, error) {
	password, ok, err := basicPassword(h)
	if err != nil {
		return Operator{}, err
	}
	if ok {
		return a.byKey(password)
	}
	credential, err := bearer(h, maxTokenBytes)
	if err != nil {
		return Operator{}, err
	}
	// The key first: it may have dots too.
	operator, err := a.byKey(credential)
	if err != nil && a.jwt != nil && looksLikeToken(credential) {
		return a.jwt.verify(credential)
	}
	return operator, err
}

func (a *Admin) byKey(key string) (Operator, error) {
	hash := sha256.Sum256([]byte(key))
	// Without a configured key keyHash is all zeros, which nobody can produce,
	// and hasKey refuses even that.
	if subtle.ConstantTimeCompare(hash[:], a.keyHash[:]) != 1 || !a.hasKey {
		return Operator{}, ErrInvalid
	}
	return Operator{Subject: "admin-key", Role: RoleAdmin}, nil
}
