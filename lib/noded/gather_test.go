package noded

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"distribute/lib/job"
	"distribute/lib/pack"
)

// allNew is a directory in which nothing was before the job.
type allNew struct{}

func (allNew) WasDir(string) bool               { return false }
func (allNew) Changed(string, fs.FileInfo) bool { return true }

// Two files of a job that saves can have one name, one size and one time, in its directory and in
// that of what is saved. Each is sent with its own content.
func TestSavedTwinsAreToldApart(t *testing.T) {
	dir, at := t.TempDir(), time.Unix(1e9, 0)
	for name, text := range map[string]string{"step": "1\n", saveDir + "/step": "2\n"} {
		name = filepath.Join(dir, "work", name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o644), os.Chtimes(name, at, at)); err != nil {
			t.Fatal(err)
		}
	}
	l := &left{kind: job.Command, asIs: true, saves: true, before: allNew{}, scan: func(sub string, keep func(string, fs.FileInfo) bool) (pack.Manifest, []pack.Skipped, error) {
		return scan(t.Context(), nil, filepath.Join(dir, "work", sub), keep)
	}}
	m, skipped, err := l.gather()
	if err != nil || len(m) != 3 || len(skipped) > 0 {
		t.Fatalf("%v, %v, %v", m, skipped, err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	err = pack.Send(io.Discard, m, pack.Want{}, func(_ int, e pack.Entry) (io.ReadCloser, error) { return openHome(root, nil, e, nil) })
	if err != nil {
		t.Error(err)
	}
}
