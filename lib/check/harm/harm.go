// Package harm damages directories at random, for tests of their repair. Only tests import it.
package harm

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"distribute/lib/check"
	"distribute/lib/durable"
	"distribute/lib/suite"
)

// Each makes a whole directory and calls try once for each seed. D_HARM sets how many seeds
// there are, and D_SEED the first one. Root, whom no mode hinders, tries half of them as
// another user, in a process of its own.
func Each(t *testing.T, few int, whole func() string, try func(t *testing.T, whole string, seed uint64)) {
	n, first := suite.Size(few, 300), uint64(0)
	if v := os.Getenv("D_HARM"); v != "" {
		n, _ = strconv.Atoi(v)
	}
	if v := os.Getenv("D_SEED"); v != "" {
		first, _ = strconv.ParseUint(v, 10, 64)
	}
	const child = "D_HARM_CHILD"
	step := uint64(1)
	switch {
	case os.Getenv(child) != "":
		if err := errors.Join(syscall.Setgroups(nil), syscall.Setgid(other), syscall.Setuid(other)); err != nil {
			t.Fatal(err)
		}
		first, step = first+1, 2
	case os.Geteuid() == 0:
		within := time.Duration(0)
		if until, ok := t.Deadline(); ok {
			within = time.Until(until) * 9 / 10
		}
		program, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), program, "-test.run=^"+t.Name()+"$", "-test.timeout="+within.String())
		cmd.Env = append(os.Environ(), child+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("as user %d: %v\n%s", other, err, out)
		}
		step = 2
	}
	dir := whole()
	for i := uint64(0); i < uint64(n); i += step {
		t.Run(fmt.Sprint("seed ", first+i), func(t *testing.T) { try(t, dir, first+i) })
	}
}

// other is the number of a user who has nothing else.
const other = 61000

// A Harm is the damages of one directory.
type Harm struct {
	Dir    string            // the directory
	Told   string            // the damages, in words
	Paths  []string          // of the damaged files and directories
	Before map[string]string // content of each regular file, after the damages
	closed []string          // paths whose mode was changed

	outside  string
	unharmed map[string]string // content of the files outside
}

// damage copies the directory whole and damages between one and four files or directories
// of the copy, but not the file named lock. Links may lead to whole.
func damage(t *testing.T, r *rand.Rand, whole, lock string) (*Harm, error) {
	dir := filepath.Join(t.TempDir(), "copy")
	if out, err := exec.Command("cp", "-a", whole, dir).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	t.Cleanup(func() { // so that all can be removed
		filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
			if e != nil && e.IsDir() {
				os.Chmod(name, 0o700)
			}
			return nil
		})
	})
	h := &Harm{Dir: dir, outside: whole}
	n := 1
	if r.IntN(2) == 0 {
		n += r.IntN(4)
	}
	var modes []func() error // they come last: no mode is to hinder another damage
	for range n {
		told, path, mode, err := one(r, dir, whole, lock)
		h.Told, h.Paths = strings.TrimPrefix(h.Told+"; "+told, "; "), append(h.Paths, path)
		if err != nil {
			return h, fmt.Errorf("%s: %w", h.Told, err)
		}
		if modes = append(modes, mode); mode != nil {
			h.closed = append(h.closed, path)
		}
	}
	var err, err2 error
	h.unharmed, err = Files(whole)
	h.Before, err2 = Files(dir)
	if err := errors.Join(err, err2); err != nil {
		return h, err
	}
	for _, f := range modes {
		if f != nil {
			err = errors.Join(err, f())
		}
	}
	return h, err
}

