package spool

import (
	"encoding/json"
	"os"
	"path/filepath"

	"distribute/lib/job"
)

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

// BuildLog opens what the build of b on a node printed, build/<node>.log, for
// writing anew. It is not made durable. It is safe for concurrent use.
func (h *Head) BuildLog(b *Batch, name string) (*os.File, error) {
	if err := job.CheckName(name); err != nil {
		return nil, err
	}
	return os.OpenFile(filepath.Join(b.dir, "build", name+".log"), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o640)
}
