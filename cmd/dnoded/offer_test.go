package main

import (
	"bytes"
	"testing"
)

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
