package main

import (
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"time"

	"distribute/lib/cli"
	"distribute/lib/durable"
	"distribute/lib/job"
	"distribute/lib/proc"
)

// sent is what was told: a file, sent.json, in a directory of dnotify's own, or
// nothing but memory.
type sent struct {
	lock *proc.Lock
	path string

	mu    sync.Mutex // guards those below
	fresh bool       // nothing was ever told
	was   memory
}

// A memory is the content of the file. Keys are of batches, nodes and users.
type memory struct {
	Format  int                     `json:"dnotify"`
	Batches map[job.BatchID]outcome `json:"batches"`
	Nodes   map[string]time.Time    `json:"nodes"` // lost; when they were last heard of
	Rooms   map[string]string       `json:"rooms"`
}

// An outcome is what was told of a batch. That one of the same name comes later, or
// ends once more, is seen by the times.
type outcome struct {
	Failing time.Time `json:"failing,omitzero"` // when it was submitted, if it was told that it fails
	Ended   time.Time `json:"ended,omitzero"`
}

const maxSent = 256 << 20

// openSent reads what was told, if there is a directory for that.
func openSent(dir string) (*sent, error) {
	s := &sent{fresh: true, was: memory{1, map[job.BatchID]outcome{}, map[string]time.Time{}, map[string]string{}}}
	if dir == "" {
		return s, nil
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	lock, err := proc.LockFile(filepath.Join(dir, "lock"))
	if errors.Is(err, proc.ErrHeld) {
		return nil, cli.Errorf(cli.Later, "%s: another dnotify has it", dir)
	}
	if err != nil {
		return nil, err
	}
	s.lock, s.path = lock, filepath.Join(dir, "sent.json")
	if err := s.read(); err != nil {
		lock.Release()
		return nil, err
	}
	return s, nil
}

func (s *sent) read() error {
	info, err := os.Stat(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() || info.Size() > maxSent {
		return cli.Errorf(cli.Input, "%s: it is not what dnotify has written", s.path)
	}
	b, err := os.ReadFile(s.path)
	if err != nil {
		return err
	}
	var m memory
	if err := parseSent(b, &m); err != nil {
		return cli.Errorf(cli.Input, "%s: it is not what dnotify has written: %w (without it, what is over now is not told)", s.path, err)
	}
	maps.Copy(s.was.Batches, m.Batches)
	maps.Copy(s.was.Nodes, m.Nodes)
	maps.Copy(s.was.Rooms, m.Rooms)
	s.fresh = false
	return nil
}

// save makes what was told durable.
func (s *sent) save() error {
	s.fresh = false
	if s.path == "" {
		return nil
	}
	b, err := json.Marshal(&s.was)
	if err != nil {
		return err
	}
	b = append(b, '\n')
	if err := durable.Step("notify.sent"); err != nil {
		return err
	}
	return durable.WriteFile(s.path, b, 0o600)
}

// change changes what was told, durably.
func (s *sent) change(f func(*memory)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(&s.was)
	return s.save()
}

// of is what was told of a batch.
func (s *sent) of(id job.BatchID) outcome {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.was.Batches[id]
}

// lost says that a node was told as lost, and has not been back.
func (s *sent) lost(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.was.Nodes[name]
	return ok
}

// back forgets those of the nodes that are lost no more.
func (s *sent) back(there func(name string, seen time.Time) bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.was.Nodes)
	maps.DeleteFunc(s.was.Nodes, there)
	if len(s.was.Nodes) == n {
		return nil
	}
	return s.save()
}

func (s *sent) room(user string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.was.Rooms[user]
}

func (s *sent) isFresh() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fresh
}

func (s *sent) close() {
	if s.lock != nil {
		s.lock.Release()
	}
}

var errFormat = errors.New("another format")

func parseSent(b []byte, m *memory) error {
	if err := json.Unmarshal(b, m); err != nil {
		return err
	}
	if m.Format != 1 {
		return errFormat
	}
	return nil
}
