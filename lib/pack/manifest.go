package pack

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"sort"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// The sentinels that errors of this package can be told apart by; errors of
// the file system and of the streams come through as they are.
var (
	// ErrFormat says that a manifest, a want or a stream is not what it has to
	// be; the other side is broken or hostile, and nothing of it is believed.
	ErrFormat = errors.New("not as it has to be")
	// ErrLimit says that a tree or a manifest is beyond the Limits.
	ErrLimit = errors.New("beyond the limit")
	// ErrSum says that a file's content is not what the manifest declares.
	ErrSum = errors.New("the content is not what the manifest says")
	// ErrChanged says that a file to be sent is no longer what the manifest says.
	ErrChanged = errors.New("changed since its manifest was made")
)

// The types of an Entry, with the letters of find(1).
const (
	File = 'f'
	Dir  = 'd'
	Link = 'l'
)

// Entry is one thing in a tree.
type Entry struct {
	Path string      // relative, with slashes, clean
	Type byte        // File, Dir or Link
	Size int64       // bytes, of a file
	Mode fs.FileMode // permission bits only; 0 of a link
	Time time.Time   // of the last change, UTC, whole nanoseconds; zero of a link
	Sum  string      // SHA-256 of a file, 64 hexadecimal digits
	Link string      // where a link points
}

// Manifest is what is in a tree, in the order that the package documentation
// defines; the root itself is no entry.
type Manifest []Entry

// Limits bounds what is read from a tree or accepted from a peer. A field that
// is 0 stands for its value in DefaultLimits.
type Limits struct {
	Entries   int   // entries of a manifest
	Depth     int   // names in a path
	Bytes     int64 // sum of the sizes of all files
	PathBytes int   // bytes of a path or of a link's target
	Names     int64 // bytes of all paths and targets together
}

// DefaultLimits has room for what one job may reasonably write: a million
// entries, 256 directories deep, 1 TiB, paths of 4096 bytes (the longest that
// Linux takes), 256 MiB of names.
func DefaultLimits() Limits {
	return Limits{Entries: 1_000_000, Depth: 256, Bytes: 1 << 40, PathBytes: 4096, Names: 256 << 20}
}

func (l Limits) filled() Limits {
	d := DefaultLimits()
	if l.Entries == 0 {
		l.Entries = d.Entries
	}
	if l.Depth == 0 {
		l.Depth = d.Depth
	}
	if l.Bytes == 0 {
		l.Bytes = d.Bytes
	}
	if l.PathBytes == 0 {
		l.PathBytes = d.PathBytes
	}
	if l.Names == 0 {
		l.Names = d.Names
	}
	return l
}

// unlimited lets through what was within somebody's limits before.
var unlimited = Limits{Entries: 1 << 40, Depth: 1 << 40, Bytes: 1 << 62, PathBytes: 1 << 40, Names: 1 << 60}

// minTime and maxTime are the first and the last time that an entry can have:
// those that a plain tar header and every file system can hold. Scan moves others here.
var (
	minTime = time.Unix(0, 0).UTC()
	maxTime = time.Date(2241, 12, 31, 23, 59, 59, 999999999, time.UTC)
)

// ComparePaths orders paths as a manifest does: name by name, and names byte
// by byte. It returns -1, 0 or 1.
func ComparePaths(a, b string) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] == b[i] {
			continue
		}
		if a[i] == '/' || b[i] != '/' && a[i] < b[i] {
			return -1
		}
		return 1
	}
	switch {
	case len(a) < len(b):
		return -1
	case len(a) > len(b):
		return 1
	}
	return 0
}

// Find returns the index of the entry with the path, and whether there is one.
// It costs a binary search.
func (m Manifest) Find(path string) (int, bool) {
	return sort.Find(len(m), func(i int) int { return ComparePaths(path, m[i].Path) })
}

// Bytes is the sum of the sizes of the files.
func (m Manifest) Bytes() int64 {
	var n int64
	for i := range m {
		n += m[i].Size
	}
	return n
}

