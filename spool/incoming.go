package spool

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"

	"distribute/lib/durable"
	"distribute/lib/job"
	"distribute/lib/line"
	"distribute/lib/timing"
)

// WatchIncoming sends the names of files in incoming/ until ctx ends, and then
// closes the channel. A name may come more than once, also of a file that is
// gone. What the kernel tells is a hint: the directory is scanned at the start,
// after each hint, and once a minute.
func (h *Head) WatchIncoming(ctx context.Context) <-chan string {
	names := make(chan string)
	go func() {
		defer close(names)
		h.watch(ctx, names)
	}()
	return names
}

func (h *Head) watch(ctx context.Context, names chan<- string) {
	var hints chan fsnotify.Event
	var faults chan error
	if w, err := fsnotify.NewWatcher(); err == nil {
		defer w.Close()
		if w.Add(h.path("incoming")) == nil {
			hints, faults = w.Events, w.Errors
		}
	}
	minute := time.NewTicker(timing.Wait(time.Minute))
	defer minute.Stop()
	for {
		took, more, ok := h.scanIncoming(ctx, names)
		if !ok {
			return
		}
		// Whoever may write there makes names without end: scans take a tenth of the time.
		rest := min(max(timing.Wait(time.Second), 9*took), timing.Wait(time.Minute))
		if !pause(ctx, rest) || !more && !awaitHint(ctx, minute.C, hints, faults) {
			return
		}
	}
}

// pause waits for d. It reports false when ctx has ended.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// awaitHint waits for a reason to scan. It reports false when ctx has ended.
func awaitHint(ctx context.Context, minute <-chan time.Time, hints <-chan fsnotify.Event, faults <-chan error) bool {
	for {
		select {
		case <-ctx.Done():
			return false
		case <-minute:
			return true
		case <-faults:
			return true
		case e := <-hints:
			if e.Has(fsnotify.Create) && !strings.HasPrefix(filepath.Base(e.Name), ".") {
				return true // a name appeared; writing and removing tell nothing
			}
		}
	}
}

// scanNames is how many names of incoming/ a scan holds at a time, and maxOthers how many it
// sends that are of no submissions.
const (
	scanNames = 100_000
	maxOthers = 100
)

// scanIncoming sends each name once, those of up to scanNames entries in the order in
// which they are to be looked at, and of others than submissions only some if there are
// more. It returns how long it took, without the time in which submissions were taken, and
// reports false when ctx has ended.
func (h *Head) scanIncoming(ctx context.Context, names chan<- string) (took time.Duration, more, ok bool) {
	others := 0
	began := time.Now()
	dir, err := os.Open(h.path("incoming"))
	if err != nil {
		return 0, false, ctx.Err() == nil // and is tried again within a minute
	}
	defer dir.Close()
	for {
		list, err := dir.ReadDir(scanNames)
		for _, e := range inOrder(list) {
			if strings.HasPrefix(e.Name(), ".") {
				h.removeOld(e)
				continue
			}
			odd, asked := isOdd(e), time.Now()
			if odd {
				others++
			}
			if odd && others > maxOthers {
				more = true
				continue
			}
			select {
			case names <- e.Name():
			case <-ctx.Done():
				return 0, false, false
			}
			if !odd {
				began = began.Add(time.Since(asked))
			}
		}
		if err != nil { // the end of it, or what is tried again within a minute
			return time.Since(began), more, ctx.Err() == nil
		}
	}
}

// inOrder sorts entries of incoming/: those with the name of a submission first, so
// that others do not delay them, and of these the oldest first: who came first has the
// name of the batch. Others have any order, so that those which stay delay none for good.
func inOrder(list []fs.DirEntry) []fs.DirEntry {
	type key struct {
		odd  int
		time time.Time
	}
	keys := make(map[string]key, len(list))
	for _, e := range list {
		k := key{}
		if isOdd(e) {
			k.odd = 1 + rand.IntN(1<<30)
		}
		if info, err := e.Info(); err == nil {
			k.time = info.ModTime()
		}
		keys[e.Name()] = k
	}
	slices.SortStableFunc(list, func(a, b fs.DirEntry) int {
		x, y := keys[a.Name()], keys[b.Name()]
		return cmp.Or(cmp.Compare(x.odd, y.odd), x.time.Compare(y.time))
	})
	return list
}

// isOdd reports whether an entry of incoming/ cannot be a submission.
func isOdd(e fs.DirEntry) bool { return !e.Type().IsRegular() || job.Token(e.Name()).Check() != nil }

// removeOld removes what a dsubmit that died has left, if it is old and nobody
// holds it.
func (h *Head) removeOld(e fs.DirEntry) {
	info, err := e.Info()
	if err != nil || !info.Mode().IsRegular() || !durable.IsTemp(e.Name()) || !old(info, h.now(), tempAge) {
		return
	}
	name := h.path("incoming", e.Name())
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return
	}
	defer f.Close()
	if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
		os.Remove(name) // else it is tried again within a minute
	}
}

