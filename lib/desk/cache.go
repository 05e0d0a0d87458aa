package desk

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"distribute/lib/durable"
	"distribute/lib/pack"
)

// syncedFrom is the size in bytes from which an input in the cache is synced
// before it gets its name. Smaller ones are fetched again after a power cut.
const syncedFrom = 1 << 20

func checkSum(sum string) error {
	if len(sum) != 64 || strings.Trim(sum, "0123456789abcdef") != "" {
		return fmt.Errorf("%.70q is not a SHA-256 in lower-case hexadecimal", sum)
	}
	return nil
}

// Cached is where an input lies in the cache, and whether it is there.
func (d *Desk) Cached(sum string) (string, bool) {
	path := d.path("cache", sum[:2], sum)
	_, err := os.Lstat(path)
	return path, err == nil
}

// Uncache removes an input that is no longer what its name says.
func (d *Desk) Uncache(sum string) error { return os.Remove(d.path("cache", sum[:2], sum)) }

// Cacher is a pack.Sink that puts inputs, named by their sums, into the cache.
func (d *Desk) Cacher() pack.Sink { return cacher{d} }

type cacher struct{ d *Desk }

// Put takes one input. It gets its name when its SHA-256 is right.
func (c cacher) Put(_ int, e pack.Entry, from int64, r io.Reader) (err error) {
	if err := checkSum(e.Sum); err != nil || from != 0 || e.Path != e.Sum {
		return errors.Join(err, fmt.Errorf("%w: %.100q is no input", pack.ErrFormat, e.Path))
	}
	dir := c.d.path("cache", e.Sum[:2])
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	f, err := os.CreateTemp(dir, ".new-*")
	if err != nil {
		return err
	}
	defer func() {
		if f.Close(); err != nil {
			os.Remove(f.Name())
		}
	}()
	hash := sha256.New()
	n, err := io.Copy(io.MultiWriter(f, hash), r)
	if err != nil {
		return err
	}
	if n != e.Size || hex.EncodeToString(hash.Sum(nil)) != e.Sum {
		return fmt.Errorf("%w: input %s", pack.ErrSum, e.Sum)
	}
	if err := f.Chmod(0o444); err != nil {
		return err
	}
	if n >= syncedFrom {
		if err := durable.Sync(f); err != nil {
			return err
		}
	}
	return os.Rename(f.Name(), filepath.Join(dir, e.Sum))
}

// cleanCache removes inputs that were on their way in, and, in a new boot,
// those that were never synced.
func (d *Desk) cleanCache() error {
	mark := d.path("cache", "boot")
	was, _ := os.ReadFile(mark)
	again := string(was) == d.boot
	err := filepath.WalkDir(d.path("cache"), func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || path == mark {
			return err
		}
		if strings.HasPrefix(e.Name(), ".new-") {
			return os.Remove(path)
		}
		if info, err := e.Info(); !again && (err != nil || info.Size() < syncedFrom) {
			return os.Remove(path)
		}
		return nil
	})
	if err != nil || again {
		return err
	}
	return os.WriteFile(mark, []byte(d.boot), 0o600)
}
