package line

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"
)

// FuzzReader holds the lines of a stream, however it is cut into pieces, equal
// to those of its text.
func FuzzReader(f *testing.F) {
	f.Add([]byte("a\n\nlong line\nrest"), uint8(5), true)
	f.Fuzz(func(t *testing.T, text []byte, limit uint8, slow bool) {
		var in io.Reader = bytes.NewReader(text)
		if slow {
			in = iotest.OneByteReader(in)
		}
		r := NewReader(in, int(limit))
		rest := text
		for {
			b, err := r.Next()
			want, after, whole := bytes.Cut(rest, []byte("\n"))
			long := len(want) > int(limit) || whole && len(want)+1 > int(limit)
			switch {
			case long && errors.Is(err, ErrTooLong), !long && !whole && len(rest) > 0 && errors.Is(err, ErrPartial), len(rest) == 0 && err == io.EOF:
				return
			case err != nil || long || !whole || !bytes.Equal(b, want):
				t.Fatalf("%q with %d: got %q, %v, want %q", text, limit, b, err, want)
			}
			rest = after
		}
	})
}
