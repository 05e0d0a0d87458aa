package testscripts

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode"
	"unicode/utf8"
)

// A tree is files, directories, links and the like by their paths.
type tree map[string]treeEntry

// A treeEntry is what a person sees of a file: its type, its content or where it leads, its
// mode and time.
type treeEntry struct {
	kind    fs.FileMode
	content string // or its sum
	mode    fs.FileMode
	time    time.Time
	changed syscall.Timespec // also when its mode, its time or the number of its names has
	maybe   bool             // it need not be there
}

// readTree reads the tree below dir, and follows no link. Paths may be longer than the
// kernel takes them at once.
func readTree(dir string) (tree, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	t := tree{}
	return t, t.read(root, "")
}

func (t tree) read(dir *os.Root, below string) error {
	defer dir.Close()
	d, err := dir.Open(".")
	if err != nil {
		return err
	}
	names, err := d.Readdirnames(-1)
	d.Close()
	if err != nil {
		return err
	}
	for _, name := range names {
		info, err := dir.Lstat(name)
		if err != nil {
			return err
		}
		e := treeEntry{kind: info.Mode().Type(), mode: info.Mode().Perm(), time: info.ModTime(), changed: info.Sys().(*syscall.Stat_t).Ctim}
		at := path.Join(below, name)
		switch e.kind {
		case 0:
			b, err := dir.ReadFile(name)
			if err != nil {
				return err
			}
			e.content = summed(b)
		case fs.ModeSymlink:
			if e.content, err = dir.Readlink(name); err != nil {
				return err
			}
		case fs.ModeDir:
			sub, err := dir.OpenRoot(name)
			if err == nil {
				err = t.read(sub, at)
			}
			if err != nil {
				return err
			}
		}
		t[at] = e
	}
	return nil
}

// summed returns a text, or of a long one the length and the sum.
func summed(b []byte) string {
	if len(b) > 64<<10 {
		return fmt.Sprintf("%d bytes with the sum %x", len(b), sha256.Sum256(b))
	}
	return string(b)
}

// same reports whether two entries have the same content.
func (e treeEntry) same(o treeEntry) bool { return e.kind == o.kind && e.content == o.content }

// differs tells how o differs from t, in one line, or returns "".
func (t tree) differs(o tree) string {
	for _, at := range slices.Sorted(maps.Keys(t)) {
		e := t[at]
		got, here := o[at]
		switch {
		case !here && e.maybe:
		case !here:
			return fmt.Sprintf("%q is missing", at)
		case !e.same(got):
			return fmt.Sprintf("%q is %s, not %s", at, got, e)
		case e.kind == 0 && (e.mode^got.mode)&0o100 != 0 && !strings.HasPrefix(e.content, largeSum):
			return fmt.Sprintf("%q has the mode %v, not %v", at, got.mode, e.mode)
		case e.kind == 0 && !e.time.IsZero() && !got.time.Equal(e.time):
			return fmt.Sprintf("%q has the time %v, not %v", at, got.time, e.time)
		}
	}
	for _, at := range slices.Sorted(maps.Keys(o)) {
		if _, ok := t[at]; !ok {
			return fmt.Sprintf("%q, %s, should not be there", at, o[at])
		}
	}
	return ""
}

func (e treeEntry) String() string {
	kind := map[fs.FileMode]string{0: "a file", fs.ModeDir: "a directory", fs.ModeSymlink: "a link"}[e.kind]
	return fmt.Sprintf("%s of %d bytes %.60q", kind, len(e.content), e.content)
}

// differs tells how an outcome differs from o, what it should be, in one line, or returns "".
// What it lets pass, as expected does, is listed in dbatch(5), "Other than by hand".
func (o outcome) differs(w way, got outcome) string {
	if o.spoil && !w.cluster {
		switch _, did := got.home[spoiled]; {
		case strings.HasPrefix(got.end, "failed") && strings.HasPrefix(got.reason, `the shared input "input/big.dat" was changed`),
			o.unbuilt && got.end == "failed " && strings.HasPrefix(got.reason, "build failed on "+w.name):
			return ""
		case did && got.end == "done":
			return "it is done, and has changed a shared input"
		case got.end != "done" && got.end == o.end:
			return "" // it may have failed for the change
		}
	}
	switch {
	case o.build != "":
		return o.buildDiffers(w, got)
	case o.begins != "" && !w.cluster:
		// Whether it was stopped or had ended is chance, and so is the rest.
		if !strings.HasPrefix(got.end, "failed") || !strings.HasSuffix(got.reason, "it printed more than 8M") {
			return fmt.Sprintf("it is %q (%s), and printed more than 8M", got.end, got.reason)
		}
		if got.printed[""] != o.begins {
			return fmt.Sprintf("output is %s, not the beginning of it", short(got.printed[""]))
		}
		return ""
	}
	if got.end != o.end {
		return fmt.Sprintf("it is %q (%s), not %q", got.end, got.reason, o.end)
	}
	for _, rank := range slices.Sorted(maps.Keys(o.printed)) {
		if is, known := got.printed[rank]; (known || rank != " of the build") && is != o.printed[rank] {
			return fmt.Sprintf("output%s is %s, not %s", rank, short(got.printed[rank]), short(o.printed[rank]))
		}
	}
	if d := o.home.differs(got.home); d != "" {
		return "of what came home " + d
	}
	said := slices.DeleteFunc(slices.Clone(got.skipped), func(at string) bool { return slices.Contains(o.maybe, at) })
	if slices.Sort(o.skipped); !slices.Equal(o.skipped, slices.Sorted(slices.Values(said))) {
		return fmt.Sprintf("it says that %q was not kept, not %q", said, o.skipped)
	}
	// Of a job that is done the reason names one of them.
	if o.end != "done" || len(got.skipped) == 0 && !got.mounted {
		if got.reason != o.reason {
			return fmt.Sprintf("the reason is %q, not %q", got.reason, o.reason)
		}
	} else if !strings.Contains(got.reason, "not kept") {
		return fmt.Sprintf("the reason is %q, and %q was not kept", got.reason, got.skipped)
	}
	return ""
}