// one damages one file or directory, or returns how its mode or owner is to be changed.
func one(r *rand.Rand, dir, outside, lock string) (told, rel string, mode func() error, err error) {
	var all []string
	kinds := map[string][]string{} // paths by their last element: what may be mistaken for another
	err = filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(dir, name)
		if err == nil && rel != lock {
			all = append(all, rel)
		}
		return err
	})
	if err != nil {
		return "", "", nil, err
	}
	// The names of tokens differ from one run to the next: a seed is to mean the same.
	order := map[string]string{}
	for _, rel := range all {
		text, _ := durable.ReadFile(filepath.Join(dir, rel), 1<<30)
		if len(text) == 0 {
			text, _ = durable.ReadFile(filepath.Join(dir, rel, "attempt.jsonl"), 1<<30)
		}
		order[rel] = masked(filepath.Dir(rel)) + "/" + masked(filepath.Base(rel)) + " " + masked(string(text[:min(len(text), 4096)]))
	}
	slices.SortStableFunc(all, func(a, b string) int { return strings.Compare(order[a], order[b]) })
	for _, rel := range all {
		kind := masked(filepath.Base(rel))
		kinds[kind] = append(kinds[kind], rel)
	}
	// One of each kind of place as often as of another, so that few files are not rare.
	rel = pick(r, kinds[pick(r, slices.Sorted(maps.Keys(kinds)))])
	if r.IntN(2) == 0 {
		rel = pick(r, all)
	}
	name := filepath.Join(dir, rel)
	info, err := os.Lstat(name)
	if err != nil {
		return "", "", nil, err
	}
	ways := []string{"chmod", "chown"}
	if rel != "." {
		ways = append(ways, "delete", "link", "fifo", "stranger")
		if info.IsDir() {
			ways = append(ways, "file", "empty directory")
		} else {
			ways = append(ways, "directory")
		}
		if len(kinds[masked(filepath.Base(rel))]) > 1 {
			ways = append(ways, "other", "other")
		}
	}
	if info.Mode().IsRegular() && info.Size() > 0 {
		ways = append(ways, "cut", "lines", "empty", "zero", "flip", "flip")
	}
	way := pick(r, ways)
	told = way + " " + rel
	gone := func() error { return os.RemoveAll(name) }
	var text []byte
	if info.Mode().IsRegular() {
		if text, err = os.ReadFile(name); err != nil {
			return told, rel, nil, err
		}
	}
	write := func(text []byte) error {
		if info.Mode().IsRegular() {
			os.Chmod(name, info.Mode().Perm()|0o600)
		}
		return os.WriteFile(name, text, 0o600)
	}
	switch way {
	case "chmod":
		to := pick(r, []fs.FileMode{0, 0o777, 0o500, 0o200, 0o666, 0o755 | fs.ModeSetuid})
		told += fmt.Sprintf(" %v", to)
		mode = func() error {
			if info, err := os.Lstat(name); err != nil || info.Mode()&fs.ModeSymlink != 0 {
				return nil
			}
			return os.Chmod(name, to)
		}
	case "chown":
		mode = func() error {
			if _, err := os.Lstat(name); err != nil || os.Geteuid() != 0 {
				return nil
			}
			return os.Lchown(name, other, other)
		}
	case "delete":
		err = gone()
	case "link":
		to := pick(r, []string{outside, filepath.Join(outside, rel), "nowhere", dir})
		told += " to " + to
		if err = gone(); err == nil {
			err = os.Symlink(to, name)
		}
	case "fifo":
		if err = gone(); err == nil {
			err = syscall.Mkfifo(name, 0o600)
		}
	case "stranger":
		rel = filepath.Join(filepath.Dir(rel), pick(r, []string{"stranger", ".hidden", ".x.0123456789abcdef.tmp", "0", "~", "a b", "\xff\n"}))
		told = "stranger " + strconv.Quote(rel)
		if name = filepath.Join(dir, rel); r.IntN(2) == 0 {
			err = write([]byte("a stranger"))
		} else if err = os.Mkdir(name, 0o700); errors.Is(err, fs.ErrExist) {
			err = nil
		}
	case "file":
		if err = gone(); err == nil {
			err = write([]byte("a file"))
		}
	case "directory", "empty directory":
		if err = gone(); err == nil {
			err = os.Mkdir(name, 0o700)
		}
	case "other":
		from := pick(r, kinds[masked(filepath.Base(rel))])
		told += " by " + from
		err = replace(filepath.Join(dir, from), name)
	case "cut":
		err = write(text[:r.IntN(len(text))])
	case "lines":
		err = write(text[:bytes.LastIndexByte(text[:r.IntN(len(text))], '\n')+1])
	case "empty":
		err = write(nil)
	case "zero":
		from := r.IntN(len(text))
		clear(text[from : from+r.IntN(len(text)-from)+1])
		err = write(text)
	case "flip":
		text[r.IntN(len(text))] ^= 1 << r.IntN(8)
		err = write(text)
	}
	return told, rel, mode, err
}

// random matches what differs from one run to the next.
var random = regexp.MustCompile(`[0-9a-f]{32,}|[0-9]+`)

func masked(s string) string { return random.ReplaceAllString(s, "#") }

func pick[T any](r *rand.Rand, all []T) T { return all[r.IntN(len(all))] }

// replace puts a copy of from in the place of to.
func replace(from, to string) error {
	if from == to || strings.HasPrefix(from, to+"/") || strings.HasPrefix(to, from+"/") {
		return nil
	}
	info, err := os.Lstat(from)
	if err != nil {
		return err
	}
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	if out, err := exec.Command("cp", "-a", from, to).CombinedOutput(); err != nil {
		return fmt.Errorf("%v, %w: %s", info.Mode(), err, out)
	}
	return nil
}

