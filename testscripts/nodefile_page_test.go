package testscripts

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"distribute/lib/inventory"
)

// displays is the literal displays of a manual page, as a reader sees them.
func displays(t *testing.T, page string) (all []string) {
	t.Helper()
	b, err := os.ReadFile("../man/" + page)
	if err != nil {
		t.Fatal(err)
	}
	plain := strings.NewReplacer(`\(aq`, "'", `\(dq`, `"`, `\&`, "", `\e`, `\`)
	for _, d := range regexp.MustCompile(`(?s)\n\.Bd -literal[^\n]*\n(.*?)\n\.Ed\n`).FindAllStringSubmatch(string(b), -1) {
		all = append(all, plain.Replace(d[1])+"\n")
	}
	return all
}

// Each key of a node's file has an example in dnode(5), and each example there is a
// node's file.
func TestManualsNodeFileExamples(t *testing.T) {
	_, err := inventory.Parse("f", []byte("no-such-key-at-all: 1\n"))
	if err == nil {
		t.Fatal("any key is taken")
	}
	_, list, _ := strings.Cut(err.Error(), "(known here: ")
	keys := strings.Split(strings.TrimSuffix(list, ")"), ", ")
	if len(keys) < 10 {
		t.Fatalf("the keys are not known by %q", err)
	}
	shown := map[string]bool{}
	for _, d := range displays(t, "dnode.5") {
		if strings.HasPrefix(d, "systemctl ") {
			continue
		}
		if _, err := inventory.Parse("dnode.5", []byte(d)); err != nil {
			t.Errorf("%s: %v", d, err)
		}
		for l := range strings.Lines(d) {
			if strings.HasPrefix(l, " ") {
				continue // of what stands above it
			}
			key, _, _ := strings.Cut(l, ":")
			shown[key] = true
		}
	}
	for _, k := range keys {
		if !shown[k] {
			t.Errorf("dnode.5 has no example of %q", k)
		}
	}
	for k := range shown {
		if !slices.Contains(keys, strings.TrimSpace(k)) {
			t.Errorf("dnode.5 has an example of %q, which is no key", k)
		}
	}
}
