package pack

import (
	"bytes"
	"testing"
)

// FuzzWant sends what a peer may want: what passes Check can be sent and
// received, and everything else is refused.
func FuzzWant(f *testing.F) {
	f.Add([]byte{0, 3}, int64(0), true)
	f.Add([]byte{1, 2}, int64(3), true)
	f.Add([]byte{}, int64(0), false)
	f.Add([]byte{255, 3}, int64(-1), true)
	m := prey()
	f.Fuzz(func(t *testing.T, ranges []byte, from int64, some bool) {
		w := Want{From: from}
		if some {
			w.Ranges = [][2]int{}
		}
		for len(ranges) >= 2 {
			w.Ranges = append(w.Ranges, [2]int{int(int8(ranges[0])), int(int8(ranges[1]))})
			ranges = ranges[2:]
		}
		var b bytes.Buffer
		err := Send(&b, m, w, hello)
		if bad := w.Check(m); (bad != nil) != (err != nil) {
			t.Fatalf("%+v: Check says %v, Send %v", w, bad, err)
		}
		if err != nil {
			return
		}
		if n := w.Bytes(m); n < 0 || n > m.Bytes() || w.Empty(m) && n > 0 {
			t.Fatalf("%+v is %d bytes", w, n)
		}
		if w.From == 0 {
			if err := Receive(&b, m, w, new(memory)); err != nil {
				t.Fatalf("%+v: %v", w, err)
			}
		}
	})
}
