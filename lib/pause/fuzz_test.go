package pause

import (
	"path/filepath"
	"reflect"
	"testing"
)

func FuzzPause(f *testing.F) {
	f.Add([]byte(`{"format":1,"made":"2026-11-20T12:00:00Z","until":"2026-11-20T14:00:00Z","boot":"b1","deadline":367200000000000}` + "\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := Decode(b)
		if err != nil {
			return
		}
		p.Live(noon)
		again, err := p.Encode()
		if err != nil {
			t.Fatalf("%q: %+v cannot be written: %v", b, p, err)
		}
		q, err := Decode(again)
		if err != nil || !q.Made.Equal(p.Made) || !q.Until.Equal(p.Until) || q.Deadline != p.Deadline || !reflect.DeepEqual(q.Give, p.Give) || q.Out != p.Out || q.Why != p.Why {
			t.Fatalf("%q: %+v becomes %+v, %v", b, p, q, err)
		}
	})
}

func FuzzOwners(f *testing.F) {
	f.Add([]byte("0\n1001\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		uids, err := DecodeOwners(b)
		if err != nil {
			return
		}
		name := filepath.Join(t.TempDir(), "owners")
		if err := PutOwners(name, uids); err != nil {
			t.Fatal(err)
		}
		if again, err := ReadOwners(name); err != nil || !reflect.DeepEqual(again, uids) {
			t.Fatalf("%q: %v becomes %v, %v", b, uids, again, err)
		}
	})
}

func FuzzNow(f *testing.F) {
	f.Add([]byte(`{"format":1,"node":"ws3","dir":"/d","cpus":16,"pid":77,"start":5,"boot":"b1","running":[{"user":"maria","cpus":4,"pid":78,"start":6}]}` + "\n"))
	f.Add([]byte(`{"format":1,"node":"ws3","dir":"/d","cpus":2,"pid":77,"start":5,"boot":"b1","part":{"of":[{"cpus":2,"memory":1125899906842624},{"cpus":9}],"index":1}}` + "\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		n, err := DecodeNow(b)
		if err != nil {
			return
		}
		want := Give{CPUs: 1000, Memory: 1 << 60}
		if g := n.Part.Gives(State{Live: []Pause{{Give: &want}}}); g.CPUs < 0 || g.CPUs > 1000 || g.Memory < 0 || g.Memory > 1<<60 {
			t.Fatalf("%q gives %+v", b, g)
		}
		if d, forever := n.Waits(); d < 0 || forever && d != 0 {
			t.Fatalf("%q waits %v", b, d)
		}
	})
}
