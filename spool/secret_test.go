package spool

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"distribute/lib/job"
)

// Values of secrets lie where only the user of the spool reads them, and no error has one.
func TestSecrets(t *testing.T) {
	h := newHead(t)
	spec := plain
	spec.Secrets = []string{"A", "B"}
	begin := func() *Submission {
		s, err := h.Begin(job.NewToken(), "ns/b", "ana", os.Getuid())
		if err != nil {
			t.Fatal(err)
		}
		if err := fillIn(s, spec, []string{"a"}); err != nil {
			t.Fatal(err)
		}
		return s
	}
	for _, wrong := range []job.Secrets{{"A=hidden-1"}, {"A=hidden-1", "C=hidden-2"}, {"B=hidden-2", "A=hidden-1"}, {"A=short", "B=hidden-2"}, {"A=hidden-1", "B=hid\x00den-2"},
		{"A=hidden-1", "B=hidden-2", "B=hidden-2"}, {"hidden-1", "hidden-2"}, {"A=" + strings.Repeat("hidden", job.MaxArgv/6), "B=hidden-2"}} {
		s := begin()
		if err := s.Secrets(wrong); !errors.Is(err, ErrInput) || strings.Contains(err.Error(), "hidden-2") || strings.Contains(err.Error(), "short") {
			t.Errorf("%q: %v", []string(wrong), err)
		}
		s.Abort()
	}
	s := begin()
	values := job.Secrets{"A=hidden \"1\"\n\\ä", "B=hidden-2"}
	if err := s.Secrets(values); err != nil {
		t.Fatal(err)
	}
	b, err := s.Finish(false)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	name := filepath.Join(h.path("batches", "ns", "b"), secretsFile)
	info, err := os.Stat(name)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if got, err := b.Secrets(); err != nil || len(got) != 2 || got[0] != values[0] || got[1] != values[1] {
		t.Errorf("%q, %v", []string(got), err)
	}
	whole, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for i := range whole {
		bad := append([]byte(nil), whole...)
		bad[i] ^= 1
		if err := os.WriteFile(name, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := b.Secrets(); !errors.Is(err, job.ErrNoSecrets) || strings.Contains(err.Error(), "hidden") {
			t.Errorf("byte %d: %q, %v", i, []string(got), err)
		}
	}
	for _, bad := range [][]byte{nil, whole[:len(whole)-1], append(whole, '\n'), secretsText(values[:1])} {
		if err := os.WriteFile(name, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Secrets(); !errors.Is(err, job.ErrNoSecrets) {
			t.Errorf("%d bytes: %v", len(bad), err)
		}
	}
	for _, spec := range []job.Spec{{Secrets: []string{"B", "A"}}, {Secrets: []string{"A", "A"}}, {Secrets: []string{"HOME"}}, {Secrets: []string{"A"}, Env: []string{"A=b"}}} {
		spec.Kind, spec.Resources = job.Command, plain.Resources
		if err := checkSpec(&spec); err == nil {
			t.Errorf("%v", spec)
		}
	}
}
