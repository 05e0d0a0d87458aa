package pause

import (
	"math/rand/v2"
	"testing"
	"time"
)

// The nodes of a machine give back together what is wanted of it, each about what goes
// with what it offers, and none more than that.
func TestPartShares(t *testing.T) {
	for _, c := range []struct {
		n    int64
		of   []int64
		want []int64
	}{
		{4, []int64{12, 3}, []int64{3, 1}},
		{2, []int64{4, 4}, []int64{1, 1}},
		{1, []int64{4, 4}, []int64{1, 0}},
		{1, []int64{3, 9}, []int64{0, 1}},
		{15, []int64{12, 3}, []int64{12, 3}},
		{99, []int64{12, 3}, []int64{12, 3}},
		{0, []int64{12, 3}, []int64{0, 0}},
		{7, []int64{0, 0}, []int64{0, 0}},
		{1 << 49, []int64{1 << 50, 1 << 50, 1 << 48}, []int64{1<<51/9 + 1, 1<<51/9 + 1, 1 << 49 / 9}},
	} {
		for i, want := range c.want {
			if got := share(c.n, c.of, i); got < want-1 || got > want+1 || c.n < 1000 && got != want {
				t.Errorf("of %d number %d of %v gives %d, want %d", c.n, i, c.of, got, want)
			}
		}
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 10000 {
		of := make([]int64, 1+r.IntN(6))
		all := int64(0)
		for i := range of {
			of[i] = r.Int64N(1 << r.IntN(51))
			all += of[i]
		}
		n, sum := r.Int64N(1<<r.IntN(53)), int64(0)
		for i := range of {
			got := share(n, of, i)
			if sum += got; got < 0 || got > of[i] {
				t.Fatalf("of %d number %d of %v gives %d", n, i, of, got)
			}
		}
		if sum != min(n, all) {
			t.Fatalf("of %d all of %v give %d", n, of, sum)
		}
	}
}

// What somebody wants back of one node alone that node gives; of the machine each gives
// its part, and of both the greater.
func TestPartGives(t *testing.T) {
	p := &Part{Own: "/m/nodes/a/pause", Of: []Give{{6, 6 << 30}, {2, 2 << 30}}, Index: 0}
	at := func(place string, g *Give) Pause { return Pause{Place: place, Give: g, Made: time.Unix(1, 0)} }
	machine := at("/m/pause", &Give{4, 4 << 30})
	same := &Part{Of: []Give{{6, 6 << 30}, {2, 2 << 30}}, Index: 1, Same: true} // its cpus are also those of the other
	if s := (State{Live: []Pause{machine}}); same.Gives(s) != (Give{1, 1 << 30}) || same.Loses(s) != 4 || same.Whole(same.Gives(s)) {
		t.Errorf("one with the cpus of another gives %+v, and loses %d", same.Gives(s), same.Loses(s))
	}
	if s := (State{Live: []Pause{at("/m/pause", &Give{CPUs: 8})}}); !same.Whole(same.Gives(s)) || p.Loses(s) != 6 || (*Part)(nil).Loses(s) != 8 {
		t.Errorf("all of it is not, with %+v", same.Gives(s))
	}
	for _, c := range []struct {
		live []Pause
		want Give
	}{
		{nil, Give{}},
		{[]Pause{machine}, Give{3, 3 << 30}},
		{[]Pause{at(p.Own, &Give{4, 1 << 30})}, Give{4, 1 << 30}},
		{[]Pause{machine, at(p.Own, &Give{4, 1 << 30})}, Give{4, 3 << 30}},
		{[]Pause{machine, at(MachinePlace, &Give{8, 0})}, Give{6, 3 << 30}},
		{[]Pause{at("/m/pause", nil)}, Give{}},
	} {
		if got := p.Gives(State{Live: c.live}); got != c.want {
			t.Errorf("of %+v it gives %+v, want %+v", c.live, got, c.want)
		}
	}
	if got := (*Part)(nil).Gives(State{Live: []Pause{machine}}); got != *machine.Give {
		t.Errorf("the machine gives %+v", got)
	}
	for _, bad := range []*Part{{}, {Of: []Give{{1, 1}}, Index: 1}, {Of: []Give{{1, 1}}, Index: -1}, {Of: []Give{{-1, 1}}}, {Of: []Give{{1, 1 << 60}}}, {Of: make([]Give, 2000)}} {
		if bad.check() == nil {
			t.Errorf("%+v is a part", bad)
		}
	}
	if p.check() != nil || (*Part)(nil).check() != nil {
		t.Error("a part is none")
	}
}
