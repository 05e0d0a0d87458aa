package head

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A simDisk is a directory that knows what of it is on the disk: the content
// of each file and the names in each directory as they were at the last sync.
// A power cut makes a new directory of that and of a random part of the rest.
//
// A rename is one thing: after a cut a file that was renamed is at its old
// place or at its new one. A name that was made or removed, and the bytes that
// were written, are on the disk or not, each by itself, unless a sync says so.
type simDisk struct {
	root  string
	sleep func() time.Duration             // how long a sync takes
	near  func(name string, after bool)    // a sync is to begin, or to return
	fail  func(name string) error          // why a sync fails
	lose  func(name string, dir bool) bool // pretends that a sync happened (mutations)

	mu    sync.Mutex // guards the rest
	dead  bool       // of an incarnation that is over: nothing counts any more
	turn  int
	saved map[inode]*image
	asked map[inode]*image // the same, with what was pretended
	known map[inode]bool   // that were in a synced directory ever
}

// An inode names a file for as long as the file system lives.
type inode struct {
	ino  uint64
	born int64
}

// An image is what a file or a directory was at a moment.
type image struct {
	turn  int // at which it was taken: a later one counts
	mode  fs.FileMode
	time  time.Time
	data  []byte           // of a regular file
	names map[string]inode // of a directory
	kinds map[string]fs.FileMode
}

// statOf is the inode, the mode and the time of a file. With an empty name it is
// that of the descriptor.
func statOf(dirfd int, name string) (key inode, mode fs.FileMode, when time.Time, err error) {
	var st unix.Statx_t
	flags := unix.AT_SYMLINK_NOFOLLOW
	if name == "" {
		flags |= unix.AT_EMPTY_PATH
	}
	err = unix.Statx(dirfd, name, flags, unix.STATX_BASIC_STATS|unix.STATX_BTIME, &st)
	mode = fs.FileMode(st.Mode & 0o777)
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		mode |= fs.ModeDir
	case unix.S_IFLNK:
		mode |= fs.ModeSymlink
	}
	return inode{st.Ino, st.Btime.Sec*1e9 + int64(st.Btime.Nsec)}, mode, time.Unix(st.Mtime.Sec, int64(st.Mtime.Nsec)), err
}

// newSimDisk takes all that is in root now as durable.
func newSimDisk(root string) *simDisk {
	d := &simDisk{root: root, known: map[inode]bool{}}
	_, now := d.look()
	d.saved, d.asked = now, maps.Clone(now)
	for _, im := range now {
		for _, key := range im.names {
			d.known[key] = true
		}
	}
	return d
}

// read is the image of an open file or directory.
func read(f *os.File) (inode, *image, error) {
	key, mode, when, err := statOf(int(f.Fd()), "")
	im := &image{mode: mode, time: when}
	if err != nil {
		return key, nil, err
	}
	// Opened anew: f may be for writing only, and its offset is not ours.
	own, err := os.Open("/proc/self/fd/" + strconv.Itoa(int(f.Fd())))
	if err != nil {
		return key, nil, err
	}
	defer own.Close()
	if !mode.IsDir() {
		im.data = make([]byte, 0, 512)
		buf := bytes.NewBuffer(im.data)
		_, err = buf.ReadFrom(own)
		im.data = buf.Bytes()
		return key, im, err
	}
	list, err := own.Readdirnames(-1)
	im.names, im.kinds = map[string]inode{}, map[string]fs.FileMode{}
	for _, name := range list {
		if child, mode, _, err := statOf(int(own.Fd()), name); err == nil {
			im.names[name], im.kinds[name] = child, mode
		}
	}
	return key, im, err
}

