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

	"distribute/lib/pause"
)

// cmdUsers is the command "users NAME[:GROUP,…] …": accounts that only what is
// started with $HERE sees, in a file system of its own, with a home each in
// $WORK/people and with numbers that no other script has at this time. Of the
// machine's own it sees those of the system alone. NAME is their number in the
// environment; "$AS NAME command …" is a command of theirs. At the end of the
// script all their processes are killed. A directory $WORK/run is their /run, which says who
// has a session.
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
	first := 100_000 + 100*rand.IntN(10_000_000)
	groups, members := []string{}, map[string][]string{}
	uids, taken := map[int]bool{}, map[string]bool{}
	var passwd, group []byte
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
			taken[g] = true
		}
		uids[uid], taken[name] = true, true
		ts.Setenv(name, strconv.Itoa(uid))
	}
	gid := first + 50
	for _, g := range groups {
		group = fmt.Appendf(group, "%s:x:%d:%s\n", g, gid, strings.Join(members[g], ","))
		ts.Setenv(g, strconv.Itoa(gid))
		gid++
	}
	ts.Check(os.Chmod(filepath.Join(work, "people"), 0o755))
	for name, text := range map[string][]byte{
		"passwd":        append(systemAccounts(ts, "/etc/passwd", taken), passwd...),
		"group":         append(systemAccounts(ts, "/etc/group", taken), group...),
		"shadow":        nil,
		"nsswitch.conf": []byte("passwd: files\ngroup: files\nshadow: files\nhosts: files dns\n"),
	} {
		ts.Check(os.WriteFile(filepath.Join(work, name), text, 0o644))
	}
	for name, text := range map[string]string{
		"here": `exec unshare -m sh -c 'for f in passwd group shadow nsswitch.conf; do test ! -e /etc/$f || mount --bind "$0/$f" /etc/$f || exit; done; test ! -d "$0/run" || mount --bind "$0/run" /run || exit; exec "$@"' "` + work + `" "$@"`,
		"as":   `name=$1; shift; exec "` + work + `/here" setpriv --reuid "$name" --regid "$name" --init-groups env HOME="` + work + `/people/$name" USER="$name" "$@"`,
	} {
		ts.Check(os.WriteFile(filepath.Join(work, name), []byte("#!/bin/sh\n"+text+"\n"), 0o755))
	}
	ts.Setenv("HERE", filepath.Join(work, "here"))
	ts.Setenv("AS", filepath.Join(work, "as"))
	ts.Defer(func() { killUsers(uids) })
}

// systemAccounts are the lines of /etc/passwd or /etc/group for what belongs to the
// system, without the names that are taken: the people of this machine may be called
// like those of a script, and may be in its groups. The group of jobs is a script's own.
func systemAccounts(ts *testscript.TestScript, path string, taken map[string]bool) []byte {
	text, err := os.ReadFile(path)
	ts.Check(err)
	var kept []byte
	for line := range strings.Lines(string(text)) {
		fields := strings.Split(strings.TrimSpace(line), ":")
		if len(fields) < 4 || taken[fields[0]] || fields[0] == pause.JobGroup {
			continue
		}
		if id, err := strconv.Atoi(fields[2]); err != nil || id >= 1000 && id != 65534 {
			continue
		}
		if len(fields) == 4 {
			fields[3] = "" // the members of a group
		}
		kept = fmt.Appendln(kept, strings.Join(fields, ":"))
	}
	return kept
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
