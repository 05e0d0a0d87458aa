package pack

import (
	"bytes"
	"io"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"
)

// mixture is content of so many MiB, each of them noise or text.
func mixture(noise ...bool) []byte {
	var seed [32]byte
	source := rand.NewChaCha8(seed)
	r := rand.New(source)
	var b bytes.Buffer
	for _, n := range noise {
		if n {
			io.CopyN(&b, source, 1<<20)
			continue
		}
		for end := b.Len() + 1<<20; b.Len() < end; {
			b.Write(append(strconv.AppendFloat(b.AvailableBuffer(), r.Float64(), 'e', 9, 64), '\n'))
		}
	}
	return b.Bytes()
}

// What an adapter sends arrives, whatever it finds out about the wire and the
// content, and is squeezed if that is of use.
func TestAdapter(t *testing.T) {
	text, noise := make([]bool, 12), make([]bool, 12)
	allText := mixture(text...)
	for i := range noise {
		noise[i] = true
	}
	for _, tt := range []struct {
		what    string
		content []byte
		perByte time.Duration
		busy    time.Duration // for each byte, when some are squeezed
		small   bool          // how much comes out
	}{
		{"text on a fast wire", allText, 1, 0, false},
		{"text on a slow wire", allText, 100, 0, true},
		{"noise on a slow wire", mixture(noise...), 100, 0, false},
		{"noise and then text on a slow wire", mixture(append(noise[:3:3], text...)...), 100, 0, true},
		{"text and then noise on a slow wire", mixture(append(text[:6:6], noise...)...), 100, 0, false},
		{"text where the processors are short", bytes.Repeat(allText, 3), 15, 25, false},
	} {
		var frame bytes.Buffer
		var clock time.Time
		wire := writerFunc(func(p []byte) (int, error) {
			clock = clock.Add(time.Duration(len(p)) * tt.perByte)
			if frame.Len() > probes*probeBytes {
				clock = clock.Add(time.Duration(len(p)) * tt.busy)
			}
			return frame.Write(p)
		})
		err := withAdapter(wire, func() time.Time { return clock }, func(w io.Writer) error {
			_, err := io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{bytes.NewReader(tt.content)}, make([]byte, 70_001))
			return err
		})
		if err != nil {
			t.Fatalf("%s: %v", tt.what, err)
		}
		if small := frame.Len() < len(tt.content)*3/4; small != tt.small {
			t.Errorf("%s: %d bytes become %d", tt.what, len(tt.content), frame.Len())
		}
		d := newDecoder().(interface {
			DecodeAll(input, dst []byte) ([]byte, error)
		})
		if got, err := d.DecodeAll(frame.Bytes(), nil); err != nil || !bytes.Equal(got, tt.content) {
			t.Errorf("%s: what comes out is something else (%v)", tt.what, err)
		}
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// A large tree that was sent to a slow wire is received like any other.
func TestAdapterReceived(t *testing.T) {
	content := mixture(make([]bool, 17)...)
	h := newHash()
	h.Write(content)
	m := Blobs(map[string]int64{sumOf(h): int64(len(content))})
	var frame bytes.Buffer
	var clock time.Time
	wire := writerFunc(func(p []byte) (int, error) {
		clock = clock.Add(time.Duration(len(p)) * 100)
		return frame.Write(p)
	})
	err := withAdapter(wire, func() time.Time { return clock }, func(w io.Writer) error {
		return sendAll(w, m, Want{}, func(int, Entry) (io.ReadCloser, error) {
			return io.NopCloser(bytes.NewReader(content)), nil
		})
	})
	if err != nil || frame.Len() > len(content)*3/4 {
		t.Fatalf("%d bytes become %d, %v", len(content), frame.Len(), err)
	}
	var got bytes.Buffer
	err = Receive(&frame, m, Want{}, sinkFunc(func(_ int, _ Entry, _ int64, r io.Reader) error { _, err := got.ReadFrom(r); return err }))
	if err != nil || !bytes.Equal(got.Bytes(), content) {
		t.Errorf("it is not what was sent: %v", err)
	}
}
