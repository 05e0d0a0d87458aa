package proc

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"distribute/lib/pause"
)

// An order that is on two nodes of a machine gives back what each of them does, and stands
// still when one of them gives all.
func TestDemandBeside(t *testing.T) {
	of := []pause.Give{{CPUs: 4, Memory: 4 << 30}, {CPUs: 2, Memory: 2 << 30}}
	left := Pausing{CPUs: []int{0, 1, 2, 3}, Memory: 4 << 30, Part: &pause.Part{Own: "/left", Of: of}}
	right := Pausing{CPUs: []int{4, 5}, Memory: 2 << 30, Part: &pause.Part{Own: "/right", Of: of, Index: 1}}
	alone, both := []Pausing{left}, []Pausing{left, right}
	small := Pausing{CPUs: []int{0, 1}, Part: &pause.Part{Of: []pause.Give{{CPUs: 3}, {CPUs: 1}}, Index: 1, Same: true}} // both nodes have these two
	for _, c := range []struct {
		place string
		give  *pause.Give
		of    []Pausing
		want  string
	}{
		{"/all", &pause.Give{CPUs: 1}, []Pausing{small}, "false [0]"},
		{"/all", &pause.Give{CPUs: 2}, []Pausing{small}, "true []"},
		{"/all", &pause.Give{CPUs: 3}, alone, "false [0 1]"},
		{"/all", &pause.Give{CPUs: 3}, both, "false [0 1 4]"},
		{"/all", &pause.Give{CPUs: 1}, both, "false [0 1 2 4 5]"},
		{"/right", &pause.Give{CPUs: 1}, both, "false [0 1 2 3 4]"},
		{"/right", &pause.Give{CPUs: 2}, both, "true [0 1 2 3]"},
		{"/left", &pause.Give{CPUs: 3}, both, "false [0 4 5]"},
		{"/right", nil, both, "true []"},
		{"/all", &pause.Give{Memory: 6 << 30}, both, "true []"},
		{"/all", &pause.Give{Memory: 1 << 30}, both, "false []"},
	} {
		l := &lookout{of: c.of}
		for _, o := range c.of {
			var s pause.State
			if c.place == "/all" || c.place == o.Part.Own { // which the other does not read
				s.Live = []pause.Pause{{Place: c.place, Give: c.give}}
			}
			l.states = append(l.states, s)
		}
		if d := l.demand(); fmt.Sprint(d.frozen, d.cpus) != c.want {
			t.Errorf("%s gives %+v: %v %v, want %s", c.place, c.give, d.frozen, d.cpus, c.want)
		}
	}
}

// What a pause takes is taken of what the node offers now.
func TestDemandOfNewOffer(t *testing.T) {
	place := t.TempDir()
	p := pause.To(pause.Clock{Now: time.Now()}, time.Time{})
	p.Give = &pause.Give{CPUs: 1}
	if _, err := pause.Put(place, p); err != nil {
		t.Fatal(err)
	}
	of := Pausing{CPUs: []int{0}, Offer: filepath.Join(t.TempDir(), "offer")}
	l := &lookout{of: []Pausing{of}, readers: []*pause.Reader{{Places: []string{place}}}}
	for _, c := range []struct{ content, want string }{
		{"", "true []"},
		{`{"cpus":[0,1]}`, "false [0]"},
		{`{"cpus":[0,1],"part":{"of":[],"index":1}}`, "false [0]"}, // no offer
		{`{"cpus":[2,3,4],"memory":1024}`, "false [2 3]"},
	} {
		if c.content != "" {
			if err := pause.PutOffer(of.Offer, []byte(c.content)); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.read(); err != nil {
			t.Fatal(err)
		}
		if d := l.demand(); fmt.Sprint(d.frozen, d.cpus) != c.want {
			t.Errorf("%q: %v %v, want %s", c.content, d.frozen, d.cpus, c.want)
		}
	}
}
