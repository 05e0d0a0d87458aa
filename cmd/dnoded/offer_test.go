package main

import (
	"slices"
	"testing"

	"distribute/lib/node"
)

func TestWhatIsHere(t *testing.T) {
	getenv := func(string) string { return t.TempDir() }
	o := whatIsHere(&node.File{Name: "ws1", CPUs: 3, Capabilities: []string{"fftw"}}, getenv).offer()
	if o.CPUs != 3 || o.Memory < 1<<20 || o.Arch == "" || !slices.Equal(o.Capabilities, []string{"fftw"}) {
		t.Errorf("offer %+v", o)
	}
}