// sync stands in for fsync(2).
func (d *simDisk) sync(f *os.File, all bool) error {
	d.mu.Lock()
	dead := d.dead
	d.mu.Unlock()
	if dead {
		return nil
	}
	name := strings.TrimPrefix(f.Name(), d.root)
	if d.fail != nil {
		if err := d.fail(name); err != nil {
			return err
		}
	}
	turn, ims, err := d.taken(f, all)
	if err != nil {
		return err
	}
	if d.near != nil {
		d.near(name, false)
		defer d.near(name, true)
	}
	if d.sleep != nil {
		time.Sleep(d.sleep())
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for key, im := range ims {
		im.turn = turn
		if was := d.asked[key]; was == nil || was.turn < turn {
			d.asked[key] = im
		}
		if d.lose != nil && d.lose(name, im.mode.IsDir()) {
			continue
		}
		if was := d.saved[key]; was == nil || was.turn < turn {
			d.saved[key] = im
			for _, child := range im.names {
				d.known[child] = true
			}
		}
	}
	return nil
}

// taken is what a sync makes durable: one file, or all of them. Of two, the one
// with the higher turn was taken later.
func (d *simDisk) taken(f *os.File, all bool) (turn int, ims map[inode]*image, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.turn++
	if all {
		_, ims = d.look()
		return d.turn, ims, nil
	}
	key, im, err := read(f)
	return d.turn, map[inode]*image{key: im}, err
}

// look reads the whole directory as it is. What goes away meanwhile is left out.
func (d *simDisk) look() (root inode, now map[inode]*image) {
	now = map[inode]*image{}
	var visit func(path string) (inode, bool)
	visit = func(path string) (inode, bool) {
		key, mode, when, err := statOf(unix.AT_FDCWD, path)
		if errors.Is(err, fs.ErrNotExist) {
			return key, false
		}
		if err != nil {
			panic(fmt.Sprintf("%s: %v", path, err))
		}
		im := &image{mode: mode, time: when}
		now[key] = im
		switch {
		case mode.IsDir():
			dir, short, err := within(path)
			var list []os.DirEntry
			if err == nil {
				defer dir.Close()
				list, err = dir.ReadDir(-1)
			}
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				panic(err)
			}
			slices.SortFunc(list, func(a, b os.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
			im.names, im.kinds = map[string]inode{}, map[string]fs.FileMode{}
			for _, e := range list {
				if leftOut(e) {
					continue
				}
				if child, there := visit(short + "/" + e.Name()); there {
					im.names[e.Name()], im.kinds[e.Name()] = child, now[child].mode
				}
			}
		case mode&fs.ModeSymlink != 0:
			to, _ := os.Readlink(path)
			im.data = []byte(to)
		default:
			if im.data, err = os.ReadFile(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				panic(err)
			}
		}
		return key, true
	}
	root, _ = visit(d.root)
	return root, now
}

// within opens a directory, and returns a path that leads to it as long as it is open, since
// that of a file can be longer than a path may be.
func within(path string) (*os.File, string, error) {
	dir, err := os.Open(path)
	if err != nil {
		return nil, "", err
	}
	return dir, fmt.Sprintf("/proc/self/fd/%d", dir.Fd()), nil
}

// leftOut says that a file is not looked at: the ballast is large and has
// nothing in it.
func leftOut(e fs.DirEntry) bool { return e.Name() == "ballast" }

// put writes an image of a file, with its times.
func put(path string, im *image) {
	var err error
	switch {
	case im.mode&fs.ModeSymlink != 0:
		err = os.Symlink(string(im.data), path)
	default:
		if err = os.WriteFile(path, im.data, 0o600); err == nil {
			err = os.Chmod(path, im.mode.Perm())
		}
		if err == nil {
			err = os.Chtimes(path, im.time, im.time)
		}
	}
	if err != nil {
		panic(err)
	}
}

// kill makes the directory that the next incarnation finds after its process
// was killed: all as it is. What is not on the disk yet is still not.
func (d *simDisk) kill(to string) *simDisk {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.dead = true
	root, now := d.look()
	moved := map[inode]inode{}
	var build func(key inode, path string)
	build = func(key inode, path string) {
		im := now[key]
		if im.mode.IsDir() {
			if err := os.Mkdir(path, 0o700); err != nil {
				panic(err)
			}
			dir, short, err := within(path)
			if err != nil {
				panic(err)
			}
			defer dir.Close()
			for name, child := range im.names {
				build(child, short+"/"+name)
			}
			os.Chmod(path, im.mode.Perm())
		} else {
			put(path, im)
		}
		moved[key], _, _, _ = statOf(unix.AT_FDCWD, path)
	}
	build(root, to)
	next := &simDisk{root: to, near: d.near, sleep: d.sleep, fail: d.fail, lose: d.lose, turn: d.turn, known: map[inode]bool{}}
	at := func(key inode) inode {
		if to, ok := moved[key]; ok {
			return to
		}
		return key
	}
	follow := func(all map[inode]*image) map[inode]*image {
		there := map[inode]*image{}
		for key, im := range all {
			copied := *im
			if im.names != nil {
				copied.names = map[string]inode{}
				for name, child := range im.names {
					copied.names[name] = at(child)
				}
			}
			there[at(key)] = &copied
		}
		return there
	}
	next.saved, next.asked = follow(d.saved), follow(d.asked)
	for key := range d.known {
		next.known[at(key)] = true
	}
	return next
}

// keep is kill for a machine whose next incarnation wants the very same files:
// what it writes down of their inodes is still true. The incarnation that is over
// goes on with a copy, where nobody sees it.
func (d *simDisk) keep(to string) *simDisk {
	copied := d.kill(to)
	d.mu.Lock()
	defer d.mu.Unlock()
	away := to + ".real"
	for _, move := range [][2]string{{d.root, away}, {to, d.root}, {away, to}} {
		if err := os.Rename(move[0], move[1]); err != nil {
			panic(err)
		}
	}
	os.Remove(to + "/lock") // the one that is over still holds it
	copied.saved, copied.asked, copied.known = maps.Clone(d.saved), maps.Clone(d.asked), maps.Clone(d.known)
	return copied
}

// durably is what a file has in it if the power is cut now and nothing is left
// but what was synced.
func (d *simDisk) durably(path string) ([]byte, bool) { return d.of(path, d.saved) }

// trusted is what durably would be if no sync were pretended.
func (d *simDisk) trusted(path string) ([]byte, bool) { return d.of(path, d.asked) }

// of is what a file has in it in one of the two.
func (d *simDisk) of(path string, images map[inode]*image) ([]byte, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	key, _, _, err := statOf(unix.AT_FDCWD, d.root)
	if err != nil {
		return nil, false
	}
	for name := range strings.SplitSeq(path, "/") {
		im := images[key]
		if im == nil || im.names == nil {
			return nil, false
		}
		child, ok := im.names[name]
		if !ok {
			return nil, false
		}
		key = child
	}
	if im := images[key]; im != nil {
		return im.data, true
	}
	return nil, true
}

// holds says that all that a file has in it now would survive a power cut, if no sync
// were pretended, or that there is no such file.
func (d *simDisk) holds(path string) bool {
	root, err := os.OpenRoot(d.root)
	if err != nil {
		return true
	}
	defer root.Close()
	now, err := root.ReadFile(path)
	if err != nil {
		return true
	}
	kept, ok := d.trusted(path)
	return ok && bytes.Equal(kept, now)
}
