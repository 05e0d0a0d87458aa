package testscripts

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func pages(t *testing.T) []string {
	t.Helper()
	all, err := filepath.Glob("../man/*.[0-9]")
	if err != nil || len(all) == 0 {
		t.Fatalf("no manuals in ../man: %v", err)
	}
	return all
}

func TestManualsPassLint(t *testing.T) {
	need(t, "mandoc")
	out, err := exec.Command("mandoc", append([]string{"-T", "lint", "-W", "warning"}, pages(t)...)...).CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("mandoc: %v\n%s", err, out)
	}
}

// sections is the order of the sections of a page. Those of a format and of the
// overview are a page's own between DESCRIPTION and EXAMPLES.
var sections = []string{"NAME", "SYNOPSIS", "DESCRIPTION", "JSON", "ENVIRONMENT", "FILES", "EXIT STATUS", "EXAMPLES", "SEE ALSO", "CAVEATS"}

func TestManualsHaveOneForm(t *testing.T) {
	for _, page := range pages(t) {
		data, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		name, section := filepath.Base(page), page[len(page)-1:]
		last, literal := -1, false
		for number, line := range strings.Split(string(data), "\n") {
			if literal = line != ".Ed" && (literal || strings.HasPrefix(line, ".Bd -literal")); literal {
				continue
			}
			if len(line) > 80 {
				t.Errorf("%s:%d: %d columns", name, number+1, len(line))
			}
			title, ok := strings.CutPrefix(line, ".Sh ")
			if !ok {
				continue
			}
			at := slices.Index(sections, title)
			if at < 0 && section != "5" && section != "7" {
				t.Errorf("%s:%d: section %q is none of %q", name, number+1, title, sections)
			}
			if at >= 0 && at <= last {
				t.Errorf("%s:%d: section %q is out of order: %q", name, number+1, title, sections)
			}
			last = max(last, at)
		}
	}
}

var reference = regexp.MustCompile(`(?m)^\.(?:It )?Xr (d[a-z0-9-]+) ([0-9])`)

// A page of ours that another names exists, and distribute.7 names them all.
func TestManualsReferToPages(t *testing.T) {
	var named string
	for _, page := range pages(t) {
		data, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		if filepath.Base(page) == "distribute.7" {
			named = string(data)
		}
		for _, m := range reference.FindAllStringSubmatch(string(data), -1) {
			if _, err := os.Stat("../man/" + m[1] + "." + m[2]); err != nil {
				t.Errorf("%s refers to %s(%s), which is no page", filepath.Base(page), m[1], m[2])
			}
		}
	}
	for _, page := range pages(t) {
		name, section, _ := strings.Cut(filepath.Base(page), ".")
		if name != "distribute" && !strings.Contains(named, "Xr "+name+" "+section) {
			t.Errorf("distribute.7 does not name %s(%s)", name, section)
		}
	}
}

// shellFiles are the scripts of the tree that a shell reads.
func shellFiles(t *testing.T) []string {
	t.Helper()
	files := []string{"../.ci/run", "../scripts/completion/distribute.bash"}
	for _, dir := range []string{"../scripts/", "../scripts/peers/"} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			text, err := os.ReadFile(dir + e.Name())
			if e.Type().IsRegular() && err == nil && !bytes.HasPrefix(text, []byte("#!/usr/bin/env python3\n")) {
				files = append(files, dir+e.Name())
			}
		}
	}
	return files
}

// A script of the build has no name of a system's command, which it would shadow where its
// directory is in PATH, as for the script itself.
func TestShellScriptsShadowNothing(t *testing.T) {
	list, err := os.ReadDir(filepath.Join(os.Getenv("TOP"), "scripts"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		for _, dir := range []string{"/usr/bin", "/bin", "/usr/sbin", "/sbin"} {
			if _, err := os.Stat(filepath.Join(dir, e.Name())); err == nil && !e.IsDir() {
				t.Errorf("scripts/%s has the name of %s/%s", e.Name(), dir, e.Name())
				break
			}
		}
	}
}

func TestShellScriptsPassShellcheck(t *testing.T) {
	need(t, "shellcheck")
	out, err := exec.Command("shellcheck", shellFiles(t)...).CombinedOutput()
	if err != nil {
		t.Errorf("shellcheck: %v\n%s", err, out)
	}
}
