package line

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"
)

type inner struct {
	A int    `json:"a,omitempty"`
	B string `json:"b"`
}

type outer struct {
	Name  string    `json:"name"`
	Word  string    `json:"word,omitempty" line:"word"`
	N     int64     `json:"n,omitempty"`
	U     uint32    `json:"u"`
	Yes   bool      `json:"yes,omitempty"`
	Long  float64   `json:"long,omitempty"`
	At    time.Time `json:"at,omitzero"`
	Exit  *int      `json:"exit,omitempty"`
	Texts []string  `json:"texts,omitempty"`
	One   inner     `json:"one,omitzero"`
	Two   *inner    `json:"two,omitempty"`
	All   []inner   `json:"all,omitempty"`
	Not   int       `json:"-"`
	inner
}

func outers() []outer {
	zero := 0
	at := time.UnixMilli(1795176000250).UTC()
	return []outer{
		{},
		{Name: "x"},
		{Name: "a", Word: "b", N: -3, U: 7, Yes: true, Long: 1.25, At: at, Exit: &zero, Texts: []string{"", "b"},
			One: inner{A: 1}, Two: &inner{}, All: []inner{{}, {2, "c"}}, inner: inner{3, "d"}},
	}
}

// What a table writes it reads, as encoding/json does; with less than all of it wanted,
// the rest is passed over.
func TestTable(t *testing.T) {
	table := TableOf[outer]()
	some := table.Only("n", "all")
	words := map[string]string{}
	for _, want := range outers() {
		object := table.Append(nil, &want)
		var fast, slow, part outer
		s := Scan{B: object, Words: words}
		if !table.Scan(&s, &fast) || s.I != len(object) || !reflect.DeepEqual(fast, want) {
			t.Errorf("%s} is read as %+v, want %+v", object, fast, want)
		}
		if err := json.Unmarshal(append(object[:len(object):len(object)], '}'), &slow); err != nil || !reflect.DeepEqual(slow, want) {
			t.Errorf("%s} is read by encoding/json as %+v, %v", object, slow, err)
		}
		s = Scan{B: object}
		if !some.Scan(&s, &part) || s.I != len(object) || !reflect.DeepEqual(part, outer{N: want.N, All: want.All}) {
			t.Errorf("of %s} is read %+v", object, part)
		}
	}
	if words["b"] != "b" || len(words) != 1 {
		t.Errorf("words are %q", words)
	}
}

// What is written otherwise is read too, but not what says two things.
func TestTableReads(t *testing.T) {
	table := TableOf[outer]()
	for object, good := range map[string]bool{
		`{"u":1,"name":"x","b":""`:           true,
		`{ "name" : "\u0078", "u":1, "b":""`: true,
		`{"name":"x","name":"y","u":1`:       false,
		`{"name":"x","u":1,"v":2`:            false,
		`{"Name":"x","u":1`:                  false,
		`{"name":"x","u":-1`:                 false,
		`{"name":"x","u":1} {`:               false,
		`{"name":"x","u":4294967296`:         false,
		`{"name":"x","u":1,"n":1.5`:          false,
		``:                                   false,
	} {
		var got outer
		if err := table.Read([]byte(object), &got, nil); (err == nil) != good || good && (got.Name != "x" || got.U != 1) {
			t.Errorf("%s} is read as %+v, %v", object, got, err)
		}
	}
}
