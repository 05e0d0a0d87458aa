package desk

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/gofrs/flock"

	"distribute/lib/durable"
	"distribute/lib/job"
	"distribute/lib/pause"
)

// Format is the version of the directory's format.
const Format = 1

// ErrInUse says that another daemon uses the directory.
var ErrInUse = errors.New("in use")

// ErrNoDesk says that a directory is not a node's, or not one of this version.
var ErrNoDesk = errors.New("not a node's directory")

// A Desk is an opened directory.
type Desk struct {
	dir   string
	state string
	boot  string
	mode  fs.FileMode // of those directories in it that others may go through
	lock  *flock.Flock

	hoard hoard

	told    sync.Mutex // held while node.json is written
	session uint64     // as in about

	mu      sync.Mutex        // never held while something is written
	trashed int               // names in trash/
	specs   map[string]*Build // that were read, by directory; they are not changed
}

// about is node.json.
type about struct {
	Format  int    `json:"format"`
	State   string `json:"state"`
	Session uint64 `json:"session,omitempty"` // the number of the last session with a head
}

// Open opens the directory, which it makes if it is not there or is empty, and
// locks it. Boot is the id of this boot: small inputs that were cached in an
// earlier one are removed, because they were not synced. Directories that are
// not a node's are refused.
//
// The directory is the daemon's alone, but for the place of pauses in it.
func Open(dir, boot string) (*Desk, error) { return openWith(dir, boot, 0o700) }

// OpenPassable is [Open] for a daemon whose jobs run as others: they go to what is
// theirs, and cannot list what they go through.
func OpenPassable(dir, boot string) (*Desk, error) { return openWith(dir, boot, passable) }

// CheckPath returns an error if the path of a directory is not UTF-8: supervisors are told paths below
// it as JSON.
func CheckPath(dir string) error {
	dir, err := filepath.Abs(dir)
	if err == nil && !utf8.ValidString(dir) {
		err = fmt.Errorf("no job can run below %q, as the path is not UTF-8: name another directory", dir)
	}
	return err
}

