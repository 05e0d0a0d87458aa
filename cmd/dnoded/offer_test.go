package main

import (
	"bytes"
	"testing"

	"distribute/lib/desk"
)

// Of what a machine may use of its disk each of its nodes has an equal part of the cache.
func TestCapsOf(t *testing.T) {
	if got, want := *capsOf(&desk.Caps{Reserve: 3, Cache: 60, Output: 5}, 3), (desk.Caps{Reserve: 3, Cache: 20, Output: 5}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestWrap(t *testing.T) {
	tests := map[string]string{
		"":      "name  ws1\n",
		"short": "name  ws1  short\n",
		"in PATH as /a/very/long/way/to/a/program/that/is/not/to/be/cut/in/two/parts/ever/python3 and more": "name  ws1  in PATH as\n" +
			"           /a/very/long/way/to/a/program/that/is/not/to/be/cut/in/two/parts/ever/python3\n           and more\n",
	}
	for text, want := range tests {
		var out bytes.Buffer
		if wrap(&out, "name  ws1  ", text); out.String() != want {
			t.Errorf("%q: %q", text, &out)
		}
	}
}
