package pack

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"testing/iotest"
)

// What is filled is what came, wherever the buffers end and a file goes on, and
// zeros are holes, also at its end.
func TestFiller(t *testing.T) {
	noise := make([]byte, 4<<20)
	rand.NewChaCha8([32]byte{}).Read(noise)
	holey := slices.Clone(noise)
	clear(holey[2*bufferSize : 5*bufferSize])
	clear(holey[9*bufferSize:])
	for _, content := range [][]byte{noise, holey} {
		for _, size := range []int{0, 1, bufferSize - 1, bufferSize, bufferSize + 1, bufferSize + largeSize - 1, bufferSize + largeSize, bufferSize + largeSize + 1, len(content)} {
			for _, from := range []int{0, 1, bufferSize, size} {
				if from > size {
					continue
				}
				t.Run(fmt.Sprintf("%d from %d", size, from), func(t *testing.T) { fills(t, content[:size], from) })
			}
		}
	}
}

const xfsMagic = 0x58465342 // in statfs(2)

// fills fills a file that has the first bytes of content, and more that goes.
func fills(t *testing.T, content []byte, from int) {
	name := filepath.Join(t.TempDir(), "f")
	must(t, os.WriteFile(name, append(slices.Clone(content[:from]), "more"[:min(4, from)]...), 0o600))
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	must(t, err)
	defer f.Close()
	w := NewFiller(f)
	defer w.Release()
	must(t, w.Prefix(int64(from)))
	end, err := w.Append(int64(from), iotest.HalfReader(bytes.NewReader(content[from:])))
	if err != nil || end != int64(len(content)) || w.Sum() != sumHex(content) {
		t.Errorf("ends at %d, sum %.8s of %.8s, %v", end, w.Sum(), sumHex(content), err)
	}
	got, err := os.ReadFile(name)
	if err != nil || !bytes.Equal(got, content) {
		t.Errorf("%d bytes that are not what came, %v", len(got), err)
	}
	var zeros int64
	for part := range slices.Chunk(content[from:], bufferSize) {
		if len(part) == bufferSize && bytes.Equal(part, emptyBuffer[:]) {
			zeros += bufferSize
		}
	}
	info, err := f.Stat()
	must(t, err)
	var fs syscall.Statfs_t
	must(t, syscall.Fstatfs(int(f.Fd()), &fs))
	// XFS holds blocks ready behind the end of a file that grows, and writes zeros into them.
	if used := info.Sys().(*syscall.Stat_t).Blocks * 512; fs.Type != xfsMagic && used > info.Size()-zeros+64<<10 {
		t.Errorf("of %d bytes, %d of them in holes, %d are used", info.Size(), zeros, used)
	}
}