// buildDiffers is differs of a job whose build has failed, or printed too much.
func (o outcome) buildDiffers(w way, got outcome) string {
	why, where := strings.TrimPrefix(o.build, "failed "), "build failed on "+w.name
	switch {
	case o.begins != "" && w.cluster: // where that is no failure
		return ""
	case o.begins != "":
		why = "it printed more than 8M"
	case !strings.HasPrefix(why, "SIG"):
		why = "exit " + why
	}
	if w.cluster {
		where, why = "the build failed on the cluster (build_output.txt)", ""
	}
	// Jobs that were to begin while it ran have the reason: an exit status, or what it printed last.
	says, more := strings.CutPrefix(got.reason, where)
	if got.end != "failed " || says != "" && !(more && !w.cluster && (strings.Contains(says, why) || o.said != "" && strings.Contains(says, o.said))) {
		return fmt.Sprintf("it is %q (%s), and the build has failed (%s)", got.end, got.reason, why)
	}
	text, known := got.printed[" of the build"]
	is, expected := strings.TrimSuffix(text, "\n"), strings.TrimSuffix(o.printed[" of the build"], "\n")
	if o.begins != "" {
		expected = strings.TrimSuffix(o.begins, "\n")
	}
	if known && is != expected {
		return fmt.Sprintf("output of the build is %s, not %s", short(is), short(expected))
	}
	for at := range got.home {
		if at != "build_output.txt" {
			return fmt.Sprintf("%q came home, and the build has failed", at)
		}
	}
	return ""
}

func short(s string) string {
	if len(s) > 400 {
		return fmt.Sprintf("%d bytes %q…%q", len(s), s[:200], s[len(s)-200:])
	}
	return strconv.Quote(s)
}

// expected returns what comes home of a directory, by what there was before a program and
// what it has left, and what is named as not kept, by dbatch(5), "Other than by hand". A person who is not root cannot read
// everything that is theirs.
func expected(before, after tree, person bool) (home tree, skipped, maybe []string) {
	home = tree{}
	began := time.Now().Add(-time.Hour)
	closed := map[string]bool{}
	for _, at := range slices.SortedFunc(maps.Keys(after), comparePaths) {
		e, was := after[at], before[at]
		if path.Base(at) == "m" || closed[path.Dir(at)] {
			closed[at] = true
			continue
		}
		if base := path.Base(at); !utf8.ValidString(base) || strings.IndexFunc(base, unicode.IsControl) >= 0 {
			closed[at] = true
			if _, there := before[at]; !there {
				skipped = append(skipped, strconv.QuoteToASCII(at))
			} else {
				maybe = append(maybe, strconv.QuoteToASCII(at))
			}
			continue
		}
		if len(at) > 4096 {
			skipped = append(skipped, at)
			continue
		}
		_, there := before[at]
		old := there && e.same(was)
		switch e.kind {
		case fs.ModeDir:
			if person && e.mode&0o500 != 0o500 {
				if closed[at] = true; there {
					maybe = append(maybe, at)
				} else {
					skipped = append(skipped, at)
				}
				continue
			}
		case fs.ModeSymlink:
			if to := path.Join(path.Dir(at), e.content); path.IsAbs(e.content) || to == ".." || strings.HasPrefix(to, "../") {
				if old {
					maybe = append(maybe, at)
				} else {
					skipped = append(skipped, at)
				}
				continue
			}
		case 0:
			if person && e.mode&0o400 == 0 {
				if old {
					maybe = append(maybe, at)
				} else {
					skipped = append(skipped, at)
				}
				continue
			}
		default:
			skipped = append(skipped, at)
			continue
		}
		if e.maybe = old; old && e.kind != fs.ModeDir && e.changed == was.changed {
			continue
		}
		if e.time.After(began) {
			e.time = time.Time{} // of when the program ran
		} else if e.time.Before(time.Unix(0, 0)) {
			e.time = time.Unix(0, 0)
		} else if last := time.Date(2241, 12, 31, 23, 59, 59, 0, time.UTC); e.time.After(last) {
			e.time = last
		}
		home[at] = e
	}
	return home, skipped, maybe
}

// comparePaths sorts a directory before what is in it.
func comparePaths(a, b string) int {
	return slices.Compare(strings.Split(a, "/"), strings.Split(b, "/"))
}
