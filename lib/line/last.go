package line

import (
	"bytes"
	"io"
	"os"
)

// lastBytes is how far back the last lines of a file are looked for.
const lastBytes = 64 << 10

// Last is the byte at which the last n lines of f begin, of which the last one
// need not have an end. Of lines that are together longer than 64 KiB it is
// where those bytes begin.
func Last(f *os.File, n int) (int64, error) {
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return 0, err
	}
	at := max(size-lastBytes, 0)
	b, err := io.ReadAll(io.NewSectionReader(f, at, size-at))
	if err != nil {
		return 0, err
	}
	i := len(bytes.TrimSuffix(b, []byte("\n")))
	for ; n > 0 && i >= 0; n-- {
		i = bytes.LastIndexByte(b[:i], '\n')
	}
	return at + int64(i) + 1, nil
}
