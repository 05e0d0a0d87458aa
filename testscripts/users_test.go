package testscripts

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/rogpeppe/go-internal/testscript"
)

// cmdUsers is the command "users NAME[:GROUP,…] …": accounts that only what is
// started with $HERE sees, in a file system of its own, with a home each in
// $WORK/people and with numbers that no other script has at this time. NAME is
// their number in the environment; "$AS NAME command …" is a command of theirs.
// At the end of the script all their processes are killed.
func cmdUsers(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: users NAME[:GROUP,...] ...")
	}
	work := ts.Getenv("WORK")
	for d := work; d != "/"; d = filepath.Dir(d) {
		info, err := os.Stat(d)
		ts.Check(err)
		open := info.Mode() | 0o011
		if open&0o022 != 0 {
			open |= os.ModeSticky // else no node of root would be there
		}
		if open != info.Mode() {
			ts.Check(os.Chmod(d, open))
		}
	}
	passwd, err := os.ReadFile("/etc/passwd")
	ts.Check(err)
	group, err := os.ReadFile("/etc/group")
	ts.Check(err)
	first := 100_000 + 100*rand.IntN(10_000_000)
	groups, members := []string{}, map[string][]string{}
	uids := map[int]bool{}
	for i, arg := range args {
		name, in, _ := strings.Cut(arg, ":")
		uid := first + i
		home := filepath.Join(work, "people", name)
		ts.Check(os.MkdirAll(home, 0o700))
		ts.Check(os.Chown(home, uid, uid))
		passwd = fmt.Appendf(passwd, "%s:x:%d:%d::%s:/bin/sh\n", name, uid, uid, home)
		group = fmt.Appendf(group, "%s:x:%d:\n", name, uid)
		for _, g := range strings.FieldsFunc(in, func(r rune) bool { return r == ',' }) {
			if members[g] == nil {
				groups = append(groups, g)
			}
			members[g] = append(members[g], name)
		}
		uids[uid] = true
		ts.Setenv(name, strconv.Itoa(uid))
	}
	gid := first + 50
	for _, g := range groups {
		group = fmt.Appendf(group, "%s:x:%d:%s\n", g, gid, strings.Join(members[g], ","))
		ts.Setenv(g, strconv.Itoa(gid))
		gid++
	}
	ts.Check(os.Chmod(filepath.Join(work, "people"), 0o755))
	for name, text := range map[string][]byte{"passwd": passwd, "group": group} {
		ts.Check(os.WriteFile(filepath.Join(work, name), text, 0o644))
	}
	for name, text := range map[string]string{
		"here": `exec unshare -m sh -c 'mount --bind "$0/passwd" /etc/passwd && mount --bind "$0/group" /etc/group && exec "$@"' "` + work + `" "$@"`,
		"as":   `name=$1; shift; exec "` + work + `/here" setpriv --reuid "$name" --regid "$name" --init-groups env HOME="` + work + `/people/$name" USER="$name" "$@"`,
	} {
		ts.Check(os.WriteFile(filepath.Join(work, name), []byte("#!/bin/sh\n"+text+"\n"), 0o755))
	}
	ts.Setenv("HERE", filepath.Join(work, "here"))
	ts.Setenv("AS", filepath.Join(work, "as"))
	ts.Defer(func() { killUsers(uids) })
}

// killUsers kills every process of users that no one else has.
func killUsers(uids map[int]bool) {
	for again := true; again; {
		again = false
		procs, _ := filepath.Glob("/proc/[0-9]*")
		for _, dir := range procs {
			pid, _ := strconv.Atoi(filepath.Base(dir))
			info, err := os.Stat(dir)
			if err != nil || pid < 2 || gone(pid) {
				continue
			}
			if st, ok := info.Sys().(*syscall.Stat_t); ok && uids[int(st.Uid)] {
				again = true
				syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	}
}
