package wire

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"distribute/lib/line"
)

// FuzzTransfer reads a transfer from what a peer sends: what is taken for whole
// came in frames, and everything else is an error of the three kinds.
func FuzzTransfer(f *testing.F) {
	f.Add([]byte(`{"m":"data","x":5,"n":3}` + "\nabc" +
		`{"m":"end","x":5,"bytes":3,"sum":"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"}` + "\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		c := New(stream{bytes.NewReader(b), io.Discard})
		got, err := io.ReadAll(c.RecvTransfer(&Send{X: 5}))
		if len(got) > len(b) {
			t.Fatalf("%d bytes came of %d", len(got), len(b))
		}
		if err != nil && !errors.Is(err, ErrCut) && !errors.Is(err, ErrGaveUp) && !errors.Is(err, line.ErrLine) && !errors.Is(err, ErrUnknown) {
			t.Fatalf("%q: %v", b, err)
		}
		if err == nil && !bytes.Contains(b, []byte(`"end"`)) && !bytes.Contains(b, []byte(`\u`)) {
			t.Fatalf("%q was taken for whole", b)
		}
	})
}
