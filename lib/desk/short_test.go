package desk

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A TMPDIR has room for the names of sockets, and leaves no link behind.
func TestShortTmp(t *testing.T) {
	if got := ShortTmp("/n/attempts/1"); got != "/n/attempts/1/tmp" {
		t.Errorf("of a short directory: %s", got)
	}
	long := filepath.Join(t.TempDir(), strings.Repeat("x", 100))
	if err := os.MkdirAll(long+"/tmp", 0o700); err != nil {
		t.Fatal(err)
	}
	got := ShortTmp(long)
	if again := ShortTmp(long); again != got || len(got) > maxTmp {
		t.Errorf("%s, then %s", got, again)
	}
	if info, err := os.Lstat(got); err != nil || !info.IsDir() {
		t.Errorf("%v, %v", info, err)
	}
	if err := os.WriteFile(got+"/f", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(long + "/tmp/f"); err != nil {
		t.Error(err)
	}
	(&Attempt{Dir: long}).Spent()
	if _, err := os.Lstat(filepath.Dir(got)); !os.IsNotExist(err) {
		t.Errorf("the link is left: %v", err)
	}
}

// A link does not get old while a job runs, and comes back if it was removed.
func TestKeepShort(t *testing.T) {
	long := filepath.Join(t.TempDir(), strings.Repeat("x", 100))
	if err := os.MkdirAll(long+"/tmp", 0o700); err != nil {
		t.Fatal(err)
	}
	link := filepath.Dir(ShortTmp(long))
	defer dropShort(long)
	old := unix.Timespec{Sec: 1e9}
	if err := unix.UtimesNanoAt(unix.AT_FDCWD, link, []unix.Timespec{old, old}, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		t.Fatal(err)
	}
	KeepShort(long)
	if info, err := os.Lstat(link); err != nil || info.ModTime().Unix() == old.Sec {
		t.Errorf("%v, %v", info, err)
	}
	if err := os.Remove(link); err != nil {
		t.Fatal(err)
	}
	KeepShort(long)
	if to, err := os.Readlink(link); err != nil || to != long {
		t.Error(to, err)
	}
	(&Attempt{Dir: long}).Spent()
	KeepShort(long)
	if _, err := os.Lstat(link); !os.IsNotExist(err) {
		t.Errorf("the link of a job that has ended is made again: %v", err)
	}
}

// A link that leads elsewhere is neither used nor removed.
func TestShortTmpIsTaken(t *testing.T) {
	long := filepath.Join(t.TempDir(), strings.Repeat("x", 100))
	if err := os.Symlink("/", shortName(long)); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(shortName(long))
	if got := ShortTmp(long); got != long+"/tmp" {
		t.Error(got)
	}
	dropShort(long)
	if to, err := os.Readlink(shortName(long)); err != nil || to != "/" {
		t.Error(to, err)
	}
}
