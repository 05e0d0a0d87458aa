package spool

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"distribute/lib/durable"
	"distribute/lib/job"
)

// ballastSize is what is given up so that ends can be written on a full disk.
const ballastSize = 4 << 20

const readme = `This directory is the spool of a distribute head: what its people have asked
to be run, what became of it, and the results.

  batches/NAMESPACE/BATCH/out/JOB/   accepted results, plain files
  batches/NAMESPACE/BATCH/attempts/  what failed and cancelled attempts left
  batches/NAMESPACE/BATCH/log.jsonl  what happened, a line each

Read it with ls, cat, grep and jq as you like. Change nothing by hand: only
dsched writes here. dspool(5) describes every file, dquery(1) and dpull(1) are
the usual way to look and to bring results home.
`

const settings = `# Settings of this head, as dsched(8) describes them. Everything has a default,
# so nothing needs to stand here.
`

// tree is every directory of a new spool with its mode.
var tree = []struct {
	name string
	mode fs.FileMode
}{
	{"incoming", fs.ModeSetgid | fs.ModeSticky | 0o730}, {"rejected", 0o750}, {"blobs", 0o700}, {"batches", 0o750},
	{"nodes", 0o750}, {"keys", 0o700}, {"run", 0o750}, {"trash", 0o700},
}

// remakeTop makes a directory of the spool durably as Init made it, if it is missing. It has
// its mode before it has its name: nobody would set the mode after a crash.
func (s *Spool) remakeTop(name string) error {
	if !errors.Is(exists(s.path(name)), fs.ErrNotExist) {
		return nil
	}
	var mode fs.FileMode
	for _, d := range tree {
		if d.name == name {
			mode = d.mode
		}
	}
	temp := s.path("." + name + "." + string(job.NewToken()) + ".tmp~") // after a crash Load removes it
	err := makeDir(temp, mode)
	if err == nil {
		err = durable.Step("remake.publish")
	}
	if err == nil {
		err = durable.Publish(temp, s.path(name))
	}
	if err != nil {
		removed := os.RemoveAll(temp)
		if exists(s.path(name)) != nil {
			return errors.Join(err, removed)
		}
		if removed != nil { // else another process has made it at the same time
			return removed
		}
	}
	return syncPresent([]string{s.dir})
}

// Private has a new spool be for its user alone; see Init.
const Private = -1

// Init makes a spool in dir, which may be missing, empty, or what an Init cut
// short has left. The file that makes it a spool comes last. A spool that is
// there is left alone, and the error is fs.ErrExist.
//
// It is for the members of a group, by its number, whose files they are, or for its user
// alone if that is Private: nobody else gets into the directory.
func Init(dir string, group int) error {
	id := filepath.Join(dir, "spool.json")
	if _, err := os.Lstat(id); err == nil {
		return thereError(dir)
	}
	made := errors.Is(exists(dir), fs.ErrNotExist)
	switch err := os.Mkdir(dir, 0o700); {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%q is %w: the directory above it is missing (make that first)", dir, ErrPlace)
	case err != nil && !errors.Is(err, fs.ErrExist):
		return err
	}
	if err := unused(dir); err != nil {
		return err
	}
	if err := refuseNetwork(dir); err != nil {
		return err
	}
	if err := fill(dir, group); err != nil {
		return err
	}
	if err := durable.Step("init.identity"); err != nil {
		return err
	}
	if err := durable.CreateNew(id, newIdentity(), 0o640); err != nil {
		return err
	}
	if !made {
		return nil
	}
	if err := durable.Step("init.parent"); err != nil {
		return err
	}
	return durable.SyncDir(filepath.Dir(filepath.Clean(dir)))
}

// thereError says of a directory that it is a spool. It is fs.ErrExist.
type thereError string

func (e thereError) Error() string   { return fmt.Sprintf("%q is a spool already", string(e)) }
func (thereError) Is(err error) bool { return err == fs.ErrExist }

func exists(path string) error { _, err := os.Lstat(path); return err }

// unused reports why dir is no place for a new spool: something is in it that
// Init does not make.
func unused(dir string) error {
	ours := map[string]bool{"README": true, "head.yaml": true, "head.jsonl": true, "ballast": true, "lost+found": true}
	for _, d := range tree {
		ours[d.name] = true
	}
	list, err := os.ReadDir(dir)
	if errors.Is(err, syscall.ENOTDIR) {
		return fmt.Errorf("%q is %w: it is a file (name a new directory)", dir, ErrPlace)
	}
	if err != nil {
		return err
	}
	for _, e := range list {
		if !ours[e.Name()] && !durable.IsTemp(e.Name()) {
			return fmt.Errorf("%q is %w: it holds %q (name a new directory)", dir, ErrPlace, e.Name())
		}
	}
	for _, name := range []string{"batches", "blobs", "incoming"} {
		if list, err := os.ReadDir(filepath.Join(dir, name)); err == nil && len(list) > 0 {
			return fmt.Errorf("%q holds batches but no spool.json: put it back from a copy (it is two numbers, dspool(5))", dir)
		}
	}
	return nil
}

// fill makes what is in a new spool. The directories of one for a group have the set-group-id bit,
// so that files have that group whoever makes them: dsched may run in another group.
func fill(dir string, group int) error {
	top, bit := fs.FileMode(0o700), fs.FileMode(0)
	if group != Private {
		top, bit = fs.ModeSetgid|0o750, fs.ModeSetgid
		if err := os.Chown(dir, -1, group); err != nil {
			return err
		}
	}
	if err := os.Chmod(dir, top); err != nil {
		return err
	}
	for _, d := range tree {
		if err := durable.Step("init.dir"); err != nil {
			return err
		}
		name := filepath.Join(dir, d.name)
		if err := os.Mkdir(name, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		if group != Private {
			if err := os.Chown(name, -1, group); err != nil {
				return err
			}
		}
		if err := os.Chmod(name, bit|d.mode); err != nil {
			return err
		}
	}
	for _, f := range []struct{ name, text string }{{"README", readme}, {"head.yaml", settings}, {"head.jsonl", ""}} {
		if err := durable.Step("init.file"); err != nil {
			return err
		}
		err := durable.CreateNew(filepath.Join(dir, f.name), []byte(f.text), 0o640)
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	if err := durable.Step("init.ballast"); err != nil {
		return err
	}
	return makeBallast(filepath.Join(dir, "ballast"))
}

// makeBallast makes the ballast anew. It is allocated and not written: what
// counts is that its blocks are its own.
func makeBallast(name string) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o640)
	if err != nil {
		return err
	}
	err = syscall.Fallocate(int(f.Fd()), 0, 0, ballastSize)
	if errors.Is(err, syscall.EOPNOTSUPP) || errors.Is(err, syscall.ENOSYS) {
		_, err = f.WriteAt(make([]byte, ballastSize), 0)
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return errors.Join(fmt.Errorf("ballast: %w", err), os.Remove(name))
	}
	return nil
}