// Files returns the content of each regular file below dir by its path. Directories that
// cannot be listed are left out.
func Files(dir string) (map[string]string, error) {
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(name)
		if errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, name)
		all[rel] = string(text)
		return nil
	})
	return all, err
}

// Repair copies the directory whole, damages the copy at random, and has look find and mend
// that. It looks twice more: the second time it tells nothing but what the first left to
// people, and the third time it changes nothing. Files that were not damaged are there as
// they were, but for the one named lock, and no link was followed. Repair returns the first
// findings and the files after the repair; these are nil if look fails for damages of the
// file named vital, without which no program goes on.
func Repair(t *testing.T, r *rand.Rand, whole, lock, vital string, look func(*check.Run) error) (h *Harm, first []*check.Finding, mended map[string]string) {
	t.Helper()
	h, err := damage(t, r, whole, lock)
	if err != nil {
		t.Fatal(err)
	}
	dir := h.Dir
	run := func(mend bool) (found []*check.Finding, err error) {
		r := &check.Run{Dir: dir, Sums: true, Mend: mend, Key: check.PEM, Tell: func(f *check.Finding) error { found = append(found, f); return nil }}
		return found, look(r)
	}
	defer func() {
		if !h.untouched() {
			t.Errorf("%s: a link was followed", h.Told)
		}
	}()
	delete(h.Before, lock)
	first, err = run(true)
	if err != nil && h.At(vital) {
		return h, first, nil
	}
	if err != nil {
		t.Fatalf("%s: %v", h.Told, err)
	}
	second, err := run(false)
	if err != nil {
		t.Fatalf("%s; a second time: %v", h.Told, err)
	}
	if !known(first, second) {
		h.Fail(t, "told", first)
		h.Fail(t, "after that", second)
	}
	if mended, err = Files(dir); err != nil {
		t.Fatal(err)
	}
	for _, gone := range h.Lost(h.Before, mended) {
		h.Fail(t, gone+" is not what it was", first)
	}
	third, err := run(true)
	if again, ferr := Files(dir); err != nil || ferr != nil || !maps.Equal(mended, again) ||
		slices.ContainsFunc(third, func(f *check.Finding) bool { return f.Cured }) {
		h.Fail(t, fmt.Sprintf("mending again (%v, %v)", err, ferr), third)
	}
	return h, first, mended
}

// Fail fails the test with the damages and what was found.
func (h *Harm) Fail(t *testing.T, how string, found []*check.Finding) {
	t.Helper()
	t.Errorf("%s; %s:\n%s", h.Told, how, Lines(found))
}

// Lines returns findings as text, a line for each.
func Lines(found []*check.Finding) string {
	var b strings.Builder
	for _, f := range found {
		b.WriteString(f.Text() + "\n")
	}
	return b.String()
}

// untouched reports whether the directory to which links lead is as it was.
func (h *Harm) untouched() bool {
	now, err := Files(h.outside)
	return err == nil && maps.Equal(now, h.unharmed)
}

// At reports whether path, or a directory above it, was damaged.
func (h *Harm) At(path string) bool { return below(path, h.Paths) }

// below reports whether path is one of some, or below one.
func below(path string, some []string) bool {
	return slices.ContainsFunc(some, func(p string) bool { return p == "." || path == p || strings.HasPrefix(path, p+"/") })
}

// Lost returns the paths of before that are not there as they were: a log may be longer.
// A file may be elsewhere if it, a directory above it, or the log or the jobs in such a
// directory were damaged.
func (h *Harm) Lost(before, now map[string]string) (lost []string) {
	var homes []string
	for _, p := range h.Paths {
		switch filepath.Base(p) {
		case "log.jsonl", "jobs.jsonl", "attempt.jsonl":
			p = filepath.Dir(p)
		}
		homes = append(homes, p)
	}
	elsewhere := func(text string) bool {
		for _, other := range now {
			if strings.HasPrefix(other, text) {
				return true
			}
		}
		return false
	}
	for _, path := range slices.Sorted(maps.Keys(before)) {
		is, ok := now[path]
		if rest, torn := strings.CutSuffix(before[path], now[path+".1.broken"]); ok && torn && strings.HasPrefix(is, rest) {
			continue // the torn end of a log is kept beside it, and records may have come
		}
		if !ok && below(path, h.closed) { // nobody can read it
			continue
		}
		if !below(path, homes) || !elsewhere(before[path]) {
			lost = append(lost, path)
		}
	}
	return lost
}

// known reports whether all that a later check has found is what an earlier one found and
// did not mend.
func known(first, later []*check.Finding) bool {
	for _, f := range later {
		if !slices.ContainsFunc(first, func(was *check.Finding) bool {
			return !was.Cured && was.Kind == f.Kind && was.Path == f.Path
		}) {
			return false
		}
	}
	return true
}