func openWith(dir, boot string, mode fs.FileMode) (*Desk, error) {
	dir, err := filepath.Abs(dir)
	if err == nil {
		err = CheckPath(dir)
	}
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	d := &Desk{dir: dir, boot: boot, mode: mode, hoard: hoard{pins: map[string]int{}, fresh: map[string]bool{}, times: map[string]time.Time{}, reading: make(chan struct{}, 1)}, specs: map[string]*Build{}}
	if err := d.check(); err != nil {
		return nil, err
	}
	if err := d.private(); err != nil { // of another user nothing is written
		return nil, err
	}
	if d.lock, err = hold(filepath.Join(dir, "lock")); err != nil {
		return nil, err
	}
	if err := d.begin(); err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

// private lets others go through the directory to the place of pauses and to
// nothing else, and keeps them from listing it: jobs of others, and what they
// wrote, are in it. What was made there by hand is closed too.
func (d *Desk) private() error {
	info, err := os.Stat(d.dir)
	if err != nil {
		return err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("%q belongs to user %d: give dnoded a directory of its own with -D", d.dir, st.Uid)
	}
	entries, err := os.ReadDir(d.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		switch e.Name() {
		case "attempts", "builds", "pause", "pause-ended", "pause-made", "pause-seen", "pause-owners", "pause-offer", pause.Parts:
		default:
			if err := shut(d.path(e.Name())); err != nil {
				return err
			}
		}
	}
	if err := d.makePlace(); err != nil {
		return err
	}
	if info.Mode().Perm() == passable {
		return nil
	}
	return os.Chmod(d.dir, passable)
}

// shut takes everybody else's rights from a file or a directory of this user. What
// is another's was put there by somebody who may.
func shut(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if ok && int(st.Uid) == os.Geteuid() && (info.IsDir() || info.Mode().IsRegular()) && info.Mode().Perm()&0o077 != 0 {
		return os.Chmod(path, info.Mode().Perm()&0o700)
	}
	return nil
}

// makePlace makes the place in which everybody may pause this node.
func (d *Desk) makePlace() error {
	name := pause.OwnPlace(d.dir)
	if err := os.Mkdir(name, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	info, err := os.Lstat(name)
	if err != nil {
		return err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || !ok || int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("%q is to be a directory of the user of dnoded: remove it", name)
	}
	if mode := info.Mode(); mode != pause.Open && mode != pause.Closed {
		return os.Chmod(name, pause.Open)
	}
	return nil
}

// Close gives the directory up.
func (d *Desk) Close() error { return d.lock.Close() }

// Dir is the directory's absolute path.
func (d *Desk) Dir() string { return d.dir }

// State is the random id of what the directory remembers: a directory made anew
// has another.
func (d *Desk) State() string { return d.state }

// Session returns the number of the last session that the directory knows; 0: of none.
func (d *Desk) Session() uint64 {
	d.told.Lock()
	defer d.told.Unlock()
	return d.session
}

// SetSession makes the number of a session durable, unless the directory knows a later one.
func (d *Desk) SetSession(n uint64) error {
	d.told.Lock()
	defer d.told.Unlock()
	if n <= d.session {
		return nil
	}
	b, err := json.Marshal(about{Format, d.state, n})
	if err == nil {
		err = durable.WriteFile(d.path("node.json"), append(b, '\n'), 0o600)
	}
	if err == nil {
		d.session = n
	}
	return err
}

// check refuses a directory with somebody else's files, before anything is
// written into it.
func (d *Desk) check() error {
	entries, err := os.ReadDir(d.dir)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == "node.json" }) {
		return nil
	}
	for _, e := range entries {
		switch n := e.Name(); {
		case n == "lock", n == "pause", n == "pause-ended", n == "pause-made", n == "pause-seen", n == "pause-owners", n == "pause-offer", n == pause.Parts, n == "attempts", n == "builds", n == "cache", n == "trash", n == "ballast", n == "spare", n == "lost+found", strings.HasPrefix(n, "."):
		case strings.HasPrefix(n, "node.yaml"), n == "#node.yaml#": // also what editors leave
		case n == "key", n == "ssh_key", n == "ssh_key.pub", strings.HasPrefix(n, "known_hosts"): // what dnoded -init and ssh-keygen make
		default:
			return fmt.Errorf("%q is %w: it has %q and no node.json; name an empty or a new one with -D", d.dir, ErrNoDesk, n)
		}
	}
	return nil
}

// forking is how long a lock may outlive a daemon that was killed while it
// started a process: that has the lock's file open until it is another program.
const forking = time.Second

