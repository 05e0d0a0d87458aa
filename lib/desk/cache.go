package desk

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"distribute/lib/durable"
	"distribute/lib/job"
	"distribute/lib/pack"
	"distribute/lib/proc"
)

// syncedFrom is the size in bytes from which an input in the cache is synced.
// Smaller ones are fetched again after a power cut.
const syncedFrom = 1 << 20

// usedWithin is how exactly it is known when an input was used last.
const usedWithin = time.Minute

// What the names of inputs begin with of which only a part has come yet, and of
// those that are whole and may not be on the disk yet.
const (
	partPrefix  = ".part-"
	freshPrefix = ".fresh-"
)

// A hoard is what is known of the cache as a whole.
type hoard struct {
	mu    sync.Mutex      // guards what follows, and removals from the cache
	bytes int64           // on disk
	pins  map[string]int  // of inputs that are needed: by how many
	fresh map[string]bool // inputs that have come and were not synced yet

	times map[string]time.Time // of inputs that were whole then: they had come, were linked while no other link was there, or were read

	evicting, keeping sync.Mutex
	reading           chan struct{} // holds one value while an input is read
}

func checkSum(sum string) error {
	if len(sum) != 64 || strings.Trim(sum, "0123456789abcdef") != "" {
		return fmt.Errorf("%.70q is not a SHA-256 in lower-case hexadecimal", sum)
	}
	return nil
}

// Cached is where an input lies in the cache, and whether it is there. A Keep
// that is under way may rename it.
func (d *Desk) Cached(sum string) (string, bool) {
	d.hoard.mu.Lock()
	defer d.hoard.mu.Unlock()
	path := d.cached(sum)
	_, err := os.Lstat(path)
	return path, err == nil
}

// cached is the path of an input; the caller has the hoard's lock.
func (d *Desk) cached(sum string) string {
	if d.hoard.fresh[sum] {
		return d.path("cache", sum[:2], freshPrefix+sum)
	}
	return d.path("cache", sum[:2], sum)
}

// with calls use with the path of an input, and with the new one if it was
// renamed meanwhile.
func (d *Desk) with(sum string, use func(path string) error) error {
	for was := ""; ; {
		path, _ := d.Cached(sum)
		err := use(path)
		if !errors.Is(err, fs.ErrNotExist) || path == was {
			return err
		}
		was = path
	}
}

// Pin keeps inputs in the cache, whether they are there or on their way, until
// an Unpin of the same, and notes that they are used now.
func (d *Desk) Pin(ins ...[]job.Input) {
	d.hoard.mu.Lock()
	defer d.hoard.mu.Unlock()
	now := time.Now()
	for _, list := range ins {
		for _, in := range list {
			d.hoard.pins[in.Sum]++
			if checkSum(in.Sum) != nil {
				continue
			}
			path := d.cached(in.Sum)
			if info, err := os.Lstat(path); err == nil && now.Sub(used(info)) > usedWithin {
				// The time of the last change must stay: CheckShared goes by it.
				os.Chtimes(path, now, time.Time{})
			}
		}
	}
}

// Unpin takes one Pin of inputs back.
func (d *Desk) Unpin(ins ...[]job.Input) {
	d.hoard.mu.Lock()
	defer d.hoard.mu.Unlock()
	for _, list := range ins {
		for _, in := range list {
			if d.hoard.pins[in.Sum]--; d.hoard.pins[in.Sum] <= 0 {
				delete(d.hoard.pins, in.Sum)
			}
		}
	}
}

// used is when a file of the cache was used last: its time of access, which
// Pin sets.
func used(info fs.FileInfo) time.Time {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return time.Unix(st.Atim.Unix())
	}
	return info.ModTime()
}

// CacheSize is how many bytes of disk the cache has.
func (d *Desk) CacheSize() int64 {
	d.hoard.mu.Lock()
	defer d.hoard.mu.Unlock()
	return d.hoard.bytes
}

// Uncache removes an input that is no longer what its name says.
func (d *Desk) Uncache(in job.Input) error {
	d.hoard.mu.Lock()
	defer d.hoard.mu.Unlock()
	path := d.cached(in.Sum)
	_, err := os.Lstat(path)
	if err == nil {
		err = d.drop(path, Rounded(in.Size))
	}
	return err
}

