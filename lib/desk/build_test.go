package desk

import (
	"testing"

	"distribute/lib/job"
)

// Two batches build the same only if nothing that their builds are told or given differs.
func TestIdentity(t *testing.T) {
	one, two := int64(1), int64(2)
	env := []string{"PATH=/bin"}
	does := func(change func(b *Build, submitter *string, capabilities *[]string)) string {
		b := &Build{Batch: "lab/a", User: "ana", Spec: job.Spec{Kind: job.Command, Build: []string{"make", "a b"}, Env: []string{"FLAGS=-O0"},
			Inputs: []job.Input{{Path: "a.c", Sum: "s", Mode: 0o644, MTime: &one}}}}
		submitter, capabilities := "ana", []string{"gcc"}
		change(b, &submitter, &capabilities)
		return b.Identity(submitter, capabilities, env)
	}
	same := does(func(*Build, *string, *[]string) {})
	for what, change := range map[string]func(*Build, *string, *[]string){
		"":                         func(b *Build, _ *string, _ *[]string) { b.Batch, b.Spec.Keep, b.Spec.Priority = "lab/b", &one, 2 },
		"another namespace":        func(b *Build, _ *string, _ *[]string) { b.Batch = "ben/a" },
		"another user":             func(b *Build, _ *string, _ *[]string) { b.User = "ben" },
		"another submitter":        func(_ *Build, s *string, _ *[]string) { *s = "ben" },
		"another compiler":         func(_ *Build, _ *string, c *[]string) { *c = []string{"gcc", "gfortran"} },
		"another kind":             func(b *Build, _ *string, _ *[]string) { b.Spec.Kind = job.Python },
		"other words":              func(b *Build, _ *string, _ *[]string) { b.Spec.Build = []string{"make", "a", "b"} },
		"other variables":          func(b *Build, _ *string, _ *[]string) { b.Spec.Env = []string{"FLAGS=-O3"} },
		"no variables":             func(b *Build, _ *string, _ *[]string) { b.Spec.Env = nil },
		"an input more":            func(b *Build, _ *string, _ *[]string) { b.Spec.Inputs = append(b.Spec.Inputs, job.Input{Path: "b.c"}) },
		"an input elsewhere":       func(b *Build, _ *string, _ *[]string) { b.Spec.Inputs[0].Path = "b.c" },
		"other content":            func(b *Build, _ *string, _ *[]string) { b.Spec.Inputs[0].Sum = "t" },
		"an executable input":      func(b *Build, _ *string, _ *[]string) { b.Spec.Inputs[0].Mode = 0o755 },
		"an input of another time": func(b *Build, _ *string, _ *[]string) { b.Spec.Inputs[0].MTime = &two },
	} {
		if got := does(change); (got == same) != (what == "") {
			t.Errorf("with %q, the same is %v", what, got == same)
		}
	}
	env = []string{"PATH=/opt/bin:/bin"}
	if does(func(*Build, *string, *[]string) {}) == same {
		t.Error("with another PATH of the node it is the same")
	}
}
