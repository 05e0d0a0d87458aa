package check

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestFits(t *testing.T) {
	sum := "ab" + strings.Repeat("0", 62)
	tree := Tree{Name: func(s string) bool { return s != "" && s[0] != '.' }}
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"head", "head", true},
		{"head", "heads", false},
		{"lock|head", "head", true},
		{"lock|<xx>", "0f", true},
		{"lock|<xx>", "lock2", false},
		{"<any>", "", true},
		{"known_hosts<any>", "known_hosts.old", true},
		{"known_hosts<any>", "known", false},
		{"<name>.json", "ws1.json", true},
		{"<name>.json", ".json", false},
		{"<name>.json", "json", false},
		{"log.<number>.broken", "log.12.broken", true},
		{"log.<number>.broken", "log..broken", false},
		{"log.<number>.broken", "log.1x.broken", false},
		{"<uid>", "4294967295", true},
		{"<uid>", "4294967296", false},
		{"<xx>", "0F", false},
		{"<sum>", sum, true},
		{"<sum>", sum[1:], false},
		{"<blob>", sum, true},
		{"<blob>", strings.Repeat("0", 64), false},
		{"<sum>.<token>", sum + "." + sum[:32], true},
		{"<sum>.<token>", sum + "." + sum[:31], false},
		{"<sum>.<token>", sum, false},
	} {
		if got := tree.fits(c.pattern, c.name, "blobs/ab"); got != c.want {
			t.Errorf("%q fits %q: %v", c.name, c.pattern, got)
		}
	}
}

// What has no place, is of another type, or is open to too many is found; the first
// place that fits counts.
func TestTree(t *testing.T) {
	r, told := run(t, false)
	at := func(name string) string { return filepath.Join(r.Dir, name) }
	if err := errors.Join(os.Mkdir(at("dir"), 0o700), os.Mkdir(at("file"), 0o700), os.WriteFile(at("dir/odd"), nil, 0o600),
		os.WriteFile(at("dir/secret"), nil, 0o600), os.Chmod(at("dir/secret"), 0o644), os.WriteFile(at(".x.1.tmp~"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	tree := &Tree{UID: os.Getuid(), Starts: "nothing"}
	var seen []string
	tree.Places = []Place{
		{Path: ".", Temps: true, Odd: "no place"},
		{Path: "dir", Mode: fs.ModeDir | 0o700, Odd: "no place there", Check: tree.Within("dir")},
		{Path: "dir/secret", Mode: 0o600, Check: Collect(&seen)},
		{Path: "file|other", Mode: 0o600, Check: Collect(&seen)},
	}
	err := r.Unit(t.Context(), "part", func(u *Unit) error { return tree.CheckDir(t.Context(), u, ".", ".") })
	want := []string{"left\t.x.1.tmp~\ta file that was being written\tnothing",
		"strange\tdir/odd\tno place there\tmove it to found/dir/odd",
		"strange\tdir/secret\tits mode is 0644, more than 0600\tset its mode to 0600",
		"strange\tfile\tit should be a regular file\tmove it to found/file"}
	if err != nil || !slices.Equal(seen, []string{"dir/secret"}) || !slices.Equal(*told, want) {
		t.Errorf("told %q, seen %q, %v", *told, seen, err)
	}
}
