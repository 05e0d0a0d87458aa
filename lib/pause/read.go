package pause

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// How many files of a place are read: no user keeps the others' from being read
// by many of his own.
const (
	maxOfOne = 1000
	maxInAll = 10000
	maxEnded = 1 << 20 // bytes
)

// A Reader reads what is paused, whoever asks: dpause, a node or a supervisor.
type Reader struct {
	Places []string       // directories of pauses; those that are not there hold none
	Ended  string         // the file of the pauses that were ended by others than their holders; empty: none
	Owners string         // the file that says who may pause; empty, or not there: May does
	Seen   string         // the file in which the daemon notes the makers of pauses; empty: none
	May    func(int) bool // says of a uid whether it may pause; nil: everybody
	Owns   func(int) bool // says of a uid whether it owns the node; nil: root and this process's user

	Runs    func(int) bool // says of a uid whether the node's daemon runs as it, whose pauses may say why; nil: this process's user
	Session func(int) bool // says of a uid whether it has a session; nil: HasSession

	last State // what was read last
}

// Read is what is paused now. With an error something of it could not be read: there is
// no descriptor left, or something is not readable. Then what was known of that before
// holds on until its time is over.
func (r *Reader) Read() (State, error) {
	c, err := Here()
	if err != nil {
		return r.last, err
	}
	var unknown error
	if r.Owners != "" {
		uids, err := ReadOwners(r.Owners)
		switch {
		case err == nil && uids == nil:
			r.May, r.Owns = nil, nil
		case err == nil:
			r.May = func(uid int) bool { return slices.Contains(uids, uid) }
			r.Owns = r.May
		case !errors.Is(err, fs.ErrNotExist):
			unknown = err
		}
	}
	s, err := r.readAt(c)
	if err = errors.Join(unknown, err); err != nil {
		s = s.keep(r.last)
	}
	r.last = s
	return s, err
}

// readAt reads what the places say at the moment c.
func (r *Reader) readAt(c Clock) (State, error) {
	s := State{At: c}
	rule := ruling{now: c.Now, owns: r.Owns, session: r.Session}
	if rule.owns == nil {
		rule.owns = func(uid int) bool { return uid == 0 || uid == os.Geteuid() }
	}
	if rule.session == nil {
		rule.session = HasSession
	}
	if r.Seen != "" {
		rule.before = ReadSeen(r.Seen)
	}
	over, err := readEnded(r.Ended)
	errs := []error{err}
	var all []Pause
	for _, place := range r.Places {
		found, err := s.read(place)
		if err != nil {
			s.Lost, errs = append(s.Lost, place), append(errs, err)
		}
		all = append(all, found...)
	}
	all = slices.DeleteFunc(all, func(p Pause) bool {
		switch {
		case p.Ends != "":
			if rule.owns(p.UID) && !p.Changed.After(c.Now) {
				s.Ends = append(s.Ends, p)
			}
		case r.May != nil && !r.May(p.UID):
		case p.Attempt != "":
			if p.UID == os.Geteuid() {
				s.Of = append(s.Of, p)
			}
		default:
			return false
		}
		return true
	})
	for _, end := range r.last.Ends {
		if slices.Contains(s.Lost, end.Place) && rule.owns(end.UID) && !slices.ContainsFunc(s.Ends, func(p Pause) bool { return p.ID == end.ID && p.Place == end.Place }) {
			s.Ends = append(s.Ends, end)
		}
	}
	for i := range all {
		all[i].endBy(s.Ends)
	}
	rule.ends = s.Ends
	s.Seen = rule.apply(all)
	for _, p := range all {
		if runs := r.Runs; runs == nil && p.UID != os.Geteuid() || runs != nil && !runs(p.UID) {
			p.Why = ""
		}
		if over[p.ID] || !p.Live(c) {
			s.Over = append(s.Over, p)
		} else {
			s.Live = append(s.Live, p)
		}
	}
	slices.SortFunc(s.Live, byAge)
	return s, errors.Join(errs...)
}

// read reads one place.
func (s *State) read(place string) (found []Pause, err error) {
	dir, err := openPlace(place)
	if err != nil || dir == nil {
		return nil, err
	}
	defer dir.Close()
	list, err := candidates(dir, ownerOf, maxOfOne, maxInAll)
	if err != nil {
		return nil, err
	}
	for _, f := range list {
		p, err := readFile(dir, f)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ENOMEM) || errors.Is(err, unix.EIO):
			return found, err
		case err != nil:
			s.Odd = append(s.Odd, err)
			continue
		}
		p.Place = place
		found = append(found, p)
	}
	return found, nil
}

