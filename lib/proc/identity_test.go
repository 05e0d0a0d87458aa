package proc

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"distribute/lib/suite"
)

// somebody is a user that this machine has no other processes of.
func somebody(t *testing.T) *Identity {
	t.Helper()
	if os.Geteuid() != 0 {
		suite.Missing(t, "only root can be somebody else")
	}
	id := 1_000_000 + os.Getpid()
	return &Identity{UID: id, GID: id + 1, Groups: []int{id + 1, id + 2}}
}

// theirs is a directory of somebody, to which he gets.
func theirs(t *testing.T, id *Identity) string {
	t.Helper()
	dir := newDir(t)
	for up := dir; up != "/"; up = filepath.Dir(up) {
		info, err := os.Stat(up)
		if err != nil {
			t.Fatal(err)
		}
		if open := info.Mode() | 0o011; open != info.Mode() { // what all share keeps its sticky bit
			if err := os.Chmod(up, open); err != nil {
				t.Fatal(err)
			}
		}
	}
	work := filepath.Join(dir, "work")
	if err := errors.Join(os.Mkdir(work, 0o700), os.Chown(work, id.UID, id.GID)); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestIdentityDo(t *testing.T) {
	id := somebody(t)
	work := filepath.Join(theirs(t, id), "work")
	ours, secret := filepath.Join(filepath.Dir(work), "ours"), filepath.Join(work, "secret")
	if err := errors.Join(os.Mkdir(ours, 0o700), os.WriteFile(secret, []byte("x"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		err := id.Do(func() error {
			groups, err := unix.Getgroups()
			if err != nil || !slices.Equal(groups, id.Groups) {
				t.Errorf("groups %v, %v", groups, err)
			}
			for name, open := range map[string]func() error{
				"what is not his":          func() error { _, err := os.ReadFile(secret); return err },
				"through a link of his":    func() error { _, err := os.ReadFile(filepath.Join(work, "link")); return err },
				"a directory that is ours": func() error { _, err := os.ReadDir(ours); return err },
				"to change its owner":      func() error { return os.Chown(secret, id.UID, id.GID) },
			} {
				os.Symlink("/etc/shadow", filepath.Join(work, "link"))
				if err := open(); !errors.Is(err, fs.ErrPermission) {
					t.Errorf("%s: %v", name, err)
				}
			}
			return os.WriteFile(filepath.Join(work, "his"), nil, 0o600)
		})
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(filepath.Join(work, "his"))
		if err != nil {
			t.Fatal(err)
		}
		if st := info.Sys().(*syscall.Stat_t); int(st.Uid) != id.UID || int(st.Gid) != id.GID {
			t.Errorf("the file is that of %d:%d", st.Uid, st.Gid)
		}
		// And all is as it was, here and in what is started now.
		if _, err := os.ReadFile(secret); err != nil || fsuid() != 0 || fsgid() != os.Getegid() {
			t.Errorf("own rights: %v, fsuid %d, fsgid %d", err, fsuid(), fsgid())
		}
	}
	wrong := errors.New("wrong")
	if err := id.Do(func() error { return wrong }); err != wrong {
		t.Error(err)
	}
	func() {
		defer func() { recover() }()
		id.Do(func() error { panic("in between") })
	}()
	if fsuid() != 0 {
		t.Errorf("after a panic: fsuid %d", fsuid())
	}
	if err := (*Identity)(nil).Do(func() error { return wrong }); err != wrong {
		t.Error(err)
	}
}

// TestX102N67 is a job that runs as somebody: what its environment says is for
// it alone, and it has neither the rights of who started it nor a way to them.
// A dynamic program of ours that saw the environment would not start, and a Go
// program would say so.
func TestX102N67(t *testing.T) {
	id := somebody(t)
	groups(t, func(t *testing.T, cgroup string) {
		dir := theirs(t, id)
		s := newSlot(t)
		o := order(dir, `
			test "$LD_PRELOAD" = /nowhere/lib.so && test "$GODEBUG" = madvdontneed=x,bogus=1 && echo environment
			unset LD_PRELOAD LD_LIBRARY_PATH
			PATH=/usr/bin:/bin
			grep -E '^(Uid|Gid|NoNewPrivs|CapInh|CapPrm|CapEff|CapAmb|Groups|SigIgn):' /proc/self/status
			echo umask $(umask)
			kill -9 $PPID 2>/dev/null || echo cannot kill
			kill -STOP $PPID 2>/dev/null || echo cannot stop
			cat /proc/$PPID/environ 2>/dev/null || echo cannot look
			(echo x >/proc/$PPID/mem) 2>/dev/null || echo cannot write
			ls .. 2>/dev/null || echo cannot list
			cat ../status.json ../lock 2>/dev/null || echo cannot read
			rm -f ../output 2>/dev/null || echo cannot remove
			echo there >>/dev/stdout
			touch /sys/fs/cgroup/unified/x /sys/fs/cgroup/x 2>/dev/null || echo no group
			test -z "$GROUP" || (echo $$ >"$GROUP/cgroup.procs") 2>/dev/null || echo no way out
			true >own`)
		o.Cwd, o.As, o.Cgroup = filepath.Join(dir, "work"), id, cgroup
		o.Env = append(o.Env, "LD_PRELOAD=/nowhere/lib.so", "LD_LIBRARY_PATH=/nowhere", "GODEBUG=madvdontneed=x,bogus=1", "GOTRACEBACK=crash", "GOMAXPROCS=0",
			"PATH=/nowhere", "BASH_ENV=/nowhere", "GROUP="+cgroup)
		if err := os.Chmod(dir, 0o711); err != nil {
			t.Fatal(err)
		}
		if err := s.Run(o); err != nil {
			t.Fatal(err)
		}
		if st := ended(t, s); st.Exit == nil || *st.Exit != 0 {
			t.Errorf("status %+v", st)
		}
		out, err := os.ReadFile(o.Output)
		if err != nil {
			t.Fatal(err)
		}
		uid, gid := strconv.Itoa(id.UID), strconv.Itoa(id.GID)
		wants := []string{"environment", "Uid:\t" + strings.Join([]string{uid, uid, uid, uid}, "\t"), "Gid:\t" + strings.Join([]string{gid, gid, gid, gid}, "\t"),
			fmt.Sprintf("Groups:\t%d %d ", id.GID, id.GID+1), "NoNewPrivs:\t1", "CapInh:\t0000000000000000", "CapPrm:\t0000000000000000", "CapEff:\t0000000000000000",
			"CapAmb:\t0000000000000000", "umask 0022", "cannot kill", "cannot stop", "cannot look", "cannot write", "cannot list", "cannot read", "cannot remove", "there", "no group"}
		if cgroup != "" {
			wants = append(wants, "no way out")
		}
		for _, want := range wants {
			if !slices.Contains(strings.Split(string(out), "\n"), want) {
				t.Errorf("no %q in\n%s", want, out)
			}
		}
		info, err := os.Stat(filepath.Join(o.Cwd, "own"))
		if err != nil || int(info.Sys().(*syscall.Stat_t).Uid) != id.UID {
			t.Errorf("what it wrote: %v", err)
		}
		// The same supervisor runs the next one as itself.
		next := order(newDir(t), "id -u; grep NoNewPrivs /proc/self/status")
		if err := s.Run(next); err != nil {
			t.Fatal(err)
		}
		ended(t, s)
	})
}

// A directory of PATH to which the user of a job does not get has none of its programs, as for the
// user's shell, though the supervisor gets there.
func TestPathOfAnother(t *testing.T) {
	id := somebody(t)
	dir := theirs(t, id)
	ours := filepath.Join(dir, "ours")
	closed, open := filepath.Join(ours, "bin"), filepath.Join(dir, "bin")
	unusable := filepath.Join(dir, "unusable") // the user may not execute what is there
	for bin, mode := range map[string]fs.FileMode{closed: 0o755, open: 0o755, unusable: 0o700} {
		tool := filepath.Join(bin, "tool")
		if err := errors.Join(os.MkdirAll(bin, 0o755), os.WriteFile(tool, []byte("#!/bin/sh\necho $0\n"), 0o600), os.Chmod(tool, mode), os.Chmod(bin, 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Chmod(ours, 0o700), os.Chmod(dir, 0o711)); err != nil {
		t.Fatal(err)
	}
	o := order(dir, "")
	o.Argv, o.Path, o.Cwd, o.As = []string{"tool"}, strings.Join([]string{closed, unusable, open}, ":"), filepath.Join(dir, "work"), id
	s := newSlot(t)
	if err := s.Run(o); err != nil {
		t.Fatal(err)
	}
	st := ended(t, s)
	out, err := os.ReadFile(o.Output)
	if want := filepath.Join(open, "tool") + "\n"; err != nil || string(out) != want || st.Exit == nil || *st.Exit != 0 {
		t.Errorf("%+v, printed %q, want %q: %v", st, out, want, err)
	}
}

// TestN68Lurker is a job whose processes leave its session and forget their
// parents and their environment: none lives when its end is told.
func TestN68Lurker(t *testing.T) {
	id := somebody(t)
	groups(t, func(t *testing.T, cgroup string) {
		dir := theirs(t, id)
		s := newSlot(t)
		o := order(dir, "for i in 1 2 3; do (setsid env -i sh -c 'trap \"\" TERM HUP; (sleep 1000 & sleep 1000) & sleep 1000' >/dev/null 2>&1 </dev/null &); done")
		o.Cwd, o.As, o.Cgroup = filepath.Join(dir, "work"), id, cgroup
		if err := s.Run(o); err != nil {
			t.Fatal(err)
		}
		st := ended(t, s)
		if st.Swept == 0 {
			t.Errorf("nothing was left to sweep: %+v", st)
		}
		ps, err := processes()
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range ps {
			info, err := os.Stat("/proc/" + strconv.Itoa(p.pid))
			if err == nil && int(info.Sys().(*syscall.Stat_t).Uid) == id.UID && !p.gone() {
				t.Errorf("process %d of the user lives", p.pid)
			}
		}
	})
}
