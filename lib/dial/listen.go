package dial

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"syscall"
)

// listenTCP listens on host:port, also where no address of this machine is that
// yet, as at a start without a network: it is heard from when it is.
func listenTCP(hostport string) (net.Listener, error) {
	l, err := net.Listen("tcp", hostport)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("something listens there already, which ss -ltnp shows (%w)", bare(err))
	case !errors.Is(err, syscall.EADDRNOTAVAIL):
		return l, err
	}
	free := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var set error
		err := c.Control(func(fd uintptr) {
			set = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_IP, syscall.IP_FREEBIND, 1)
		})
		return errors.Join(err, set)
	}}
	return free.Listen(context.Background(), "tcp", hostport)
}

// Absent says that no interface of this machine has the address of a listener
// now, so that nobody can reach it there.
func Absent(addr net.Addr) bool {
	if over, ok := addr.(tlsAddr); ok {
		addr = over.Addr
	}
	tcp, ok := addr.(*net.TCPAddr)
	if !ok || tcp.IP.IsUnspecified() || tcp.IP.IsLoopback() {
		return false
	}
	all, err := net.InterfaceAddrs()
	return err == nil && !slices.ContainsFunc(all, func(a net.Addr) bool {
		n, ok := a.(*net.IPNet)
		return ok && n.IP.Equal(tcp.IP)
	})
}
