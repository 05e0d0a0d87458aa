package dial

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"distribute/lib/account"
	"distribute/lib/node"
)

// A Peer is who is at the other end of a stream, as far as that is proven.
type Peer struct {
	UID    int              // on this machine; -1 if no user is proven
	User   string           // its name, for the eye: what it may do goes by UID and Groups
	Named  error            // why User is a number instead, if the name cannot be looked up now
	Groups []int            // that the user is of, as the kernel has them for its process
	Proven bool             // by the kernel: the user is who it says
	Local  bool             // it is on this machine, where bytes cost less than squeezing them
	Key    node.Fingerprint // of the key that it has proven to hold, over TLS
	Node   string           // the node that it is, where the stream proves that: over ssh
	Addr   string           // where the head has started that node, if it has; over ssh
	From   string           // where the stream comes from, as [Origin] says it
}

// Tool says that the peer may be a tool of a user.
func (p Peer) Tool() bool { return p.Proven && p.Node == "" }

// As is the peer that carries the stream of a node, which its own user says.
func (p Peer) As(node string) Peer { return Peer{UID: -1, Local: p.Local, Node: node, From: p.From} }

// Proven says who is at the other end of a stream that was accepted: over a
// Unix socket the kernel tells, over TLS the peer proves its key within
// [wire.HelloWithin], and over TCP nothing does.
func Proven(c net.Conn) (Peer, error) { return ProvenAs(c, account.Name) }

// ProvenAs is Proven for who has another way to ask for users' names.
func ProvenAs(c net.Conn, name func(uid int) (string, error)) (Peer, error) {
	u, ok := c.(*net.UnixConn)
	if !ok {
		ip, err := netip.ParseAddrPort(c.RemoteAddr().String())
		p := Peer{UID: -1, Local: err == nil && ip.Addr().IsLoopback()}
		if s, ok := c.(*secure); ok {
			p.Key, err = s.prove(context.Background())
			return p, err
		}
		return p, nil
	}
	uid, groups, err := credentials(u)
	if err != nil {
		return Peer{}, err
	}
	p := Peer{UID: uid, Groups: groups, Proven: true, Local: true}
	if p.User, err = name(uid); !errors.Is(err, account.ErrUnknown) {
		p.Named = err
	}
	return p, nil
}

// credentials is the user at the other end of a Unix socket, and his groups.
func credentials(u *net.UnixConn) (uid int, groups []int, err error) {
	raw, err := u.SyscallConn()
	if err != nil {
		return 0, nil, err
	}
	var cerr error
	err = raw.Control(func(fd uintptr) {
		var creds *syscall.Ucred
		if creds, cerr = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED); cerr == nil {
			uid = int(creds.Uid)
			groups, cerr = groupsOf(int(fd), creds)
		}
	})
	if err = errors.Join(err, cerr); err != nil {
		return 0, nil, fmt.Errorf("the kernel does not say who the peer is: %w", err)
	}
	return uid, groups, nil
}

// Origin tells streams apart by where they come from, before anything is known
// of their peers: the user of this machine, or the address of another. It costs
// two system calls.
func Origin(c net.Conn) string {
	if u, ok := c.(*net.UnixConn); ok {
		uid, _, err := credentials(u)
		return fmt.Sprintf("uid %d %v", uid, err)
	}
	at := c.RemoteAddr().String()
	if ip, err := netip.ParseAddrPort(at); err == nil {
		return ip.Addr().String()
	}
	return at
}
