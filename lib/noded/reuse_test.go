package noded

import (
	"testing"

	"distribute/lib/desk"
	"distribute/lib/job"
)

// A build is that of another batch only if nothing that it is told or given differs.
func TestSameBuild(t *testing.T) {
	one, two := int64(1), int64(2)
	built := func(change func(*desk.Build)) *desk.Build {
		b := &desk.Build{Batch: "lab/a", User: "ana", Spec: job.Spec{Kind: job.Command, Build: []string{"make"}, Env: []string{"FLAGS=-O0"},
			Inputs: []job.Input{{Path: "a.c", Sum: "s", Mode: 0o644, MTime: &one}}}}
		change(b)
		return b
	}
	a := built(func(*desk.Build) {})
	for what, change := range map[string]func(*desk.Build){
		"":                         func(b *desk.Build) { b.Batch, b.Spec.Keep, b.Spec.Priority = "lab/b", &one, 2 },
		"another namespace":        func(b *desk.Build) { b.Batch = "ben/a" },
		"another user":             func(b *desk.Build) { b.User = "ben" },
		"another kind":             func(b *desk.Build) { b.Spec.Kind = job.Python },
		"other words":              func(b *desk.Build) { b.Spec.Build = []string{"make", "all"} },
		"other variables":          func(b *desk.Build) { b.Spec.Env = []string{"FLAGS=-O3"} },
		"no variables":             func(b *desk.Build) { b.Spec.Env = nil },
		"an input more":            func(b *desk.Build) { b.Spec.Inputs = append(b.Spec.Inputs, job.Input{Path: "b.c"}) },
		"an input elsewhere":       func(b *desk.Build) { b.Spec.Inputs[0].Path = "b.c" },
		"other content":            func(b *desk.Build) { b.Spec.Inputs[0].Sum = "t" },
		"an executable input":      func(b *desk.Build) { b.Spec.Inputs[0].Mode = 0o755 },
		"an input of another time": func(b *desk.Build) { b.Spec.Inputs[0].MTime = &two },
	} {
		if same := sameBuild(a, built(change)); same != (what == "") {
			t.Errorf("with %q, the same is %v", what, same)
		}
	}
}
