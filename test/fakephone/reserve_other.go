//go:build !unix

package fakephone

import (
	"errors"
	"net/netip"
	"os"
)

// reserve is not available here: a port that was closed can be taken by another program.
func reserve(netip.AddrPort) (*os.File, uint16, error) { return nil, 0, errors.ErrUnsupported }
