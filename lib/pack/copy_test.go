package pack

import (
	"bytes"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// Copies of sparse files take no more of the disk than the files themselves.
func TestCopySparse(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	const size = 8 << 20
	for _, c := range []struct {
		name string
		at   []int64 // of data
		size int64
	}{
		{"empty", nil, 0},
		{"hole", nil, size},
		{"small", []int64{0}, 5},
		{"first", []int64{0}, size},
		{"middle", []int64{1 << 20, 3 << 20}, size},
		{"last", []int64{size - 5}, size},
	} {
		f, err := os.Create(filepath.Join(from, c.name))
		if err != nil {
			t.Fatal(err)
		}
		for _, at := range c.at {
			if _, err := f.WriteAt([]byte("words"), at); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.Truncate(c.size); err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
	if _, err := Copy(t.Context(), openRoot(t, to), openRoot(t, from), nil); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"empty", "hole", "small", "first", "middle", "last"} {
		was, err := os.ReadFile(filepath.Join(from, name))
		if err != nil {
			t.Fatal(err)
		}
		if is, err := os.ReadFile(filepath.Join(to, name)); err != nil || !bytes.Equal(is, was) {
			t.Errorf("%s: %d bytes of %d, or others; %v", name, len(is), len(was), err)
		}
		if had, has := onDisk(t, from, name), onDisk(t, to, name); has > had+64<<10 {
			t.Errorf("%s takes %d bytes of disk, and its copy %d", name, had, has)
		}
	}
}

// onDisk is how many bytes of disk a file takes.
func onDisk(t *testing.T, dir, name string) int64 {
	t.Helper()
	info, err := os.Stat(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return info.Sys().(*syscall.Stat_t).Blocks * 512
}
