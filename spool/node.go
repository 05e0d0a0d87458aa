package spool

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"distribute/lib/check"
	"distribute/lib/job"
)

// Drain says in head.jsonl that a node is given nothing, by the word of a user, or,
// with off, that it is again. It is durable with the next Commit.
func (h *Head) Drain(name, by string, off bool) {
	kind := job.KindDrained
	if off {
		kind = job.KindResumed
	}
	h.AppendHead(&job.Record{Kind: kind, Node: name, By: by})
}

// Drained calls f for each node that is drained as Load has found it, and who has
// said so.
func (h *Head) Drained(f func(name, by string)) {
	for name, by := range h.drained {
		f(name, by)
	}
}

// NodeStates calls f for each node with the state id that it had last as Load has found
// it, the seq of the first record of that, and the machine and the session of the last.
func (h *Head) NodeStates(f func(name, state string, since uint64, machine string, session uint64)) {
	for name, s := range h.states {
		f(name, s.id, s.since, s.machine, s.session)
	}
}

// NodeSeen writes nodes/<name>.json, for the eye: the last thing that a node
// said. It is not made durable. It is safe for concurrent use for nodes of
// different names.
func (h *Head) NodeSeen(name string, said any) error {
	if err := job.CheckName(name); err != nil {
		return err
	}
	text, err := json.MarshalIndent(said, "", "  ")
	if err != nil {
		return err
	}
	temp := h.path("nodes", "."+name+".tmp~")
	if err := os.WriteFile(temp, append(text, '\n'), 0o640); err != nil {
		return err
	}
	return os.Rename(temp, h.path("nodes", name+".json"))
}

// BuildLog opens a new file for what the build of b on a node printed. It takes the place of
// build/<node>.log by whole, which is called when it is written and closed. It is not made
// durable. BuildLog is safe for concurrent use, for different nodes.
func (h *Head) BuildLog(b *Batch, name string) (f *os.File, whole func() error, err error) {
	if err := job.CheckName(name); err != nil {
		return nil, nil, err
	}
	temp := filepath.Join(b.dir, "build", "."+name+".tmp~")
	f, err = os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o640)
	return f, func() error { return os.Rename(temp, filepath.Join(b.dir, "build", name+".log")) }, err
}

// OpenBuildLog opens what the build of a batch on a node printed. If there is
// nothing, the error is fs.ErrNotExist.
func (s *Spool) OpenBuildLog(id job.BatchID, node string) (*os.File, error) {
	if err := job.CheckName(node); err != nil {
		return nil, fs.ErrNotExist
	}
	return check.Open(filepath.Join(s.batchDir(id), "build", node+".log"))
}
