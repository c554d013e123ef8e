package auth

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/golang-jwt/jwt/v5"
)

// JWTConfig says which tokens operators may come with.
type JWTConfig struct {
	// PublicKeyPEM is one "PUBLIC KEY" block: ECDSA on P-256 (tokens are then
	// ES256 and nothing else) or Ed25519 (EdDSA and nothing else).
	PublicKeyPEM []byte
	Audience     string        // required in every token's aud
	Issuer       string        // required as iss unless empty
	Leeway       time.Duration // for exp, nbf and iat; zero is none
}

// verifier accepts the tokens of one key.
type verifier struct {
	key    crypto.PublicKey
	parser *jwt.Parser
}

// claims are the parts of a token that are read.
type claims struct {
	jwt.RegisteredClaims
	Role string `json:"role"`
}

func newVerifier(c JWTConfig) (*verifier, error) {
	var errs []error
	key, algorithm, err := parsePublicKey(c.PublicKeyPEM)
	if err != nil {
		errs = append(errs, fmt.Errorf("public_key: %w", err))
	}
	if c.Audience == "" {
		errs = append(errs, errors.New("audience: empty, then a token made for any other service would do"))
	}
	if c.Leeway < 0 {
		errs = append(errs, errors.New("leeway: negative"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return &verifier{
		key: key,
		parser: jwt.NewParser(
			jwt.WithValidMethods([]string{algorithm}),
			jwt.WithExpirationRequired(),
			jwt.WithIssuedAt(),
			jwt.WithAudience(c.Audience),
			jwt.WithIssuer(c.Issuer), // empty: not checked
			jwt.WithLeeway(c.Leeway),
			jwt.WithStrictDecoding(),
		),
	}, nil
}

// parsePublicKey returns the key and the one algorithm it is good for. The
// algorithm comes from here and never from a token, so that no token can have
// itself checked as an HMAC over a public key, or not at all.
func parsePublicKey(text []byte) (crypto.PublicKey, string, error) {
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, "", errors.New("not PEM")
	}
	if block.Type != "PUBLIC KEY" {
		return nil, "", errors.New(`want one "PUBLIC KEY" block, as openssl pkey -pubout writes it`)
	}
	key, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return nil, "", err
	}
	switch k := key.(type) {
	case *ecdsa.PublicKey:
		if k.Curve == elliptic.P256() {
			return k, jwt.SigningMethodES256.Alg(), nil
		}
	case ed25519.PublicKey:
		return k, jwt.SigningMethodEdDSA.Alg(), nil
	}
	return nil, "", errors.New("want an ECDSA key on P-256 (ES256) or an Ed25519 key (EdDSA)")
}

// verify returns the operator a token names. Errors wrap [ErrInvalid] and say
// which check failed, without anything from the token.
func (v *verifier) verify(token string) (Operator, error) {
	var c claims
	_, err := v.parser.ParseWithClaims(token, &c, func(*jwt.Token) (any, error) {
		return v.key, nil // whatever kid, jku or x5u say
	})
	if err != nil {
		return Operator{}, invalidToken(err)
	}
	role, ok := parseRole(c.Role)
	if !ok {
		return Operator{}, fmt.Errorf("%w: unknown role", ErrInvalid)
	}
	// The subject goes into the audit log: short, and no control characters.
	const maxSubjectBytes = 128
	unprintable := func(r rune) bool { return !unicode.IsPrint(r) }
	if c.Subject == "" || len(c.Subject) > maxSubjectBytes || strings.ContainsFunc(c.Subject, unprintable) {
		return Operator{}, fmt.Errorf("%w: want a sub of 1 to %d printable bytes", ErrInvalid, maxSubjectBytes)
	}
	return Operator{Subject: c.Subject, Role: role}, nil
}

// invalidToken keeps the library's reason and drops its text, which may quote
// the token.
func invalidToken(err error) error {
	for _, reason := range []error{
		jwt.ErrTokenMalformed,
		jwt.ErrTokenSignatureInvalid,
		jwt.ErrTokenRequiredClaimMissing,
		jwt.ErrTokenInvalidAudience,
		jwt.ErrTokenInvalidIssuer,
		jwt.ErrTokenExpired,
		jwt.ErrTokenNotValidYet,
		jwt.ErrTokenUsedBeforeIssued,
	} {
		if errors.Is(err, reason) {
			return fmt.Errorf("%w: %w", ErrInvalid, reason)
		}
	}
	return ErrInvalid
}

// parseRole reads the role claim; without one an operator may only look.
func parseRole(s string) (Role, bool) {
	switch s {
	case "", RoleViewer.String():
		return RoleViewer, true
	case RoleOperator.String():
		return RoleOperator, true
	case RoleAdmin.String():
		return RoleAdmin, true
	default:
		return 0, false
	}
}

// looksLikeToken says whether a credential has the three parts of a JWT. The
// count comes before any parsing: a token of nothing but dots is no token.
func looksLikeToken(s string) bool { return strings.Count(s, ".") == 2 }
