package testscripts

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// mainFuse is the command "fuse [-hang] DIR [FILE]": it mounts on DIR a file
// system of its own, which holds nothing but a copy of FILE, and serves it until
// it is killed. With -hang the content of FILE never comes, and who reads it waits
// in the kernel, where no signal reaches him as soon as it says that he hangs. It speaks as much of the kernel's
// protocol as one directory needs.
func mainFuse() {
	s := fuseServer{}
	if s.hang = len(os.Args) > 1 && os.Args[1] == "-hang"; s.hang {
		os.Args = os.Args[1:]
	}
	if len(os.Args) < 2 || len(os.Args) > 3 {
		misuse("fuse [-hang] DIR [FILE]")
	}
	if len(os.Args) == 3 {
		var err error
		if s.text, err = os.ReadFile(os.Args[2]); err != nil {
			fail("fuse: %v", err)
		}
		s.name = filepath.Base(os.Args[2])
	}
	dev, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		fail("fuse: /dev/fuse: %v", err)
	}
	opts := "fd=" + strconv.Itoa(dev) + ",rootmode=40000,user_id=0,group_id=0"
	if err := unix.Mount("test", os.Args[1], "fuse", 0, opts); err != nil {
		fail("fuse: mount: %v", err)
	}
	in := make([]byte, 256<<10)
	for {
		n, err := unix.Read(dev, in)
		if err == unix.EINTR || err == unix.EAGAIN {
			continue
		}
		if err != nil || n < fuseHeader {
			return // unmounted
		}
		if out := s.answer(in[:n]); out != nil {
			unix.Write(dev, out)
		}
	}
}

const fuseHeader = 40 // bytes of the header of a request

// The requests that are answered, by the numbers of linux/fuse.h.
const (
	fuseLookup      = 1
	fuseForget      = 2
	fuseGetattr     = 3
	fuseOpen        = 14
	fuseRead        = 15
	fuseStatfs      = 17
	fuseRelease     = 18
	fuseInit        = 26
	fuseOpendir     = 27
	fuseReaddir     = 28
	fuseReleasedir  = 29
	fuseBatchForget = 42
)

// A fuseServer is a directory, node 1, with at most one file, node 2.
type fuseServer struct {
	name string
	text []byte
	hang bool
}

// answer is the reply to a request, nil if there is none.
func (s *fuseServer) answer(in []byte) []byte {
	le := binary.LittleEndian
	op, id, node := le.Uint32(in[4:]), le.Uint64(in[8:]), le.Uint64(in[16:])
	body := in[fuseHeader:]
	var errno unix.Errno
	var out []byte
	switch op {
	case fuseForget, fuseBatchForget:
		return nil
	case fuseInit:
		out = numbers32(7, 31, 0, 0, 0, 4096, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0)
	case fuseLookup:
		if s.name == "" || string(bytes.TrimRight(body, "\x00")) != s.name {
			errno = unix.ENOENT
			break
		}
		out = append(numbers32(2, 0, 0, 0, 0, 0, 0, 0, 0, 0), s.attr(2)...)
	case fuseGetattr:
		out = append(numbers32(0, 0, 0, 0), s.attr(node)...)
	case fuseOpen, fuseOpendir:
		out = numbers32(0, 0, 0, 0)
		if s.hang && op == fuseOpen {
			out[8] = 1 // direct: a read is one request, and who waits for it is not killed
		}
	case fuseRead:
		if s.hang {
			fmt.Println("who reads hangs")
			return nil
		}
		from := min(le.Uint64(body[8:]), uint64(len(s.text)))
		to := min(from+uint64(le.Uint32(body[16:])), uint64(len(s.text)))
		out = s.text[from:to]
	case fuseStatfs:
		out = numbers32(1000, 0, 1000, 0, 1000, 0, 1000, 0, 1000, 0, 4096, 255, 4096, 0, 0, 0, 0, 0, 0, 0)
	case fuseReaddir, fuseRelease, fuseReleasedir:
	default:
		errno = unix.ENOSYS
	}
	head := numbers32(uint32(16+len(out)), uint32(-int32(errno)), uint32(id), uint32(id>>32))
	return append(head, out...)
}

// attr is the attributes of a node.
func (s *fuseServer) attr(node uint64) []byte {
	mode, size := uint32(unix.S_IFDIR|0o755), uint32(0)
	if node == 2 {
		mode, size = unix.S_IFREG|0o644, uint32(len(s.text))
	}
	return numbers32(uint32(node), 0, size, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)
}

func numbers32(all ...uint32) (out []byte) {
	for _, n := range all {
		out = binary.LittleEndian.AppendUint32(out, n)
	}
	return out
}
