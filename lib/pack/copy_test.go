package pack

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A file from a time that is too late for a clock of nanoseconds is no old one in its copy.
func TestCopyLate(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	late := []unix.Timespec{{Sec: time.Date(2300, 1, 1, 0, 0, 0, 0, time.UTC).Unix()}, {}}
	late[1] = late[0]
	err := errors.Join(os.WriteFile(filepath.Join(from, "f"), nil, 0o600), unix.UtimesNanoAt(unix.AT_FDCWD, filepath.Join(from, "f"), late, 0))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Copy(t.Context(), openRoot(t, to), openRoot(t, from), nil); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(to, "f"))
	if err != nil || !info.ModTime().Equal(maxTime) {
		t.Errorf("it is of %v: %v", info.ModTime(), err)
	}
}

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

// A tree in which paths are longer than any path that Linux takes is copied, but none that is so
// deep that the paths of its directories take gigabytes of memory.
func TestCopyDeep(t *testing.T) {
	for _, c := range []struct {
		levels int
		want   error
	}{{60, nil}, {80, syscall.ENAMETOOLONG}} {
		from, to := openRoot(t, t.TempDir()), openRoot(t, t.TempDir())
		at := from
		for range c.levels {
			name := strings.Repeat("d", 250)
			if err := at.Mkdir(name, 0o700); err != nil {
				t.Fatal(err)
			}
			next, err := at.OpenRoot(name)
			if err != nil {
				t.Fatal(err)
			}
			defer next.Close()
			at = next
		}
		_, err := Copy(t.Context(), to, from, nil)
		if copied := (*CopyError)(nil); !errors.Is(err, c.want) || err != nil && !errors.As(err, &copied) {
			t.Errorf("%d levels: %.200v", c.levels, err)
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
