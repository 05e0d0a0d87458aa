package spool

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gofrs/flock"

	"distribute/lib/check"
	"distribute/lib/durable"
)

// A Head is the right to write the spool. One process has it at a time.
type Head struct {
	*Spool
	held *flock.Flock // spool.json, which stays when somebody removes run/
	lock *flock.Flock // run/lock, which says who has the spool
	log  *durable.Log // head.jsonl
	now  func() time.Time
	seq  atomic.Uint64 // the last one given out
	next []byte        // lines of head.jsonl for the next tick
	tick *Tick         // the last one

	compacted *Compaction // for the next tick
	compactAt int64       // bytes of head.jsonl from which it may pay to compact it

	dirty   []*Batch // with records that are not durable
	closing []*Batch // to be closed when all of them is durable and in place
	headLog          // what head.jsonl says

	kept    *kept
	uptime  func() (time.Duration, error)
	ballast sync.Mutex  // guards the file
	bare    atomic.Bool // it may be gone

	mu     sync.Mutex                 // guards what follows
	small  map[string]bool            // directories of staging/ with small results, whose manifest is in their record
	staged map[string]bool            // directories of staging/ that this Head has made, and not put in place
	moved  map[string]bool            // directories with published names that are not durable
	owed   map[*Batch]map[string]bool // results put in place, or removed, whose names are not durable

	unsynced map[string]bool // directories with names that are not durable, of which the next records tell
}

// looking is how long who looks whether the lock is held (Live) may hold it, also
// on a machine on which much runs.
const looking = 500 * time.Millisecond

// Lock takes the spool for this process until Close or its end. It fails with
// [ErrLocked] if another has it, and says which. The lock file is never removed: a file made
// anew could be locked by a second, so spool.json is locked, too, in case somebody removes
// run/. If the spool belongs to another user, the error is fs.ErrPermission: root would make
// files that its owner cannot use.
func (s *Spool) Lock() (*Head, error) {
	if uid := os.Geteuid(); uid != s.uid {
		return nil, fmt.Errorf("%w: the spool %q belongs to user %d, and this runs as %d (run it as that user)", fs.ErrPermission, s.dir, s.uid, uid)
	}
	held, err := s.lockFile(s.path("spool.json"), os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	h, err := s.lockRun()
	if err != nil {
		return nil, errors.Join(err, held.Close())
	}
	h.held = held
	return h, nil
}

// lockFile locks a file, or says who has the spool.
func (s *Spool) lockFile(name string, flag int, mode fs.FileMode) (*flock.Flock, error) {
	lock := flock.New(name, flock.SetFlag(flag|syscall.O_NOFOLLOW), flock.SetPermissions(mode))
	ok, err := lock.TryLock()
	for begun := time.Now(); !ok && err == nil && time.Since(begun) < looking; ok, err = lock.TryLock() {
		time.Sleep(looking / 100)
	}
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, fmt.Errorf("%w: %s (stop it first, or name another spool)", ErrLocked, holder(s.path("run", "lock")))
	}
	if err := sameFile(lock, name); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return lock, nil
}

