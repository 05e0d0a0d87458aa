package spool

import (
	"os"
	"path/filepath"
	"testing"

	"distribute/lib/job"
)

// FuzzIdentity reads spool.json.
func FuzzIdentity(f *testing.F) {
	f.Add([]byte(`{"format":1,"id":"00112233445566778899aabbccddeeff"}` + "\n"))
	f.Add([]byte(`{"format":2,"id":"x"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if id, err := parseIdentity(text); err == nil && job.Token(id).Check() != nil {
			t.Fatalf("%q has the id %q", text, id)
		}
	})
}

// FuzzLoad starts a head on a spool in which a log is foreign bytes: the batch
// is told as damaged or is whole, and nothing that was there is gone but the
// tail that is kept beside it.
func FuzzLoad(f *testing.F) {
	dir, _ := fullSpool(f)
	files := []string{batchLog, batchJobs, "head.jsonl"}
	for i, name := range files {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(uint8(i), text)
		f.Add(uint8(i), text[:len(text)*2/3])
		f.Add(uint8(i+128), text)
	}
	f.Fuzz(func(t *testing.T, which uint8, text []byte) {
		at := files[int(which%128)%len(files)]
		if which > 127 {
			text = summed(text)
		}
		copied := filepath.Join(t.TempDir(), "s")
		if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}
		name := filepath.Join(copied, at)
		if err := os.WriteFile(name, text, 0o640); err != nil {
			t.Fatal(err)
		}
		s, err := Open(copied)
		if err != nil {
			t.Fatal(err)
		}
		h, err := s.Lock()
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close()
		open, _, err := h.Load()
		for _, b := range open {
			b.Close()
		}
		now, rerr := os.ReadFile(name)
		if rerr != nil || err == nil && len(now) < len(text) && string(now) != string(text[:len(now)]) {
			t.Fatalf("%s is %q, and was %q: %v", at, now, text, rerr)
		}
	})
}
