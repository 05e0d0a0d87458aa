package desk

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"distribute/lib/durable"
	"distribute/lib/proc"
)

// noFollow is UMOUNT_NOFOLLOW of umount2(2).
const noFollow = 8

// Mounts is the paths below dir, "." for dir itself, at which something is mounted. What is
// there is not the job's, which has mounted it, and must be neither read nor removed. It is
// not unmounted either: on a machine whose mounts are shared that could take the same away
// from where it was mounted before. It costs reading the list of what is mounted here.
func Mounts(dir string) (paths []string, err error) {
	all, err := readMounts()
	if err != nil {
		return nil, err
	}
	parent, err := filepath.EvalSymlinks(filepath.Dir(dir))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	dir = filepath.Join(parent, filepath.Base(dir)) // which may be a link itself: not followed
	for _, m := range all {
		if below, ok := m.below(dir); ok {
			paths = append(paths, below)
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths), nil
}

// A mount is a line of mountinfo of proc(5).
type mount struct {
	id     string
	device string // of the file system
	path   string
	kind   string // of the file system
}

// below returns the path of a mount relative to dir, a clean absolute path, if it is dir or below it.
// It is called for each two of the mounts below a directory that is removed.
func (m mount) below(dir string) (path string, ok bool) {
	if m.path == dir {
		return ".", true
	}
	path, ok = strings.CutPrefix(m.path, strings.TrimSuffix(dir, "/"))
	if !ok || !strings.HasPrefix(path, "/") {
		return "", false
	}
	return path[1:], true
}

func readMounts() (all []mount, err error) {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	for l := range strings.Lines(string(b)) {
		about, of, _ := strings.Cut(l, " - ")
		words := strings.Split(about, " ")
		if len(words) < 5 {
			continue
		}
		kind, _, _ := strings.Cut(of, " ")
		all = append(all, mount{words[0], words[2], unescaped(words[4]), kind})
	}
	return all, nil
}

// unmountFUSE unmounts the file systems in user space below the directory of an attempt or a build
// that is to be removed: its processes have ended, and so have the servers that it started. It
// asks such a file system nothing, which may never answer. What is also mounted elsewhere, or
// has other mounts below it, stays.
func unmountFUSE(dir string) {
	all, err := readMounts()
	if err != nil {
		return
	}
	parent, err := filepath.EvalSymlinks(filepath.Dir(dir))
	if err != nil {
		return
	}
	dir = filepath.Join(parent, filepath.Base(dir))
	for _, m := range all {
		at, ok := m.below(dir)
		if !ok || at == "." || m.kind != "fuse" && !strings.HasPrefix(m.kind, "fuse.") {
			continue
		}
		if !slices.ContainsFunc(all, func(o mount) bool {
			_, here := o.below(dir)
			_, under := o.below(m.path)
			_, over := m.below(o.path)
			return o.id != m.id && (under || here && over || !here && o.device == m.device)
		}) {
			detach(dir, at)
		}
	}
}

// detach unmounts what is mounted at a path below dir, also while it is in use. If root runs it,
// no link on the way leads out of dir.
func detach(dir, at string) {
	root, err := durable.OpenRoot(dir)
	if err != nil {
		return
	}
	defer root.Close()
	parent, err := root.OpenFile(filepath.Dir(at), os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return
	}
	defer parent.Close()
	within := filepath.Join("/proc/self/fd", strconv.Itoa(int(parent.Fd())), filepath.Base(at))
	if syscall.Unmount(within, syscall.MNT_DETACH|noFollow) == nil || os.Geteuid() == 0 {
		return
	}
	// These follow links to the directory, but unmount only what their user has mounted.
	for _, helper := range []string{"fusermount3", "fusermount"} {
		ctx, cancel := context.WithTimeout(context.Background(), helperWithin)
		err := exec.CommandContext(ctx, helper, "-u", "-z", filepath.Join(dir, at)).Run()
		if cancel(); err == nil {
			return
		}
	}
}

// helperWithin is how long fusermount3(1) may take.
const helperWithin = 10 * time.Second

// unescaped is a path in which blanks and the like are written as octal numbers.
func unescaped(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// unmounted is an error if something is mounted in or below path.
func unmounted(path string) error {
	mounts, err := Mounts(path)
	if err == nil && len(mounts) > 0 {
		err = &fs.PathError{Op: "remove", Path: filepath.Join(path, mounts[0]), Err: errMounted}
	}
	return err
}

var errMounted = errors.New("it is mounted, and stays with all that is around it (umount it; what is in trash/ goes when dnoded starts)")

// ErrCovered is returned when the node's own files are hidden by something that cannot be
// unmounted.
var ErrCovered = errors.New("its job has mounted something there that cannot be unmounted (umount it)")

// Uncover unmounts what hides the node's own files in the directory of an attempt or a build
// whose processes have ended: only these can have mounted it. In and below the directories
// kept, everything stays mounted. An error, which has the path, is ErrCovered for what cannot
// be unmounted; if something else is mounted in it, that may be the machine's own and is not
// touched.
func Uncover(dir string, kept ...string) error {
	return uncover(dir, func(p string) bool {
		return !slices.ContainsFunc(kept, func(k string) bool { return p == k || strings.HasPrefix(p, k+"/") })
	})
}

// uncover unmounts in dir what hidden reports of its path.
func uncover(dir string, hidden func(path string) bool) error {
	for {
		mounts, err := Mounts(dir)
		if err != nil {
			return err
		}
		first := slices.IndexFunc(mounts, hidden) // what is above the others, which it may hide
		if first < 0 {
			return nil
		}
		path := filepath.Join(dir, mounts[first])
		if syscall.Unmount(path, noFollow) != nil {
			return &fs.PathError{Op: "unmount", Path: path, Err: ErrCovered}
		}
	}
}

// uncoverRecords unmounts what hides whole attempts or builds in one of the node's
// directories, or their records: also while they run, as else nobody knows of them.
func (d *Desk) uncoverRecords(in string) error {
	return uncover(d.path(in), func(p string) bool {
		_, below, _ := strings.Cut(p, "/")
		return p != "." && (below == "" || below == proc.RecordFile)
	})
}
