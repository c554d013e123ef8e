//go:build unix

package fakephone

import (
	"net/netip"
	"os"
	"syscall"
)

// reserve binds an IPv4 port without listening on it and returns it with the number. While the file is open the port can be listened
// on and closed again, and neither an outgoing connection nor another ":0" gets it meanwhile; without it a phone that was refusing or
// dead would now and then find its port taken. A connection to a port that is only reserved is refused.
func reserve(addr netip.AddrPort) (*os.File, uint16, error) {
	syscall.ForkLock.RLock()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, 0, os.NewSyscallError("socket", err)
	}
	file := os.NewFile(uintptr(fd), "reserved port")
	if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		return nil, 0, closing(file, "setsockopt", err)
	}
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: addr.Addr().As4(), Port: int(addr.Port())}); err != nil {
		return nil, 0, closing(file, "bind", err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		return nil, 0, closing(file, "getsockname", err)
	}
	bound, ok := name.(*syscall.SockaddrInet4)
	if !ok {
		return nil, 0, closing(file, "getsockname", syscall.EAFNOSUPPORT)
	}
	return file, uint16(bound.Port), nil
}

func closing(file *os.File, call string, err error) error {
	_ = file.Close()
	return os.NewSyscallError(call, err)
}
