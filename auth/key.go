package auth

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
)

// AnonymousID is the key id of callers without a key where that is allowed. No
// configured key may have it.
const AnonymousID = "anonymous"

// Principal is who is calling the API and what they may spend. It holds the id
// of a key, never the key.
type Principal struct {
	KeyID string
	Class string // guard, chat, review or batch

	// Zero means unlimited.
	RequestsPerMinute int
	TokensPerMinute   int
	Concurrent        int // accepted and unfinished requests, queued ones included
}

// Anonymous is the principal of callers without a key: class chat, no limits.
func Anonymous() Principal {
	return Principal{KeyID: AnonymousID, Class: "chat"}
}

// Key is a static key as configured.
type Key struct {
	Principal
	Secret string // visible ASCII without spaces, 1 to 4,096 bytes
}

// Config is what [NewKeys] builds from.
type Config struct {
	// Open lets callers without a key in as [Anonymous]. Without any keys, every
	// caller is anonymous whatever it sends: SDKs insist on sending something.
	Open bool
	Keys []Key
}

// Validate returns all faults at once. No fault holds a secret.
func (c Config) Validate() error {
	var errs []error
	if len(c.Keys) == 0 && !c.Open {
		errs = append(errs, errors.New("keys: none, and not open: nobody could call"))
	}
	ids := make(map[string]bool, len(c.Keys))
	hashes := make(map[[sha256.Size]byte]bool, len(c.Keys))
	for i, k := range c.Keys {
		switch {
		case k.KeyID == "" || k.KeyID == AnonymousID:
			errs = append(errs, fmt.Errorf("keys[%d].id: empty or reserved", i))
		case ids[k.KeyID]:
			errs = append(errs, fmt.Errorf("keys[%d].id: %q is taken", i, k.KeyID))
		}
		ids[k.KeyID] = true
		if _, err := secret(k.Secret, maxKeyBytes); err != nil {
			errs = append(errs, fmt.Errorf("keys[%d].key: %w", i, err))
			continue
		}
		hash := sha256.Sum256([]byte(k.Secret))
		if hashes[hash] {
			errs = append(errs, fmt.Errorf("keys[%d].key: another key has the same secret", i))
		}
		hashes[hash] = true
	}
	return errors.Join(errs...)
}

// Keys knows the static keys by their hashes.
type Keys struct {
	open   bool
	byHash map[[sha256.Size]byte]storedKey
}

type storedKey struct {
	hash      [sha256.Size]byte
	principal Principal
}

// NewKeys validates c and keeps the hashes of its secrets.
func NewKeys(c Config) (*Keys, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	byHash := make(map[[sha256.Size]byte]storedKey, len(c.Keys))
	for _, k := range c.Keys {
		hash := sha256.Sum256([]byte(k.Secret))
		byHash[hash] = storedKey{hash: hash, principal: k.Principal}
	}
	return &Keys{open: c.Open, byHash: byHash}, nil
}

// Authenticate returns who sent these headers. It does no I/O. Errors are those
// of [FromHeader], and [ErrInvalid] for a key that is not known.
func (k *Keys) Authenticate(h http.Header) (Principal, error) {
	if k.open && len(k.byHash) == 0 {
		return Anonymous(), nil
	}
	secret, err := FromHeader(h)
	if err != nil {
		if k.open && errors.Is(err, ErrMissing) {
			return Anonymous(), nil
		}
		return Principal{}, err
	}
	hash := sha256.Sum256([]byte(secret))
	// The lookup compares hashes, of which a caller cannot choose prefixes; the
	// comparison in constant time does not rest on that argument.
	stored, ok := k.byHash[hash]
	if !ok || subtle.ConstantTimeCompare(stored.hash[:], hash[:]) != 1 {
		return Principal{}, ErrInvalid
	}
	return stored.principal, nil
}
