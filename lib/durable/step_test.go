package durable

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
)

func TestSteps(t *testing.T) {
	for _, tt := range []struct {
		env  string
		pass []string // the steps passed, in order
		want []error  // what each returns
	}{
		{"a:err", []string{"a", "b", "a"}, []error{ErrStep, nil, ErrStep}},
		{"a:err:2", []string{"a", "a", "a"}, []error{nil, ErrStep, nil}},
		{"a:full,b:io", []string{"a", "b", "c"}, []error{syscall.ENOSPC, syscall.EIO, nil}},
		{"*:err:3", []string{"a", "b", "c", "d"}, []error{nil, nil, ErrStep, nil}},
		{"a:sleep=1ns", []string{"a"}, []error{nil}},
		{"a:wait=/dev/null", []string{"a"}, []error{nil}},
		{"a:sleep=1ns:1,a:err:2", []string{"a", "a"}, []error{nil, ErrStep}},
	} {
		s := parseSteps(tt.env)
		for i, name := range tt.pass {
			if err := s.at(name); !errors.Is(err, tt.want[i]) {
				t.Errorf("%s: pass %d of %q: %v, want %v", tt.env, i, name, err, tt.want[i])
			}
		}
	}
	for _, env := range []string{"a", "a:what", "a:err:0", "a:err:x", ":err", "a:sleep=x", "a:wait=", "a:err:1:1", "a:err,"} {
		if err := parseSteps(env).at("b"); err == nil {
			t.Errorf("%s: understood", env)
		}
	}
	if s := parseSteps(""); s != off || s.at("a") != nil {
		t.Error("an empty variable does something")
	}
}

func TestStepList(t *testing.T) {
	file := filepath.Join(t.TempDir(), "names")
	s := parseSteps("list=" + file + ",c:err")
	points.Store(s)
	t.Cleanup(func() { points.Store(off) })
	for _, name := range []string{"b", "a", "b", "c"} {
		if err := Step(name); (err != nil) != (name == "c") {
			t.Errorf("%s: %v", name, err)
		}
	}
	want := []string{"b", "a", "c"}
	if got := Steps(); !slices.Equal(got, want) {
		t.Errorf("passed %v, want %v", got, want)
	}
	if b, err := os.ReadFile(file); err != nil || string(b) != "b\na\nc\n" {
		t.Errorf("file %q, %v", b, err)
	}
}

func BenchmarkStep(b *testing.B) {
	for b.Loop() {
		if err := Step("a"); err != nil {
			b.Fatal(err)
		}
	}
}
