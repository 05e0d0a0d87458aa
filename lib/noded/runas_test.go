package noded

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"distribute/lib/account"
	"distribute/lib/node"
)

func TestEnvOfAccounts(t *testing.T) {
	n := &daemon{Settings: &Settings{Env: []string{"PATH=/bin", "HOME=/root", "LANG=C", "USER=root"}}}
	for _, c := range []struct {
		acc  *account.Account
		want []string
	}{
		{nil, []string{"PATH=/bin", "HOME=/root", "LANG=C", "USER=root"}},
		{&account.Account{Name: "maria", Home: "/home/maria", Shell: "/bin/zsh"},
			[]string{"HOME=/home/maria", "USER=maria", "LOGNAME=maria", "SHELL=/bin/zsh", "PATH=/bin", "LANG=C"}},
		{&account.Account{Name: "maria", Home: "/"}, []string{"HOME=/", "USER=maria", "LOGNAME=maria", "SHELL=/bin/sh", "PATH=/bin", "LANG=C"}},
	} {
		if got := n.env(c.acc); !slices.Equal(got, c.want) {
			t.Errorf("%+v: %q", c.acc, got)
		}
	}
	if n.Env[1] != "HOME=/root" {
		t.Error("the daemon's own was changed")
	}
}

// N66: what a user puts in the place of a file between the look at it and the
// opening is not waited for, and not sent.
func TestN66FIFOInPlaceOfAResult(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "r")
	if err := os.WriteFile(name, []byte("right"), 0o600); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	info, err := root.Lstat("r")
	if err != nil {
		t.Fatal(err)
	}
	f, err := openSame(root, "r", info)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	for what, put := range map[string]func() error{
		"a FIFO": func() error { return syscall.Mkfifo(name, 0o600) },
		"a link": func() error { return os.Symlink("/dev/zero", name) },
		"a file": func() error { return os.WriteFile(name, []byte("wrong"), 0o600) },
	} {
		if err := os.Rename(name, name+".old"); err != nil { // so that its inode is not used again
			t.Fatal(err)
		}
		if err := put(); err != nil {
			t.Fatal(err)
		}
		if f, err := openSame(root, "r", info); err == nil {
			f.Close()
			t.Errorf("%s is opened", what)
		}
		if err := os.Rename(name+".old", name); err != nil {
			t.Fatal(err)
		}
	}
}

// N66: an output that somebody goes on writing to is read to where it ended.
func TestN66EndlessOutput(t *testing.T) {
	zeros, err := os.Open("/dev/zero")
	if err != nil {
		t.Fatal(err)
	}
	defer zeros.Close()
	want := fmt.Sprintf("%x", sha256.Sum256(make([]byte, 5)))
	if sum, n, err := hashed(zeros, 5); err != nil || n != 5 || sum != want {
		t.Error(sum, n, err)
	}
}

func TestWhose(t *testing.T) {
	maria := &account.Account{Name: "maria", UID: 1001, GID: 100, Groups: []int{100}}
	n := &daemon{Settings: &Settings{RunsAs: node.Submitter, As: func(_ context.Context, who string) (*account.Account, error) {
		if who != "maria" {
			return nil, errors.New("not among the users")
		}
		return maria, nil
	}}}
	var barred *barredError
	if _, err := n.whose(t.Context(), "ben"); !errors.As(err, &barred) || err.Error() != "does not run jobs of ben: not among the users" {
		t.Error(err)
	}
	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := n.whose(stopped, "ben"); err == nil || errors.As(err, &barred) {
		t.Errorf("of an attempt that is stopped: %v", err)
	}
	acc, err := n.whose(t.Context(), "maria")
	if err != nil || acc != maria || n.builder("maria") != "maria" {
		t.Errorf("%v, %+v, %q", err, acc, n.builder("maria"))
	}
	n.RunsAs = "jobs"
	if n.builder("maria") != "jobs" {
		t.Errorf("%q", n.builder("maria"))
	}
	if o := ownerOf(acc); o.UID != 1001 || identity(o).GID != 100 || identity(ownerOf(nil)) != nil {
		t.Errorf("%+v", o)
	}
}
