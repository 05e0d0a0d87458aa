package spool

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"distribute/lib/check"
	"distribute/lib/durable"
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

// cutBuild begins the last line of a log of a build that lacks its end.
const cutBuild = "\n(what it printed then is not here: "

// CutBuildLog writes at the end of a build's log that the rest is missing, and why.
func CutBuildLog(w io.Writer, why error) error {
	_, err := fmt.Fprintf(w, cutBuild+"%v)\n", why)
	return err
}

// IsCutBuildLog reports whether the last bytes of a build's log say that the rest is missing. A
// build that prints such a line itself only has its log copied once more.
func IsCutBuildLog(end []byte) bool {
	at := bytes.LastIndex(end, []byte(cutBuild))
	return at >= 0 && bytes.HasSuffix(end, []byte(")\n"))
}

// errKilled is why a build's log lacks its end after dsched was killed.
var errKilled = errors.New("dsched ended while it came")

// keepCutLogs puts logs of builds in place that an earlier process was writing, marked as cut. An
// earlier log would be taken for the last build's. One that cannot be kept is removed.
func (b *Batch) keepCutLogs() {
	list, err := os.ReadDir(filepath.Join(b.dir, "build"))
	if err != nil {
		return // dfsck tells
	}
	for _, e := range list {
		if !durable.IsTemp(e.Name()) || !e.Type().IsRegular() {
			continue
		}
		temp := filepath.Join(b.dir, "build", e.Name())
		f, err := os.OpenFile(temp, os.O_WRONLY|os.O_APPEND|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
		if err == nil {
			err = errors.Join(CutBuildLog(f, errKilled), f.Close())
		}
		name := strings.TrimSuffix(strings.TrimPrefix(e.Name(), "."), ".tmp~")
		if err = errors.Join(err, job.CheckName(name)); err == nil {
			err = os.Rename(temp, filepath.Join(b.dir, "build", name+".log"))
		}
		if err != nil {
			os.Remove(temp)
		}
	}
}

// OpenBuildLog opens what the build of a batch on a node printed. If there is
// nothing, the error is fs.ErrNotExist.
func (s *Spool) OpenBuildLog(id job.BatchID, node string) (*os.File, error) {
	if err := job.CheckName(node); err != nil {
		return nil, fs.ErrNotExist
	}
	return check.Open(filepath.Join(s.batchDir(id), "build", node+".log"))
}
