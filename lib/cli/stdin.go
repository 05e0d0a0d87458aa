package cli

import (
	"bufio"
	"context"
	"errors"
	"io"
	"iter"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxID bounds a line of ids, so that a wrong file on stdin cannot fill the
// memory. An id has three names of at most 100 bytes; what follows a TAB may
// be longer.
const maxID = 1 << 20

// EachID reads ids from stdin as they arrive: the first TAB field of each line,
// skipping empty lines. The last line needs no newline. An empty stdin gives
// none; a terminal there is a usage error at once, not a wait. The sequence ends
// after the first error.
func (c *Cmd) EachID() iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if c.StdinTTY() {
			yield("", Usagef("nothing to do: give an id, a filter or a batch file, or ids on stdin"))
			return
		}
		lines := bufio.NewReader(c.Stdin)
		for n := 1; ; n++ {
			line, err := readLine(lines)
			if errors.Is(err, errLong) {
				yield("", Errorf(Input, "stdin:%d: a line of more than %d bytes is no id", n, maxID))
				return
			}
			if err != nil && err != io.EOF {
				yield("", err)
				return
			}
			if n == 1 {
				line = strings.TrimPrefix(line, "\ufeff")
			}
			if line != "" {
				id, _, _ := strings.Cut(line, "\t")
				if id == "" {
					yield("", Errorf(Input, "stdin:%d: the first field is empty, where an id should be", n))
					return
				}
				if !yield(id, nil) {
					return
				}
			}
			if err != nil {
				return
			}
		}
	}
}

// IDs is all that EachID gives, for a command that must know them all first.
func (c *Cmd) IDs() ([]string, error) {
	var ids []string
	for id, err := range c.EachID() {
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, nil
}

var errLong = errors.New("line too long")

func readLine(r *bufio.Reader) (string, error) {
	var line strings.Builder
	for {
		part, err := r.ReadSlice('\n')
		line.Write(part)
		if line.Len() > maxID {
			return "", errLong
		}
		if err != bufio.ErrBufferFull {
			return strings.TrimRight(line.String(), "\r\n"), err
		}
	}
}

// input is a standard input whose reads end when the context does.
type input struct {
	*os.File
	err  func() error
	wake *os.File // readable for ever once the context has ended
}

// newInput makes an input. The pipe it takes lives as long as the process.
func newInput(ctx context.Context, f *os.File) io.Reader {
	r, w, err := os.Pipe()
	if err != nil {
		return f
	}
	context.AfterFunc(ctx, func() { w.Close() })
	return &input{File: f, err: ctx.Err, wake: r}
}

func (in *input) Read(p []byte) (int, error) {
	fds := []unix.PollFd{
		{Fd: int32(in.Fd()), Events: unix.POLLIN},
		{Fd: int32(in.wake.Fd()), Events: unix.POLLIN},
	}
	for {
		_, err := unix.Poll(fds, -1)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil {
			return 0, os.NewSyscallError("poll", err)
		}
		if fds[1].Revents != 0 {
			return 0, in.err()
		}
		return in.File.Read(p)
	}
}

// comes says that there is something to be read, within a moment.
func (in *input) comes() bool {
	info, err := in.Stat()
	switch {
	case err != nil:
		return false
	case info.Mode().IsRegular():
		at, err := in.Seek(0, io.SeekCurrent)
		return err == nil && at < info.Size()
	case info.Mode()&(os.ModeNamedPipe|os.ModeSocket) == 0:
		return false
	}
	fds := []unix.PollFd{{Fd: int32(in.Fd()), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 100)
	return err == nil && n > 0 && fds[0].Revents&unix.POLLIN != 0
}

// WriteTo hides that of os.File, which would not end with the context.
func (in *input) WriteTo(w io.Writer) (int64, error) {
	return io.Copy(w, struct{ io.Reader }{in})
}