// hold takes the lock of the directory. The file is never removed: two holders
// could have two files of that name. What jobs have put in its place, root neither
// follows nor waits for.
func hold(name string) (*flock.Flock, error) {
	const own = syscall.O_NOFOLLOW | syscall.O_NONBLOCK
	l := flock.New(name, flock.SetFlag(os.O_RDWR|os.O_CREATE|own), flock.SetPermissions(0o600))
	ok, err := l.TryLock()
	for begun := time.Now(); !ok && err == nil && time.Since(begun) < forking; ok, err = l.TryLock() {
		time.Sleep(forking / 100)
	}
	if errors.Is(err, syscall.ELOOP) {
		return nil, fmt.Errorf("%q is a link: remove it", name)
	}
	if err != nil {
		return nil, err
	}
	if !ok {
		who, _ := durable.ReadFile(name, 1<<10)
		return nil, fmt.Errorf("%q is %w by another dnoded (%.100q); stop that one, or give this one a directory of its own with -D",
			filepath.Dir(name), ErrInUse, strings.TrimSpace(string(who)))
	}
	host, _ := os.Hostname()
	f, err := durable.Open(name, os.O_WRONLY, 0)
	if err == nil {
		err = durable.Overwrite(f, fmt.Appendf(nil, "pid %d on %s\n", os.Getpid(), host)) // also on a full disk
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// begin reads or makes node.json and removes what a crash left half done.
func (d *Desk) begin() error {
	for _, sub := range []string{"attempts", "builds", "cache", "trash", "spare"} {
		info, err := os.Lstat(d.path(sub))
		switch {
		case err == nil && !info.IsDir():
			return fmt.Errorf("%w: %q should be a directory, which no link replaces: remove it; to use another disk, give dnoded a directory there with -D", ErrNoDesk, d.path(sub))
		case errors.Is(err, fs.ErrNotExist) && sub != "spare": // which Stock makes
			err = os.Mkdir(d.path(sub), 0o700)
		case err == nil:
			err = reopen(d.path(sub))
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	for _, sub := range []string{"attempts", "builds"} {
		if err := os.Chmod(d.path(sub), d.mode); err != nil {
			return err
		}
	}
	name := filepath.Join(d.dir, "node.json")
	b, err := durable.ReadFile(name, 1<<20)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		b, err = json.Marshal(about{Format: Format, State: string(job.NewToken())})
		if err == nil {
			err = durable.WriteFile(name, append(b, '\n'), 0o600)
		}
	case err == nil:
		// Who made it may have been killed before it was on the disk. With another
		// state after a power cut, the head would take all that is here for lost.
		err = errors.Join(durable.SyncFile(name), durable.SyncDir(d.dir))
	}
	if err != nil {
		return err
	}
	var a about
	if err := json.Unmarshal(b, &a); err != nil || a.State == "" {
		return fmt.Errorf("%w: %q is damaged: it is to say the format and the state of this directory; give dnoded a new directory with -D", ErrNoDesk, name)
	}
	if a.Format != Format {
		return fmt.Errorf("%w: %q has format %d, and this version reads %d: use the dnoded that made it, or give this one a new directory with -D", ErrNoDesk, d.dir, a.Format, Format)
	}
	d.state, d.session = a.State, a.Session
	if err := d.emptyTrash(); err != nil {
		return err
	}
	d.Stock()
	return d.cleanCache()
}

// emptyTrash ends the removals that a crash cut short, and removes what was
// being written beside them. What cannot be removed stays in trash/, where it is
// in nobody's way.
func (d *Desk) emptyTrash() error {
	beside, err := os.ReadDir(d.dir)
	if err != nil {
		return err
	}
	for _, e := range beside {
		if durable.IsTemp(e.Name()) && e.Type().IsRegular() {
			if err := os.Remove(d.path(e.Name())); err != nil {
				return err
			}
		}
	}
	entries, err := os.ReadDir(d.path("trash"))
	if err != nil {
		return err
	}
	for _, e := range entries {
		removeTrash(d.path("trash", e.Name()))
	}
	return nil
}

// discard removes a directory of attempts/ or builds/: first out of sight in one
// step, then for good.
func (d *Desk) discard(path string) error {
	rest, err := d.trash(path)
	if err != nil {
		return err
	}
	return rest()
}

// trash takes a directory out of sight; rest removes it.
func (d *Desk) trash(path string) (rest func() error, err error) {
	dropShort(path)
	var to string
	for taken := true; taken; taken = errors.Is(err, syscall.ENOTEMPTY) || errors.Is(err, syscall.EEXIST) || errors.Is(err, syscall.ENOTDIR) {
		d.mu.Lock()
		d.trashed++
		to = d.path("trash", strconv.Itoa(d.trashed))
		d.mu.Unlock()
		err = os.Rename(path, to)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return func() error { return nil }, nil
	}
	return func() error {
		if removeFlat(to) {
			return nil
		}
		return removeTrash(to)
	}, err
}

// removeTrash removes a directory in trash/.
func removeTrash(dir string) error {
	unmountFUSE(dir)
	return RemoveAll(dir)
}

// removeFlat removes a directory of files and empty directories with few system
// calls, which is what most attempts leave; it says false if more is there, or if it is no
// directory but a link to one.
func removeFlat(dir string) bool {
	f, err := os.OpenFile(dir, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return false
	}
	names, err := f.Readdirnames(-1)
	f.Close()
	if err != nil {
		return false
	}
	for _, n := range names {
		path := dir + "/" + n
		err := syscall.Unlink(path)
		if err == syscall.EISDIR {
			err = syscall.Rmdir(path)
		}
		if err != nil {
			return false
		}
	}
	return syscall.Rmdir(dir) == nil
}

func (d *Desk) path(parts ...string) string {
	return filepath.Join(append([]string{d.dir}, parts...)...)
}
