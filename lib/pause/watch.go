package pause

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Watching.
const (
	burst     = 50 // so many changes are told at once
	perEvent  = 50 * time.Millisecond
	pollEvery = 250 * time.Millisecond // where the kernel has no watch left
)

const (
	changed = unix.IN_MOVED_TO | unix.IN_MOVED_FROM | unix.IN_DELETE | unix.IN_CLOSE_WRITE | unix.IN_ATTRIB
	moved   = unix.IN_DELETE_SELF | unix.IN_MOVE_SELF
)

// Watch says when the state may have changed: something was done in a place, or to
// one of the files, which are those of the pauses that were ended and of the owners,
// or the clock was set, or the machine was asleep. Changes are put together, and when somebody changes a place all the time
// at most twenty are told in a second. A place may be made, or removed and made
// anew, meanwhile. Watch first and read then; at the begin nothing is told.
//
// It costs nothing while nothing happens. When ctx has ended and nothing of it is
// left the channel is closed. Where the kernel
// grants no watch the places are looked at four times a second.
func Watch(ctx context.Context, places []string, files ...string) <-chan struct{} {
	raw, out := make(chan struct{}, 1), make(chan struct{}, 1)
	tell := func() { note(raw) }
	files = slices.DeleteFunc(slices.Clone(files), func(name string) bool { return name == "" })
	w := &watcher{places: places, files: files}
	f, err := w.open()
	var parts sync.WaitGroup
	parts.Go(func() {
		if err == nil {
			stop := context.AfterFunc(ctx, func() { f.Close() })
			defer stop()
			err = w.run(f, tell)
			f.Close()
		}
		if err != nil {
			poll(ctx, slices.Concat(files, places), tell)
		}
	})
	parts.Go(func() { whenSet(ctx, tell) })
	parts.Go(func() { meter(ctx, raw, out) })
	go func() {
		parts.Wait()
		close(out)
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

// meter passes on what it is told: a number of times at once, then slowly.
func meter(ctx context.Context, raw <-chan struct{}, out chan struct{}) {
	have, last := burst, time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-raw:
		}
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

// A watcher is what inotify(7) looks at. Its fields are those of one goroutine.
type watcher struct {
	places []string
	files  []string
	conn   syscall.RawConn
	of     map[int32]purpose // by watch
}

// A purpose is what a directory is watched for.
type purpose struct {
	place bool // it is a place
	files bool // one of the files is in it, or may be
	above bool // a place may appear in it or below
}

// open begins to watch.
func (w *watcher) open() (*os.File, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "inotify")
	if w.conn, err = f.SyscallConn(); err == nil {
		err = w.arm()
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// arm watches each place, or for want of it the directory in which it may appear.
// Done again, it changes only what has changed.
func (w *watcher) arm() (err error) {
	if gone := w.conn.Control(func(fd uintptr) { err = w.armAt(int(fd)) }); gone != nil {
		return nil // closed
	}
	return err
}

func (w *watcher) armAt(fd int) error {
	before := w.of
	w.of = map[int32]purpose{}
	for _, place := range w.places {
		if err := w.add(fd, place, changed, purpose{place: true}); err != nil {
			return err
		}
	}
	for _, name := range w.files {
		if err := w.add(fd, filepath.Dir(name), unix.IN_MOVED_TO|unix.IN_DELETE, purpose{files: true}); err != nil {
			return err
		}
	}
	for wd := range before {
		if _, ok := w.of[wd]; !ok {
			unix.InotifyRmWatch(fd, uint32(wd))
		}
	}
	return nil
}

// add watches dir, or the nearest directory above it that is there.
func (w *watcher) add(fd int, dir string, mask uint32, p purpose) error {
	for {
		n, err := unix.InotifyAddWatch(fd, dir, mask|moved|unix.IN_ONLYDIR|unix.IN_MASK_ADD)
		up := filepath.Dir(dir)
		switch {
		case err == nil:
			was := w.of[int32(n)]
			w.of[int32(n)] = purpose{p.place || was.place, p.files || was.files, p.above || was.above}
			return nil
		case err == unix.ENOSPC, err == unix.ENOMEM, up == dir:
			return err
		}
		dir, mask, p = up, unix.IN_CREATE|unix.IN_MOVED_TO, purpose{above: true}
	}
}

// run reads what the kernel says until f is closed. It returns an error when the
// kernel grants no more watches.
func (w *watcher) run(f *os.File, tell func()) error {
	buf := make([]byte, 16<<10)
	for {
		n, err := f.Read(buf)
		if err != nil {
			return nil
		}
		news, anew := w.heed(buf[:n])
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

// heed says whether events are news, and whether directories have come or gone.
func (w *watcher) heed(b []byte) (news, anew bool) {
	for len(b) >= unix.SizeofInotifyEvent {
		wd, mask := int32(binary.NativeEndian.Uint32(b)), binary.NativeEndian.Uint32(b[4:])
		length := min(int(binary.NativeEndian.Uint32(b[12:])), len(b)-unix.SizeofInotifyEvent)
		name := string(bytes.TrimRight(b[unix.SizeofInotifyEvent:][:length], "\x00"))
		b = b[unix.SizeofInotifyEvent+length:]
		p, known := w.of[wd]
		switch {
		case mask&unix.IN_Q_OVERFLOW != 0:
			return true, true
		case !known:
		case mask&(moved|unix.IN_IGNORED|unix.IN_UNMOUNT) != 0:
			anew = true
		default:
			anew = anew || p.above && mask&unix.IN_ISDIR != 0
			news = news || p.files && slices.ContainsFunc(w.files, func(f string) bool { return filepath.Base(f) == name })
			_, is := ownerOf(name)
			news = news || p.place && is
		}
	}
	return news, anew
}

// whenSet tells when the clock was set and when the machine has slept.
func whenSet(ctx context.Context, tell func()) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_REALTIME, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return
	}
	f := os.NewFile(uintptr(fd), "timerfd")
	stop := context.AfterFunc(ctx, func() { f.Close() })
	defer stop()
	defer f.Close()
	never := unix.ItimerSpec{Value: unix.NsecToTimespec(time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano())}
	conn, err := f.SyscallConn()
	for buf := make([]byte, 8); err == nil; {
		closed := conn.Control(func(fd uintptr) {
			err = unix.TimerfdSettime(int(fd), unix.TFD_TIMER_ABSTIME|unix.TFD_TIMER_CANCEL_ON_SET, &never, nil)
		})
		if _, end := f.Read(buf); closed != nil || !errors.Is(end, unix.ECANCELED) {
			return
		}
		tell()
	}
}

// poll looks four times a second whether a directory or a file has changed since it
// first looked, which it tells too: what was done before then may not be known.
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
	before := look()
	for tell(); ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if now := look(); !slices.Equal(now, before) {
			before = now
			tell()
		}
	}
}
