package desk

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"distribute/lib/durable"
	"distribute/lib/proc"
)

// Restore makes the directory of an attempt again into one in which its end can be kept.
// Where nobody but the daemon's user runs jobs, what ran in it may have removed it, or its
// notes, closed them, or put a link or a file in their place. Nothing of it may run any more.
// What it left elsewhere in the directory stays.
func (a *Attempt) Restore() error {
	if err := ownDir(a.Dir); err != nil {
		return err
	}
	if err := plainIn(a.Dir, proc.RecordFile, manifestFile, beforeFile); err != nil {
		return err
	}
	if err := cleanBefore(a.Dir); err != nil {
		return err
	}
	if err := RemoveAll(a.Extra()); err != nil {
		return err
	}
	return a.rerecord()
}

// Restore makes the directory of a build again into one in which its end can be kept, as
// that of an attempt. If the spec is not there any more it is fetched again.
func (b *Build) Restore() error {
	if err := ownDir(b.Dir); err != nil {
		return err
	}
	if err := plainIn(b.Dir, proc.RecordFile, builtFile, beforeFile); err != nil {
		return err
	}
	return cleanBefore(b.Dir)
}

// cleanBefore removes what was to be in the directory before, if it makes no sense any more.
func cleanBefore(dir string) error {
	if _, err := readBefore(dir); err != nil {
		return os.Remove(filepath.Join(dir, beforeFile))
	}
	return nil
}

// rerecord writes the record again as far as it is known, unless it is there.
func (a *Attempt) rerecord() error {
	is, err := readTold(a.Dir)
	if err == nil && is.given != nil && is.given.Token == a.Token && (is.started != nil || a.Started() == nil) {
		return nil
	}
	name := filepath.Join(a.Dir, proc.RecordFile)
	if err := RemoveAll(name); err != nil {
		return err
	}
	b, err := json.Marshal(record{Given: &a.Note})
	if err != nil {
		return err
	}
	if err := durable.WriteFile(name, append(b, '\n'), 0o600); err != nil {
		return err
	}
	if s := a.Started(); s != nil {
		return appendRecord(a.Dir, record{Started: s}, false)
	}
	return nil
}

// ownDir makes what dir names a directory of ours.
func ownDir(dir string) error {
	info, err := os.Lstat(dir)
	if err == nil && !info.IsDir() {
		if err := os.Remove(dir); err != nil {
			return err
		}
		err = fs.ErrNotExist
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return os.MkdirAll(dir, 0o700)
	case err == nil && info.Mode().Perm()&0o700 != 0o700:
		return os.Chmod(dir, 0o700)
	}
	return err
}

// plainIn has each of the names in a directory plain, and what it is written as first.
func plainIn(dir string, names ...string) error {
	for _, name := range names {
		path := filepath.Join(dir, name)
		if err := errors.Join(plain(path), plain(path+".new")); err != nil {
			return err
		}
	}
	return nil
}

// plain opens the file name to its owner, and removes what else name is.
func plain(name string) error {
	info, err := os.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().IsRegular() && info.Mode().Perm()&0o600 == 0o600:
		return nil
	case info.Mode().IsRegular() && os.Chmod(name, info.Mode().Perm()|0o600) == nil:
		return nil
	}
	return RemoveAll(name)
}
