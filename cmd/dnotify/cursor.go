package main

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"distribute/lib/cli"
	"distribute/lib/durable"
	"distribute/lib/proc"
)

// told is what was told: of each event and what it is about, as "over lab/x", when it
// was. The time tells it from another that comes later.
type told map[string]time.Time

// move puts down more. What has no time is forgotten.
func (t told) move(by told) {
	for key, at := range by {
		if t[key] = at; at.IsZero() {
			delete(t, key)
		}
	}
}

// A cursor is what was told, in cursor.json in a directory of its own, or, without one,
// in memory alone.
type cursor struct {
	told  told
	fresh bool // nothing was put down yet
	path  string
	lock  *proc.Lock
}

func openCursor(dir string) (*cursor, error) {
	c := &cursor{told: told{}, fresh: true, path: filepath.Join(dir, "cursor.json")}
	if dir == "" {
		return c, nil
	}
	err := os.Mkdir(dir, 0o700)
	if err == nil || errors.Is(err, fs.ErrExist) {
		c.lock, err = proc.LockFile(filepath.Join(dir, "lock"))
	}
	if errors.Is(err, proc.ErrHeld) {
		return nil, cli.Errorf(cli.Later, "%s: another dnotify has it", dir)
	}
	if err != nil {
		return nil, err
	}
	left, _ := filepath.Glob(filepath.Join(dir, ".cursor.json.*")) // by a crash
	for _, name := range left {
		os.Remove(name)
	}
	b, err := os.ReadFile(c.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return c, nil
	case err != nil:
		return nil, err
	case json.Unmarshal(b, &c.told) != nil || c.told == nil:
		return nil, cli.Errorf(cli.Input, "%s: it is no cursor of dnotify (without it, what is over now is not told)", c.path)
	}
	c.fresh = false
	return c, nil
}

// advance puts down what was told, durably.
func (c *cursor) advance(by told) error {
	c.told.move(by)
	if c.lock == nil {
		return nil
	}
	b, err := json.Marshal(c.told)
	if err != nil {
		return err
	}
	return durable.WriteFile(c.path, append(b, '\n'), 0o600)
}

func (c *cursor) close() {
	if c.lock != nil {
		c.lock.Release()
	}
}
