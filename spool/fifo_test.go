package spool

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"distribute/lib/check"
	"distribute/lib/job"
)

// A FIFO in the place of a file is waited for by nobody: not by a head that starts, nor by
// tools that read.
func TestFIFOs(t *testing.T) {
	whole := variedSpool(t)
	for _, name := range []string{"spool.json", "head.jsonl", "ballast", "keys/nodes", "nodes/ws1.json",
		batchLog, "batches/ns/b/jobs.jsonl", "batches/ns/b/files.tar", "batches/ns/b/manifests/a.jsonl",
		"batches/ns/b/build/ws1.log", "batches/no/private/build/ws1.log", blobName} {
		dir := copyTree(t, whole)
		at := filepath.Join(dir, name)
		if err := os.Remove(at); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		if err := syscall.Mkfifo(at, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := Open(dir)
		if name == "spool.json" {
			wantErr(t, name, err, check.ErrKind)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		s.listing()
		h, err := s.Lock()
		if err != nil {
			t.Fatal(err)
		}
		open, _, _ := h.Load()
		for _, b := range open {
			b.Replay(func(int, *job.Record) error { return nil })
			at := int64(512)
			for _, in := range []job.Input{{At: &at, Size: 1}, {Sum: filepath.Base(blobName), Size: 1}} {
				if f, _, err := b.OpenInput(in); err == nil {
					f.Close()
				}
			}
			if f, whole, err := h.BuildLog(b, "ws1"); err == nil {
				f.Close()
				whole()
			}
			b.Close()
		}
		for _, id := range []job.BatchID{"ns/b", "no/private"} {
			s.Settle(id)
			s.Events(id, 0, -1, func(*job.Record) error { return nil })
			if f, err := s.OpenBuildLog(id, "ws1"); err == nil {
				f.Close()
			}
			if _, root, err := s.Result(id.Job("a"), 0); err == nil {
				root.Close()
			}
			writeManifest(s.path("batches", string(id), "manifests", "a.jsonl"), resultOf("x"))
		}
		s.ReadNodes()
		h.Close()
	}
}
