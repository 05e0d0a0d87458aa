package pause

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sys/unix"
)

// Watching.
const (
	burst     = 50 // so many changes are told at once
	perEvent  = 50 * time.Millisecond
	pollEvery = 250 * time.Millisecond // where the kernel has no watch left
)

// Watch says when the state may have changed: something was done in a place, or to one of
// the files, which are those of the pauses that were ended and of the owners. Changes are
// put together, and when somebody changes a place all the time at most twenty are told in
// a second. A place may be made, or removed and made anew, meanwhile. Watch first and read
// then; at the begin nothing is told.
//
// It costs nothing while nothing happens. The channel is closed when ctx has ended. Where
// the kernel grants no watch the places are looked at four times a second.
func Watch(ctx context.Context, places []string, files ...string) <-chan struct{} {
	w := newWatcher(places, files)
	var err error
	if w.events, err = fsnotify.NewWatcher(); err == nil {
		err = w.arm()
	}
	return w.follow(ctx, err)
}

// Poll is [Watch], but looks at the places four times a second. It is for programs of
// which many run at once: a user has 128 watchers (inotify instances) for all programs.
func Poll(ctx context.Context, places []string, files ...string) <-chan struct{} {
	return newWatcher(places, files).follow(ctx, errors.ErrUnsupported)
}

func newWatcher(places, files []string) *watcher {
	return &watcher{places: places, files: slices.DeleteFunc(slices.Clone(files), func(name string) bool { return name == "" })}
}

// follow tells of changes until ctx ends. The error is why it has to poll; nil: it need not.
func (w *watcher) follow(ctx context.Context, err error) <-chan struct{} {
	out := make(chan struct{}, 1)
	go func() {
		defer close(out)
		tell := meter(ctx, out)
		if err == nil {
			err = w.run(ctx, tell)
		}
		if w.events != nil {
			w.events.Close()
		}
		if err != nil {
			poll(ctx, slices.Concat(w.files, w.places), tell)
		}
	}()
	return out
}

// note leaves word in a channel with room for one.
func note(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// meter makes what leaves word: a number of times at once, then slowly. It returns when it
// has, or ctx ends.
func meter(ctx context.Context, out chan struct{}) func() {
	have, last := burst, time.Now()
	return func() {
		now := time.Now()
		if more := int(now.Sub(last) / perEvent); more > 0 {
			have, last = min(burst, have+more), now
		}
		if have == 0 {
			select {
			case <-ctx.Done():
				return
			case <-time.After(perEvent):
			}
			have, last = 1, time.Now()
		}
		have--
		note(out)
	}
}

// A watcher is what is watched of the file system.
type watcher struct {
	places []string
	files  []string
	events *fsnotify.Watcher
}

// arm watches each place and the directory of each file, or for want of it the nearest
// directory above in which it may appear. Done again, it changes only what has changed.
func (w *watcher) arm() error {
	wanted := slices.Clone(w.places)
	for _, name := range w.files {
		wanted = append(wanted, filepath.Dir(name))
	}
	var watched []string
	for _, dir := range wanted {
		at, err := w.add(dir)
		if err != nil {
			return err
		}
		watched = append(watched, at)
	}
	for _, dir := range w.events.WatchList() {
		if !slices.Contains(watched, dir) {
			w.events.Remove(dir)
		}
	}
	return nil
}

// add watches a directory, or the nearest above it that is there.
func (w *watcher) add(dir string) (at string, err error) {
	for range 10 { // directories may come while it looks
		below := ""
		for at, err = dir, w.events.Add(dir); absent(err) && at != filepath.Dir(at); err = w.events.Add(at) {
			below, at = at, filepath.Dir(at)
		}
		if err != nil {
			return "", err // no watch left
		}
		if _, err := os.Lstat(below); below == "" || err != nil {
			break
		}
	}
	return at, nil
}

// absent says that a directory is not there, or closed to this user.
func absent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.ENOTDIR)
}

// run tells of changes until ctx ends. It returns an error when the kernel grants no more
// watches.
func (w *watcher) run(ctx context.Context, tell func()) error {
	for {
		news, anew := false, false
		select {
		case <-ctx.Done():
			return nil
		case e := <-w.events.Events:
			news, anew = w.heed(e)
		case <-w.events.Errors: // some were lost
			news, anew = true, true
		}
		if anew {
			if err := w.arm(); err != nil {
				return err
			}
		}
		if news || anew {
			tell()
		}
	}
}

// heed says whether an event is news, and whether a directory that is to be watched has
// come or gone.
func (w *watcher) heed(e fsnotify.Event) (news, anew bool) {
	dir, name := filepath.Split(e.Name)
	dir = filepath.Clean(dir)
	_, pause := ownerOf(name)
	news = slices.Contains(w.files, e.Name) || pause && slices.Contains(w.places, dir)
	for _, place := range slices.Concat(w.places, w.files) {
		anew = anew || place == e.Name && !slices.Contains(w.files, place) || strings.HasPrefix(place, e.Name+"/")
	}
	return news, anew
}

// poll looks four times a second whether a directory or a file has changed since it
// first looked, which it tells too: what was done before then may not be known. It tells
// each change twice: the kernel's times go by some milliseconds, so that a second change
// may have the time of the first.
func poll(ctx context.Context, paths []string, tell func()) {
	look := func() []unix.Timespec {
		times := make([]unix.Timespec, len(paths))
		for i, path := range paths {
			var st unix.Stat_t
			if unix.Stat(path, &st) == nil {
				times[i] = st.Ctim
			}
		}
		return times
	}
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	before, again := look(), true
	for tell(); ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := look()
		changed := !slices.Equal(now, before)
		if changed || again {
			tell()
		}
		before, again = now, changed
	}
}