// drop removes a file of the cache, which has so many bytes there, also if a job has made it
// longer or shorter since; the caller has the hoard's lock.
func (d *Desk) drop(path string, size int64) error {
	err := os.Remove(path)
	if errors.Is(err, syscall.ENOTEMPTY) {
		err = RemoveAll(path) // a job has replaced it
	}
	if err == nil {
		d.hoard.bytes -= size
		delete(d.hoard.times, strings.TrimPrefix(filepath.Base(path), freshPrefix))
	}
	return err
}

// Evict removes inputs that are not pinned, those used longest ago first, until
// the cache has at most keep bytes, and says how many it removed. It costs a
// look at every file of the cache if there is something to remove.
func (d *Desk) Evict(keep int64) (freed int64, err error) {
	d.hoard.evicting.Lock()
	defer d.hoard.evicting.Unlock()
	if d.CacheSize() <= keep {
		return 0, nil
	}
	type file struct {
		path, sum string
		size      int64
		used      time.Time
	}
	var files []file
	err = d.eachCached(func(path, sum string, info fs.FileInfo) error {
		files = append(files, file{path, sum, Rounded(info.Size()), used(info)})
		return nil
	})
	slices.SortFunc(files, func(a, b file) int { return cmp.Or(a.used.Compare(b.used), cmp.Compare(a.sum, b.sum)) })
	for _, f := range files {
		d.hoard.mu.Lock()
		over := d.hoard.bytes > keep
		if over && d.hoard.pins[f.sum] == 0 && d.drop(f.path, f.size) == nil {
			freed += f.size
		}
		d.hoard.mu.Unlock()
		if !over {
			break
		}
	}
	return freed, err
}

// eachCached calls f for each input in the cache, and each part of one.
func (d *Desk) eachCached(f func(path, sum string, info fs.FileInfo) error) error {
	return filepath.WalkDir(d.path("cache"), func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil && e.IsDir() {
			return reopen(path)
		}
		if err != nil {
			return err
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) || e.Name() == bootFile {
			return nil
		}
		if err != nil {
			return err
		}
		return f(path, strings.TrimPrefix(strings.TrimPrefix(e.Name(), partPrefix), freshPrefix), info)
	})
}

// reopen opens a directory or a file of the node to its owner, who may have closed it with others.
func reopen(name string) error {
	info, err := os.Lstat(name)
	if err != nil {
		return err
	}
	want := fs.FileMode(0o600)
	if info.IsDir() {
		want = 0o700
	}
	if !info.IsDir() && !info.Mode().IsRegular() || info.Mode().Perm()&want == want {
		return nil
	}
	return os.Chmod(name, want)
}

