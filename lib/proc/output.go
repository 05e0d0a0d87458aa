package proc

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"distribute/lib/durable"
)

// An output is the pipe into which a first process and all below it print, and the file to
// which the supervisor appends that. With the file itself as standard error, a shell's
// "echo x > /dev/stderr" would open it again and truncate what was printed before.
type output struct {
	file   *os.File
	write  *os.File // end for the first process; nil after the start
	read   *os.File
	fd     int           // of read, in non-blocking mode
	over   chan struct{} // closed when the order's processes have ended
	copied chan struct{}
	size   int64 // bytes appended; like err it is read when copied is closed
	err    error // why something is not in the file
}

// openOutputs opens what the first processes of an order print into.
func openOutputs(o *Order) (outs []*output, err error) {
	for _, r := range o.ranks() {
		out, err := openOutput(r.Output, o.As)
		if err != nil {
			return outs, err
		}
		outs = append(outs, out)
	}
	return outs, nil
}

// openOutput opens the file of that name and makes a pipe. Both belong to the identity,
// unless that is nil: who does not own a pipe cannot open it as /dev/stderr.
func openOutput(name string, as *Identity) (*output, error) {
	file, err := durable.Open(name, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		file.Close()
		return nil, err
	}
	unix.SetNonblock(fds[0], true) // so that reads have deadlines
	out := &output{
		file: file, write: os.NewFile(uintptr(fds[1]), "output"),
		read: os.NewFile(uintptr(fds[0]), "output"), fd: fds[0], over: make(chan struct{}), copied: make(chan struct{}),
	}
	if as != nil {
		unix.Umask(0o022) // whatever that of dnoded is: nobody else gets into his directory
		if err := errors.Join(file.Chown(as.UID, as.GID), out.write.Chown(as.UID, as.GID)); err != nil {
			out.close()
			return nil, err
		}
	}
	return out, nil
}

// close closes all that is open.
func (out *output) close() {
	out.file.Close()
	out.read.Close()
	if out.write != nil {
		out.write.Close()
	}
}

// copyOutput appends to the file what is printed, until no process has the pipe or
// [supervisor.finishOutput] is called. If it cannot, it closes the pipe: whoever prints
// is told by SIGPIPE.
func (s *supervisor) copyOutput(o *Order, out *output) {
	defer close(out.copied)
	buf := make([]byte, 64<<10)
	for {
		n, err := out.read.Read(buf)
		if out.err = s.appendOutput(o, out, buf[:n]); out.err != nil {
			out.read.Close()
			return
		}
		if err != nil {
			return
		}
	}
}

// appendOutput appends to an output. It waits while the disk is full: nobody else has
// what was printed. The room that is held back for ends is not for what still runs, which
// would fill that too. After the processes have ended it returns the error if somebody has
// stopped the order: what they have left may be what fills the disk, and stays until the
// end is told. It drops all but one byte of what is printed beyond o.Keep: that byte shows
// that the order has printed more, also to a daemon that starts later.
func (s *supervisor) appendOutput(o *Order, out *output, b []byte) error {
	if o.Keep > 0 {
		b = b[:min(int64(len(b)), max(0, o.Keep+1-out.size))]
	}
	for {
		n, err := out.file.Write(b)
		b, out.size = b[n:], out.size+int64(n)
		if !durable.NoRoom(err) {
			return err
		}
		select {
		case <-out.over:
			switch {
			case s.makeRoom(o.Dir, err):
			case s.isStopped():
				return err
			default:
				time.Sleep(time.Second)
			}
			continue
		default:
		}
		select {
		case <-out.over:
		case <-time.After(time.Second):
		}
	}
}

// finishOutput ends [supervisor.copyOutput] when the order's processes have ended. What
// they have printed is in the file then. A process elsewhere that was handed the pipe is
// not waited for.
func (s *supervisor) finishOutput(o *Order, out *output) error {
	close(out.over)
	out.read.SetReadDeadline(time.Unix(1, 0))
	<-out.copied
	if out.err != nil {
		return out.err
	}
	left, err := unix.IoctlGetInt(out.fd, unix.TIOCINQ)
	for buf := make([]byte, 64<<10); err == nil && left > 0; {
		var n int
		if n, err = unix.Read(out.fd, buf[:min(left, len(buf))]); n <= 0 {
			break
		}
		left -= n
		err = s.appendOutput(o, out, buf[:n])
	}
	return err
}
