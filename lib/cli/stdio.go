package cli

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Stdio are stdin and stdout as files of their own, whose reads and writes end
// with Close and with their deadlines, as far as they are pipes or sockets.
// Nothing else may be read or written there afterwards.
func (c *Cmd) Stdio() (in, out *os.File, err error) {
	if in, err = free(c.Stdin, "stdin"); err != nil {
		return nil, nil, err
	}
	if out, err = free(c.Stdout, "stdout"); err != nil {
		in.Close()
		return nil, nil, err
	}
	return in, out, nil
}

// free is the file of s once more, which does not block.
func free(s any, name string) (*os.File, error) {
	f, ok := s.(interface{ Fd() uintptr })
	if !ok {
		return nil, errors.New(name + " is no file")
	}
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err == nil {
		err = syscall.SetNonblock(fd, true)
	}
	if err != nil {
		return nil, os.NewSyscallError(name, err)
	}
	return os.NewFile(uintptr(fd), name), nil
}