// reopenRecord opens the directory of an attempt or a build, and its record, to their owner: what
// runs in it as that user may have closed them.
func reopenRecord(dir string) error {
	err := errors.Join(reopen(dir), reopen(filepath.Join(dir, proc.RecordFile)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Part is how many bytes have come of an input that is not in the cache yet.
func (d *Desk) Part(sum string) int64 {
	if checkSum(sum) != nil {
		return 0
	}
	info, err := os.Lstat(d.path("cache", sum[:2], partPrefix+sum))
	if err != nil {
		return 0
	}
	return info.Size()
}

// Cacher is a pack.Sink that puts inputs, named by their sums, into the cache.
// Of one that is cut it keeps what has come, so that the rest can be asked for.
func (d *Desk) Cacher() pack.Sink { return cacher{d} }

type cacher struct{ d *Desk }

// Put takes one input. It is in the cache when its SHA-256 is right, that of the
// part which had come before included; if it is wrong nothing is kept. A large
// one is durable only after the next Keep.
func (c cacher) Put(_ int, e pack.Entry, from int64, r io.Reader) (err error) {
	if err := checkSum(e.Sum); err != nil || e.Path != e.Sum {
		return errors.Join(err, fmt.Errorf("%w: %.100q is no input", pack.ErrFormat, e.Path))
	}
	dir := c.d.path("cache", e.Sum[:2])
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	part := filepath.Join(dir, partPrefix+e.Sum)
	const how = os.O_RDWR | os.O_CREATE | syscall.O_NOFOLLOW
	f, err := os.OpenFile(part, how, 0o600)
	if errors.Is(err, fs.ErrPermission) && os.Remove(part) == nil { // whole, and not named before a crash
		f, err = os.OpenFile(part, how, 0o600)
	}
	if err != nil {
		return err
	}
	in := &source{r: r}
	was := c.d.Part(e.Sum)
	defer func() {
		now := int64(0)
		if info, serr := f.Stat(); serr == nil {
			now = info.Size()
		}
		if f.Close(); err != nil && in.err == nil && os.Remove(part) == nil {
			now = 0 // nothing was wrong with the stream but with what it had, or with the disk
		}
		c.d.hoard.mu.Lock()
		c.d.hoard.bytes += Rounded(now) - Rounded(was)
		c.d.hoard.mu.Unlock()
	}()
	if err := fill(f, e, from, in); err != nil {
		return err
	}
	if err := f.Chmod(0o444); err != nil {
		return err
	}
	if err := durable.Step("cache.rename"); err != nil {
		return err
	}
	c.d.hoard.mu.Lock()
	defer c.d.hoard.mu.Unlock()
	if e.Size >= syncedFrom {
		c.d.hoard.fresh[e.Sum] = true
	}
	if err := os.Rename(part, c.d.cached(e.Sum)); err != nil {
		delete(c.d.hoard.fresh, e.Sum)
		return err
	}
	delete(c.d.hoard.times, e.Sum)
	if info, err := f.Stat(); err == nil && e.Size >= syncedFrom { // smaller ones are seldom shared
		c.d.hoard.times[e.Sum] = info.ModTime()
	}
	return nil
}

// fill writes an input from the given byte on, and checks all of it.
func fill(f *os.File, e pack.Entry, from int64, in *source) error {
	info, err := f.Stat()
	if err == nil && info.Size() < from {
		err = fmt.Errorf("%w: the part that is here ends before byte %d", pack.ErrFormat, from)
	}
	// A file that was cut to nothing, and be it nothing already, is written to the
	// disk by some file systems (ext4) when it is closed, and the start of the job
	// would wait for that.
	if err == nil && info.Size() > from {
		err = f.Truncate(from)
	}
	if err != nil {
		return err
	}
	w := pack.NewFiller(f)
	defer w.Release()
	w.Lazy = true
	if err := w.Prefix(from); err != nil {
		return err
	}
	end, err := w.Append(from, in)
	if err == nil {
		err = in.err
	}
	if err != nil {
		return err
	}
	if end != e.Size || w.Sum() != e.Sum {
		return fmt.Errorf("%w: input %s", pack.ErrSum, e.Sum)
	}
	return nil
}

// A source is a reader that remembers what ended it, and between whose reads a
// crash can be tried.
type source struct {
	r   io.Reader
	err error
}

func (s *source) Read(p []byte) (int, error) {
	if err := durable.Step("cache.part"); err != nil {
		return 0, err
	}
	n, err := s.r.Read(p)
	if err != nil && err != io.EOF {
		s.err = err
	}
	return n, err
}

// bootFile tells in which boot the cache was used last.
const bootFile = "boot"

// maxBoot is the size in bytes of the longest id of a boot that is read.
const maxBoot = 1 << 10

// cleanCache counts the cache, and removes, in a new boot, the inputs that may
// never have been synced. Parts stay: they are checked when they are whole. The other inputs get
// another time than they had: a job may have changed one a moment before a power cut, and the
// time of that is not on the disk. So each is read before it is shared.
func (d *Desk) cleanCache() error {
	mark := d.path("cache", bootFile)
	was, _ := durable.ReadFile(mark, maxBoot)
	again, now := string(was) == d.boot, time.Now()
	err := d.eachCached(func(path, sum string, info fs.FileInfo) error {
		fresh := strings.HasPrefix(filepath.Base(path), freshPrefix)
		if checkSum(sum) != nil || !again && (fresh || info.Size() < syncedFrom) {
			return os.Remove(path)
		}
		if fresh {
			d.hoard.fresh[sum] = true
		}
		if !again && !strings.HasPrefix(filepath.Base(path), partPrefix) && info.Mode().IsRegular() && os.Chtimes(path, time.Time{}, now) != nil {
			return os.Remove(path)
		}
		d.hoard.bytes += Rounded(info.Size())
		return nil
	})
	if err != nil || again {
		return err
	}
	setMark := func() error { return errors.Join(plain(mark), writeFile(mark, []byte(d.boot))) }
	if err = setMark(); d.MakeRoom(err) {
		err = setMark()
	}
	return err
}
