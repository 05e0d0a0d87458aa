package line

import (
	"bytes"
	"io"
	"os"
)

// lastStep is how many bytes are read at once.
const lastStep = 64 << 10

// Last is the byte at which the last n lines of f begin, of which the last one
// need not have an end. It reads as much of f as is behind that.
func Last(f *os.File, n int) (int64, error) {
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return 0, err
	}
	buf := make([]byte, min(size, lastStep))
	for end := size; end > 0; {
		at := max(end-lastStep, 0)
		got, err := f.ReadAt(buf[:end-at], at)
		if err != nil && err != io.EOF { // it may have become shorter
			return 0, err
		}
		for i := bytes.LastIndexByte(buf[:got], '\n'); i >= 0; i = bytes.LastIndexByte(buf[:i], '\n') {
			if at+int64(i) == size-1 {
				continue // it ends the last line
			}
			if n--; n == 0 {
				return at + int64(i) + 1, nil
			}
		}
		end = at
	}
	return 0, nil
}