// Taken removes a file of incoming/ whose batch is made. After a crash before
// that the file is taken again, and found to be the same submission.
func (h *Head) Taken(name string) error {
	if err := durable.Step("taken.remove"); err != nil {
		return err
	}
	if err := os.Remove(h.path("incoming", filepath.Base(name))); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return syncDirs([]string{h.path("incoming")})
}

// Reject moves a file of incoming/ to rejected/, beside a file NAME.why that
// says why, unless the file is its owner's alone: the group reads NAME.why.
// Where that name is there, a number is added, and one of more than 240 bytes is cut.
// A directory of another user is deleted if it is empty; else it stays, as does all that
// cannot be moved: that is an error of a path.
func (h *Head) Reject(name string, why error) error {
	name = filepath.Base(name)
	if err := h.remakeTop("rejected"); err != nil {
		return classed(err)
	}
	if gone, err := h.rejectDir(name); gone || err != nil {
		return err
	}
	base := h.path("rejected", name[:min(len(name), 240)]) // leaves room for the rest in 255 bytes
	to := base
	for n := 2; exists(to) == nil || strings.HasSuffix(to, ".why"); n++ { // a lone .why is of an earlier start that was stopped here
		to = fmt.Sprintf("%s.%d", base, n)
	}
	if err := durable.Step("reject.why"); err != nil {
		return err
	}
	text := why.Error()
	if info, err := os.Lstat(h.path("incoming", name)); err == nil && info.Mode().Perm()&0o077 == 0 && !errors.Is(why, ErrTaken) {
		text = "it is refused, and nobody else may read it: the log of dsched says why"
	}
	if err := durable.WriteFile(to+".why", []byte(text+"\n"), 0o640); err != nil {
		return classed(err)
	}
	if err := durable.Step("reject.rename"); err != nil {
		return err
	}
	err := durable.Publish(h.path("incoming", name), to)
	switch {
	case errors.Is(err, fs.ErrNotExist): // its owner has taken it back meanwhile
		err = os.Remove(to + ".why")
	case errors.Is(err, fs.ErrPermission):
		err = errors.Join(err, os.Remove(to+".why"))
	}
	if err != nil {
		return classed(err)
	}
	if err := durable.Step("reject.sync"); err != nil {
		return err
	}
	return syncDirs([]string{h.path("rejected"), h.path("incoming")})
}

// rejectDir deletes a directory of another user in incoming/ if it is empty; only he and
// root can move one. It is an error of a path if there is such a directory afterwards.
func (h *Head) rejectDir(name string) (gone bool, err error) {
	path, me := h.path("incoming", name), os.Geteuid()
	info, err := os.Lstat(path)
	if err != nil || !info.IsDir() || me == 0 || int(info.Sys().(*syscall.Stat_t).Uid) == me {
		return errors.Is(err, fs.ErrNotExist), nil
	}
	if err := syscall.Rmdir(path); err != nil {
		return false, &fs.PathError{Op: "remove the directory of another user", Path: path, Err: err}
	}
	return true, nil
}

// A Waiting is a submission in incoming/ or rejected/.
type Waiting struct {
	Name string
	Drop Drop // as far as it can be read; UID is the file's owner
	Size int64
	Time time.Time // of its last change
	Why  string    // why it was rejected; empty: it waits
}

// Waiting lists what is in incoming/ and in rejected/, as far as it may be read.
func (s *Spool) Waiting() ([]Waiting, error) {
	var all []Waiting
	for _, dir := range []string{"incoming", "rejected"} {
		list, err := os.ReadDir(s.path(dir))
		if errors.Is(err, fs.ErrPermission) {
			continue // only the spool's user may list incoming/
		}
		if err != nil {
			return all, err
		}
		for _, e := range list {
			if strings.HasPrefix(e.Name(), ".") || dir == "rejected" && strings.HasSuffix(e.Name(), ".why") {
				continue
			}
			if w, err := s.waiting(dir, e); err == nil {
				all = append(all, w)
			} else if !errors.Is(err, fs.ErrNotExist) {
				return all, err
			}
		}
	}
	return all, nil
}

func (s *Spool) waiting(dir string, e fs.DirEntry) (Waiting, error) {
	info, err := e.Info()
	if err != nil {
		return Waiting{}, err
	}
	w := Waiting{Name: e.Name(), Size: info.Size(), Time: info.ModTime()}
	w.Drop = firstLine(s.path(dir, e.Name()))
	w.Drop.UID = int(info.Sys().(*syscall.Stat_t).Uid)
	if dir == "rejected" {
		why, err := os.ReadFile(s.path(dir, e.Name()+".why"))
		if w.Why = strings.TrimSpace(string(why)); err != nil || w.Why == "" {
			w.Why = "nothing says why"
		}
	}
	return w, nil
}

// firstLine reads what it can of the first line of a drop file.
func firstLine(name string) (d Drop) {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return d
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return d
	}
	if text, err := line.NewReader(bufio.NewReader(io.LimitReader(f, 64<<10)), 64<<10).Next(); err == nil {
		if line.Unmarshal(text, &d) != nil {
			return Drop{}
		}
	}
	return d
}
