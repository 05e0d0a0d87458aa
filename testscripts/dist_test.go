package testscripts

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"distribute/lib/suite"
)

// dist has a source make archives of one program, as VERSION says, and returns what
// was printed: the paths of these.
func dist(t *testing.T, top, out, version string, args ...string) []string {
	t.Helper()
	cmd := exec.Command("sh", append([]string{"-c", `umask "$UMASK"; exec "$0" "$@"`, filepath.Join(top, "scripts", "dist")}, args...)...)
	cmd.Env = append(os.Environ(), "OUT="+out, "VERSION="+version, "SOURCE_DATE_EPOCH=1700000000", "PACKAGES=./cmd/dnoded", "GOFLAGS=-buildvcs=false", "UMASK=077")
	var talk bytes.Buffer
	cmd.Stderr = &talk
	printed, err := cmd.Output()
	if err != nil {
		t.Fatalf("dist %q: %v: %s", args, err, &talk)
	}
	return strings.Fields(string(printed))
}

// copied is a copy of the source elsewhere, of which all files are new.
func copied(t *testing.T) string {
	t.Helper()
	to := t.TempDir()
	top := os.Getenv("TOP")
	for _, name := range []string{"CHANGELOG.md", "LICENSE", "Makefile", "README.md", "cmd", "go.mod", "go.sum", "lib", "man", "scripts", "spool"} {
		if err := run("cp", "-r", filepath.Join(top, name), to); err != nil {
			t.Fatal(err)
		}
	}
	return to
}

func same(t *testing.T, a, b string) {
	t.Helper()
	x, errX := os.ReadFile(a)
	y, errY := os.ReadFile(b)
	if errX != nil || errY != nil || !bytes.Equal(x, y) {
		t.Errorf("%s (%d bytes, %v) and %s (%d bytes, %v) differ", a, len(x), errX, b, len(y), errY)
	}
}

// TestDist makes an archive of the source and of a copy of it, which are the same,
// and installs from that.
func TestDist(t *testing.T) {
	suite.Long(t, "")
	for _, program := range []string{"bash", "git", "tar", "gzip"} {
		need(t, program)
	}
	first := dist(t, os.Getenv("TOP"), t.TempDir(), "v1.2.3", "amd64")
	second := dist(t, copied(t), t.TempDir(), "v1.2.3", "amd64")
	if len(first) != 1 || len(second) != 1 || filepath.Base(first[0]) != "distribute-1.2.3-linux-amd64.tar.gz" {
		t.Fatalf("%q and %q", first, second)
	}
	same(t, first[0], second[0])

	dir := t.TempDir()
	home := filepath.Join(dir, "home")
	if err := run("tar", "-C", dir, "-xzf", first[0]); err != nil {
		t.Fatal(err)
	}
	tree := filepath.Join(dir, "distribute-1.2.3-linux-amd64")
	for _, name := range []string{"LICENSE", "README.md", "CHANGELOG.md", "scripts/dplot", "scripts/dreport", "scripts/dtasks"} {
		if _, err := os.Stat(filepath.Join(tree, name)); err != nil {
			t.Error(err)
		}
	}
	install := exec.Command(filepath.Join(tree, "scripts", "install-files"))
	install.Env = append(os.Environ(), "HOME="+home, "PREFIX="+home+"/.local", "DESTDIR=", "BIN=bin")
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("install-files: %v: %s", err, out)
	}
	for _, f := range []struct{ name, text string }{
		{"bin/dlocal", ""}, {"bin/dplot", ""}, {"bin/dreport", ""}, {"bin/dtasks", ""}, {"share/man/man1/dwait.1", ""}, {"lib/sysusers.d/distribute-node.conf", ""},
		{"share/bash-completion/completions/dnoded", "complete "}, {"share/zsh/site-functions/_distribute", "#compdef "}, {"share/fish/vendor_completions.d/dnoded.fish", "complete "},
		{"share/man/man8/dnoded.8", "\ncp " + home + "/.local/share/distribute/run-as.conf "},
		{"share/systemd/user/distribute-node.service", "\nExecStart=" + home + "/.local/bin/dnoded\n"},
	} {
		data, err := os.ReadFile(filepath.Join(home, ".local", f.name))
		if err != nil || !strings.Contains(string(data), f.text) || strings.Contains(string(data), "/usr/local/") {
			t.Errorf("%s: %v, and has not %q or has /usr/local/", f.name, err, f.text)
		}
	}
	if out, err := exec.Command(filepath.Join(home, ".local", "bin", "dnoded"), "-V").CombinedOutput(); err != nil || !strings.HasPrefix(string(out), "dnoded ") {
		t.Errorf("dnoded -V: %q, %v", out, err)
	}
}

// What cannot be installed or made is refused with the way out.
func TestDistRefuses(t *testing.T) {
	top := os.Getenv("TOP")
	for _, c := range []struct {
		script string
		env    []string
		status int
		want   string
	}{
		{"install-files", []string{"PREFIX=opt"}, 64, "install-files: PREFIX opt is not absolute (say PREFIX=/usr/local)\n"},
		{"install-files", []string{"PREFIX=/o p"}, 64, "install-files: PREFIX /o p has characters that no unit takes (say PREFIX=/usr/local)\n"},
		{"install-files", []string{"BIN=/nowhere"}, 66, "install-files: /nowhere has neither dsched nor dnoded (make builds them; an archive has them for one kind of machine)\n"},
		{"dist amd64", []string{"SOURCE_DATE_EPOCH=today"}, 65, "dist: here is no commit that has a time (set SOURCE_DATE_EPOCH, in seconds)\n"},
		{"dist", nil, 64, "usage: dist ARCH...\n"},
	} {
		words := strings.Fields(c.script)
		cmd := exec.Command(filepath.Join(top, "scripts", words[0]), words[1:]...)
		cmd.Env = append(append(os.Environ(), "DESTDIR="+t.TempDir(), "OUT="+t.TempDir()), c.env...)
		out, _ := cmd.CombinedOutput()
		if string(out) != c.want || cmd.ProcessState.ExitCode() != c.status {
			t.Errorf("%s, %q: %d, %q; want %d, %q", c.script, c.env, cmd.ProcessState.ExitCode(), out, c.status, c.want)
		}
	}
}