// Sum is the SHA-256 of what Encode writes, in hexadecimal. It stands for the
// whole tree: two trees with one Sum are equal.
func (m Manifest) Sum() string {
	h := sha256.New()
	if err := m.encode(h); err != nil {
		panic("pack: a hash failed to write: " + err.Error())
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Check reports whether m is a manifest within the limits: the first rule that
// it breaks, as ErrFormat or ErrLimit. Decoded and scanned manifests are; it is
// for those that a program has made or changed.
func (m Manifest) Check(lim Limits) error {
	c := checker{lim: lim.filled()}
	for i := range m {
		if err := c.next(&m[i]); err != nil {
			return err
		}
	}
	return checkLinks(m)
}

// checker holds what the entries before have to say about the next.
type checker struct {
	lim   Limits
	count int
	bytes int64
	names int64
	prev  string
	above []string // the directories that lead to prev, and prev if it is one
}

func (c *checker) next(e *Entry) error {
	if c.count++; c.count > c.lim.Entries {
		return fmt.Errorf("%w: more than %d entries", ErrLimit, c.lim.Entries)
	}
	if err := checkPath(e.Path, c.lim); err != nil {
		return err
	}
	if err := checkMembers(e, c.lim); err != nil {
		return fmt.Errorf("%q: %w", e.Path, err)
	}
	if c.names += int64(len(e.Path) + len(e.Link)); c.names > c.lim.Names {
		return fmt.Errorf("%w: more than %d bytes of paths", ErrLimit, c.lim.Names)
	}
	if e.Size > c.lim.Bytes-c.bytes {
		return fmt.Errorf("%w: with %q more than %d bytes", ErrLimit, e.Path, c.lim.Bytes)
	}
	c.bytes += e.Size
	return c.place(e)
}

// place checks the order of e and that its parent is a directory.
func (c *checker) place(e *Entry) error {
	if c.count > 1 && ComparePaths(c.prev, e.Path) >= 0 {
		return fmt.Errorf("%w: %q after %q is out of order or twice", ErrFormat, e.Path, c.prev)
	}
	c.prev = e.Path
	for len(c.above) > 0 && !under(e.Path, c.above[len(c.above)-1]) {
		c.above = c.above[:len(c.above)-1]
	}
	parent := ""
	if len(c.above) > 0 {
		parent = c.above[len(c.above)-1]
	}
	if dirOf(e.Path) != parent {
		return fmt.Errorf("%w: what %q is in is no directory of the manifest", ErrFormat, e.Path)
	}
	if e.Type == Dir {
		c.above = append(c.above, e.Path)
	}
	return nil
}

// under reports whether path lies below the directory dir.
func under(path, dir string) bool {
	return len(path) > len(dir) && path[len(dir)] == '/' && path[:len(dir)] == dir
}

// dirOf is the directory of a path, "" if it is the root.
func dirOf(path string) string {
	return path[:max(0, strings.LastIndexByte(path, '/'))]
}

// checkPath checks one path by itself.
func checkPath(path string, lim Limits) error {
	if len(path) > lim.PathBytes {
		return fmt.Errorf("%w: a path of %d bytes (at most %d)", ErrLimit, len(path), lim.PathBytes)
	}
	depth := 0
	for name := range strings.SplitSeq(path, "/") {
		if depth++; depth > lim.Depth {
			return fmt.Errorf("%w: %.60q… is more than %d names deep", ErrLimit, path, lim.Depth)
		}
		if why := badName(name); why != "" {
			return fmt.Errorf("%w: path %q: %s", ErrFormat, path, why)
		}
	}
	return nil
}

// badName says why a name cannot be part of a path, or nothing.
func badName(name string) string {
	switch {
	case name == "" || name == "." || name == "..":
		return fmt.Sprintf("%q is no name", name)
	case len(name) > 255:
		return "a name of more than 255 bytes"
	case strings.IndexByte(name, '/') >= 0:
		return "a slash in a name"
	}
	return badText(name)
}

// badText says why a string cannot stand in a manifest, or nothing.
func badText(s string) string {
	if !utf8.ValidString(s) {
		return "not UTF-8"
	}
	if strings.IndexFunc(s, unicode.IsControl) >= 0 {
		return "a control character"
	}
	return ""
}

// checkMembers checks that e has what its type has and nothing else.
func checkMembers(e *Entry, lim Limits) error {
	switch e.Type {
	case File:
		if e.Size < 0 || !isSum(e.Sum) || e.Link != "" {
			return fmt.Errorf("%w: a file needs a size and a SHA-256 and has no target", ErrFormat)
		}
	case Dir:
		if e.Size != 0 || e.Sum != "" || e.Link != "" {
			return fmt.Errorf("%w: a directory has no size, SHA-256 or target", ErrFormat)
		}
	case Link:
		if e.Size != 0 || e.Sum != "" || e.Mode != 0 || !e.Time.IsZero() {
			return fmt.Errorf("%w: a link has only a target", ErrFormat)
		}
		return checkTarget(e.Path, e.Link, lim)
	default:
		return fmt.Errorf("%w: no type %q", ErrFormat, e.Type)
	}
	if e.Mode&^fs.ModePerm != 0 {
		return fmt.Errorf("%w: mode %v has more than permission bits", ErrFormat, e.Mode)
	}
	if e.Time.Before(minTime) || e.Time.After(maxTime) {
		return fmt.Errorf("%w: the time is not within 1970 to 2241", ErrFormat)
	}
	return nil
}

func isSum(s string) bool {
	if len(s) != 2*sha256.Size {
		return false
	}
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// Pruned is the manifest without the directories that are dropped and have nothing in
// them that is in it.
func (m Manifest) Pruned(drop func(dir string) bool) Manifest {
	needed := map[string]bool{}
	out := make(Manifest, 0, len(m))
	for _, e := range slices.Backward(m) {
		if e.Type == Dir && drop(e.Path) && !needed[e.Path] {
			continue
		}
		needed[path.Dir(e.Path)] = true
		out = append(out, e)
	}
	slices.Reverse(out)
	return out
}
