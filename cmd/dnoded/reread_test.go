package main

import (
	"bytes"
	"log/slog"
	"testing"

	"distribute/lib/inventory"
)

// What cannot be offered when the GPUs are asked for again is no fault of a changed file, of which
// only who has read that speaks.
func TestChangeSaysNothingOfTheFile(t *testing.T) {
	file, err := inventory.Parse("node.yaml", []byte("keep: {cpus: 1}\n"))
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	r := &reread{file: file, dir: t.TempDir(), source: inventory.Here(func(string) (string, bool) { return "", false }, 1), log: slog.New(slog.NewTextHandler(&log, nil))}
	if g, err := r.change(t.Context(), file); g != nil || err == nil || log.Len() > 0 {
		t.Errorf("%v, %v, and says %q", g, err, &log)
	}
}