// lockRun makes a Head with the lock of run/lock, which it fills in.
func (s *Spool) lockRun() (*Head, error) {
	if err := s.remakeTop("run"); err != nil {
		return nil, err
	}
	if info, err := os.Lstat(s.path("run")); err == nil && !info.IsDir() { // a lock elsewhere keeps nobody out
		return nil, fmt.Errorf("%q is not a directory (dfsck -r moves it away)", s.path("run"))
	}
	name := s.path("run", "lock")
	lock, err := s.lockFile(name, os.O_RDWR|os.O_CREATE, 0o640)
	if err != nil {
		return nil, err
	}
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	f, err := os.OpenFile(name, os.O_WRONLY|syscall.O_NOFOLLOW, 0)
	if err == nil {
		err = durable.Overwrite(f, fmt.Appendf(nil, "%s %d\n", host, os.Getpid())) // also on a full disk
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	h := &Head{Spool: s, lock: lock, now: time.Now, uptime: uptime, kept: newKept(), headLog: newHeadLog(), compactAt: compactFrom,
		small: make(map[string]bool), staged: make(map[string]bool), moved: make(map[string]bool), owed: make(map[*Batch]map[string]bool), unsynced: make(map[string]bool)}
	h.bare.Store(true)
	h.steady() // from here on
	return h, nil
}

// RemakeRun makes run/ anew, as Init made it, if somebody has removed it. It is safe for
// concurrent use.
func (h *Head) RemakeRun() error { return h.remakeTop("run") }

// sameFile makes sure that what was locked is what is there now.
func sameFile(lock *flock.Flock, name string) error {
	held, err := lock.Stat()
	if err != nil {
		return err
	}
	there, err := os.Lstat(name)
	if err != nil || !os.SameFile(held, there) {
		return fmt.Errorf("%w: %q was replaced while it was being locked (try again)", ErrLocked, name)
	}
	return nil
}

// holder is who has the lock, as the lock's file tells it.
func holder(name string) string {
	b, err := os.ReadFile(name)
	host, pid, ok := strings.Cut(strings.TrimSpace(string(b)), " ")
	if err != nil || !ok {
		return "another process holds its lock"
	}
	return fmt.Sprintf("process %.20q on %.100q", pid, host)
}

// Close gives the spool back. What was appended and not committed is lost.
func (h *Head) Close() error {
	var err error
	if h.log != nil {
		err = h.log.Close()
	}
	return errors.Join(err, h.lock.Close(), h.held.Close())
}

// readHead folds head.jsonl, mends its end, and opens it for appending. Damage
// in it is reported and passed over: what it would have said of a batch, the
// batch's own log says too.
func (h *Head) readHead() (problems []*Problem, err error) {
	name := h.path("head.jsonl")
	f, err := check.Open(name)
	if err == nil {
		err = durable.Reread(name)
	}
	if errors.Is(err, fs.ErrNotExist) {
		problems = append(problems, &Problem{File: "head.jsonl",
			Why: "it is missing and was made anew: every batch is looked at"})
	} else if err != nil {
		return nil, err
	} else {
		problems, err = h.foldHead(f)
		if err := errors.Join(err, f.Close()); err != nil {
			return problems, err
		}
	}
	h.log, err = durable.OpenLog(name, 0o640)
	return problems, err
}

// foldHead reads head.jsonl and mends its end.
func (h *Head) foldHead(f *os.File) (problems []*Problem, err error) {
	l := newLogReader(f, -1, "", "head.jsonl")
	err = h.readHeadLog(l, func(p *Problem) error {
		if p.err != nil {
			return p.err
		}
		p.Stops = false
		problems = append(problems, p)
		h.forgetClosed()
		return nil
	})
	h.seen(l.seq)
	if errors.Is(err, errTorn) {
		p, err := h.cutTorn(f, l)
		return append(problems, p...), err
	}
	return problems, err
}

// seen makes sure that seq is not given out again.
func (h *Head) seen(seq uint64) {
	for {
		last := h.seq.Load()
		if seq <= last || h.seq.CompareAndSwap(last, seq) {
			return
		}
	}
}

// cutTorn cuts off what follows the last whole line that l has read from f, and
// keeps it in a file beside. What is cut off a batch's log must be what a crash
// leaves; else nothing is changed, and the error is a Problem.
func (h *Head) cutTorn(f *os.File, l *logReader) ([]*Problem, error) {
	p, err := l.tornEnd(f)
	if err != nil {
		return nil, err
	}
	if p.Stops {
		return nil, p
	}
	tail, err := io.ReadAll(io.NewSectionReader(f, l.next, MaxLine))
	if err != nil {
		return nil, err
	}
	aside, err := keepAside(f.Name(), tail)
	if errors.Is(full(err), ErrFull) && h.drop() {
		aside, err = keepAside(f.Name(), tail)
	}
	if err != nil {
		return nil, err
	}
	if err := durable.Step("torn.cut"); err != nil {
		return nil, err
	}
	if _, err := durable.Cut(f.Name(), l.next, 0); err != nil {
		return nil, err
	}
	p.Why = fmt.Sprintf("the last line was unfinished; its %d bytes were cut off and kept in %q", len(tail), aside)
	return []*Problem{p}, nil
}

// keepAside writes tail to a new file NAME.N.broken and returns its name. It
// removes what an earlier start that was stopped here has left of its own.
func keepAside(name string, tail []byte) (string, error) {
	dir, base := filepath.Split(name)
	if err := removeAll(dir, "."+base+".*", durable.IsTemp); err != nil {
		return "", err
	}
	for n := 1; ; n++ {
		aside := fmt.Sprintf("%s.%d.broken", name, n)
		if err := durable.Step("torn.keep"); err != nil {
			return "", err
		}
		err := durable.CreateNew(aside, tail, 0o640)
		if !errors.Is(err, fs.ErrExist) {
			return aside, err
		}
	}
}