// openPlace opens a place, nil if there is none, or none for this user.
func openPlace(place string) (*os.File, error) {
	fd, err := unix.Open(place, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	switch err {
	case nil:
		return os.NewFile(uintptr(fd), place), nil
	case unix.ENOENT, unix.ENOTDIR, unix.ELOOP, unix.EACCES:
		return nil, nil
	}
	return nil, &fs.PathError{Op: "open", Path: place, Err: err}
}

// A candidate is a file that has the name of something of its owner's.
type candidate struct {
	name string
	uid  int
	rank int // among those of its owner
}

// candidates is the files to be read whose names say of whom they are, and which
// are of that user: at most so many of one, and in all. Where there are too many, each
// owner's first go before anybody's second, and those of people before those of the
// many numbers that one person can have in a user namespace.
func candidates(dir *os.File, ownerOf func(name string) (uid int, ok bool), ofOne, inAll int) ([]candidate, error) {
	var list []candidate
	of := map[int]int{}
	for names, err := dir.Readdirnames(1000); len(names) > 0 || err != io.EOF; names, err = dir.Readdirnames(1000) {
		if err != nil {
			return nil, err
		}
		for _, n := range names {
			uid, ok := ownerOf(n)
			if !ok || of[uid] >= ofOne {
				continue
			}
			var st unix.Stat_t
			if unix.Fstatat(int(dir.Fd()), n, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && int(st.Uid) == uid {
				list = append(list, candidate{n, uid, of[uid]})
				of[uid]++
			}
		}
	}
	if len(list) > inAll {
		slices.SortFunc(list, func(a, b candidate) int { return cmp.Or(a.rank-b.rank, a.uid-b.uid) })
		list = list[:inAll]
	}
	return list, nil
}

// readFile reads one pause. A file without content is one of a disk that was full:
// everything stands still until the time at which it says that it was changed.
func readFile(dir *os.File, f candidate) (Pause, error) {
	path := filepath.Join(dir.Name(), f.name)
	fd, err := unix.Openat(int(dir.Fd()), f.name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return Pause{}, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	var st unix.Statx_t
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_BASIC_STATS|unix.STATX_BTIME, &st); err != nil {
		return Pause{}, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Size > maxFile || int(st.Uid) != f.uid {
		return Pause{}, fmt.Errorf("%s: is no file of a pause", path)
	}
	var p Pause
	if st.Size == 0 {
		p = Pause{Made: timeOf(st.Ctime), Until: timeOf(st.Mtime)}
	} else {
		b := make([]byte, maxFile+1)
		n, err := unix.Read(fd, b)
		if err != nil {
			return Pause{}, &fs.PathError{Op: "read", Path: path, Err: err}
		}
		if p, err = Decode(b[:n]); err != nil {
			return Pause{}, fmt.Errorf("%s: %w", path, err)
		}
	}
	p.ID, p.UID, p.Changed = f.name, f.uid, timeOf(st.Ctime)
	p.touched = st.Mask&unix.STATX_BTIME != 0 && p.Changed.Sub(timeOf(st.Btime)) > touchedAfter
	return p, nil
}

func timeOf(t unix.StatxTimestamp) time.Time { return time.Unix(t.Sec, int64(t.Nsec)) }

// readEnded is the pauses that were ended.
func readEnded(name string) (map[string]bool, error) {
	over := map[string]bool{}
	if name == "" {
		return over, nil
	}
	b, err := readSmall(name, maxEnded)
	if errors.Is(err, fs.ErrNotExist) {
		return over, nil
	}
	for line := range bytes.Lines(b) {
		over[strings.TrimSuffix(string(line), "\n")] = true
	}
	return over, err
}

// readSmall reads a regular file that somebody else may have put there.
func readSmall(name string, most int64) ([]byte, error) {
	b, _, err := readSmallOf(name, most)
	return b, err
}

// readSmallOf is readSmall, and says what the file is that was read.
func readSmallOf(name string, most int64) ([]byte, fs.FileInfo, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > most {
		return nil, nil, fmt.Errorf("%s: is no file of at most %d bytes", name, most)
	}
	b := make([]byte, info.Size())
	n, err := f.ReadAt(b, 0)
	if n > 0 {
		err = nil
	}
	return b[:n], info, err
}
