package line

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	good := []string{`{}`, `{"a":1}`, `{"a":{"a":[1,2,{"b":null}]},"b":"x\u00e9\ud83d\ude00"}`,
		` {"a" : true , "b" : -1.5e3 } `, `{"a":"\\\"","b":[]}`}
	for _, s := range good {
		if err := Check([]byte(s)); err != nil {
			t.Errorf("%s: %v", s, err)
		}
	}
	bad := []string{``, `1`, `[]`, `"a"`, `{`, `{"a":1}x`, `{"a":1,"a":2}`, `{"A":1}`, `{"b":{"a":1,"a":2}}`,
		`{"\u0061":1}`, "{\"a\":\"\xff\"}", `{"a":"\ud800"}`, `{"a":"\udc00"}`, `{"a":"\ud800\u0041"}`,
		`{"a":NaN}`, `{"é":1}`, strings.Repeat(`{"a":`, 20) + `1` + strings.Repeat(`}`, 20)}
	for _, s := range bad {
		if err := Check([]byte(s)); !errors.Is(err, ErrLine) {
			t.Errorf("%s: %v, want ErrLine", s, err)
		}
	}
}

func TestReader(t *testing.T) {
	long := strings.Repeat("x", 100_000)
	r := NewReader(strings.NewReader("a\n\n"+long+"\nb\nrest"), 200_000)
	for _, want := range []string{"a", "", long, "b"} {
		if b, err := r.Next(); err != nil || string(b) != want {
			t.Fatalf("got %.20q, %v; want %.20q", b, err, want)
		}
	}
	if _, err := r.Next(); !errors.Is(err, ErrPartial) {
		t.Errorf("at a line without end: %v", err)
	}
	if _, err := NewReader(strings.NewReader(long+"\n"), 1000).Next(); !errors.Is(err, ErrTooLong) {
		t.Errorf("too long a line: %v", err)
	}
	if _, err := NewReader(strings.NewReader(""), 10).Next(); err != io.EOF {
		t.Errorf("at the end: %v", err)
	}
}

func FuzzCheck(f *testing.F) {
	f.Add([]byte(`{"m":"hello","proto":[1,1],"x":{"y":"\ud83d\ude00"}}`))
	f.Add([]byte(`{"a":[{},[],"",0,{"b":[1,2]}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if Check(b) != nil {
			return
		}
		// Not every number is one of Go's; whoever reads it into one says so.
		d := json.NewDecoder(bytes.NewReader(b))
		d.UseNumber()
		var v map[string]any
		if err := d.Decode(&v); err != nil {
			t.Fatalf("%q passes and does not decode: %v", b, err)
		}
	})
}
