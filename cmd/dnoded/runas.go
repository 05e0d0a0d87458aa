package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"distribute/lib/account"
	"distribute/lib/cli"
	"distribute/lib/inventory"
	"distribute/lib/node"
	"distribute/lib/noded"
	"distribute/lib/pause"
)

// runAs sets in s as whom jobs run, by dnoded(8), where dnoded runs as uid, and says what must not
// go unsaid. AsRoot says that the head is one for which root's own jobs may run as root. The error
// is one of the node's file, or of where it is used.
func runAs(ctx context.Context, s *noded.Settings, f *inventory.File, asRoot bool, uid int) error {
	switch {
	case uid != 0 && f.RunAs != "":
		return f.Mistake("run_as", "only root can run jobs as others: start dnoded as root, or take run_as out, so that all jobs run as %s", account.UserName(uid))
	case uid != 0:
		return nil
	case f.RunAs == "" && !asRoot:
		return cli.Errorf(cli.Input, "dnoded is root, and jobs do not run as root for a head that is not on this machine: say in its node.yaml as whom they run, as\n"+
			"\trun_as: submitter\n\tusers: [maria, '@lab']\nor, for all jobs,\n\trun_as: USER\nor start dnoded as a user of its own")
	case f.RunAs == "":
		s.Log.Warn("only root's jobs run, as root: dnoded is root, and its node.yaml does not say run_as", "head", s.Addr)
		s.As = onlyOf(uid, account.Name)
		return nil
	}
	rule := ruleOf(f)
	if err := people(ctx, f, s.Log); err != nil {
		return err
	}
	s.As, s.RunsAs = rule.As, f.RunAs
	gid, err := account.GroupID(ctx, pause.JobGroup)
	if err != nil && !errors.Is(err, account.ErrUnknown) {
		s.Log.Warn("cannot look up the group of jobs, which keeps them from pausing the node", "why", err)
	}
	s.JobGroup = gid
	return passable(s.Dir)
}

// people says who of those as whom jobs run is none, and warns of those who cannot
// be found: a directory service may not be there yet.
func people(ctx context.Context, f *inventory.File, log *slog.Logger) error {
	key, rule := "run_as", ruleOf(f)
	if f.RunAs == node.Submitter {
		key = "users"
	}
	for _, name := range append(rule.Users, rule.One) {
		if name == "" || strings.HasPrefix(name, "@") {
			continue
		}
		switch a, err := account.Lookup(ctx, name); {
		case err != nil:
			log.Warn("cannot run jobs as this user now", "user", name, "why", err)
		case a.Person() != nil:
			return f.Mistake(key, "jobs cannot run so: %w", a.Person())
		}
	}
	return nil
}

// ruleOf is what the node's file says of whose jobs run as whom.
func ruleOf(f *inventory.File) *account.Rule {
	if f.RunAs == node.Submitter {
		return &account.Rule{Users: f.Users}
	}
	return &account.Rule{One: f.RunAs}
}

// onlyOf is for a daemon of whose own user alone jobs run, as that user. It asks nameOf for
// each job: a name that cannot be looked up now can be later.
func onlyOf(uid int, nameOf func(uid int) (string, error)) func(context.Context, string) (*account.Account, error) {
	return func(_ context.Context, submitter string) (*account.Account, error) {
		name, err := nameOf(uid)
		if err != nil && !errors.Is(err, account.ErrUnknown) {
			return nil, fmt.Errorf("the name of the user %d cannot be looked up now: %w", uid, err)
		}
		if submitter != name {
			return nil, fmt.Errorf("it runs jobs as %s, and so only those of %[1]s; run_as in its node.yaml says otherwise", name)
		}
		return nil, nil
	}
}

// passable says why jobs of others could not go to what is theirs in a node's
// directory, or could put something else in its place.
func passable(dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	if err := passableAs(dir, dir); err != nil {
		return err
	}
	real, err := filepath.EvalSymlinks(dir)
	if errors.Is(err, fs.ErrNotExist) { // it is made in a place that was looked at
		return nil
	}
	if err != nil {
		return err
	}
	return passableAs(dir, real)
}

// passableAs is passable by the directories above one of its names.
func passableAs(dir, name string) error {
	for up := filepath.Dir(name); ; up = filepath.Dir(up) {
		info, err := os.Stat(up)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err == nil && info.Mode().Perm()&0o001 == 0 {
			return cli.Errorf(cli.Input, "the users whose jobs are to run here cannot get to %q: %q has mode %04o; give dnoded another directory with -D, or let them through (chmod o+x)", dir, up, info.Mode().Perm())
		}
		if err == nil && changeable(info) {
			return cli.Errorf(cli.Input, "others than root could put another directory in the place of %q: %q is theirs to write in; give dnoded another directory with -D, or take %[2]q from them (chown root, chmod go-w)", dir, up)
		}
		if up == "/" {
			return nil
		}
	}
}

// changeable says that others than root may rename what is in a directory.
func changeable(dir fs.FileInfo) bool {
	st, ok := dir.Sys().(*syscall.Stat_t)
	if !ok || st.Uid != 0 {
		return true
	}
	group, others := dir.Mode().Perm()&0o020 != 0 && st.Gid != 0, dir.Mode().Perm()&0o002 != 0
	return (group || others) && dir.Mode()&fs.ModeSticky == 0
}

// starter is as whom a node of that directory would run, if uid asks, and why: where root asks of
// the node of a unit, as its owner.
func starter(uid int, dir string) (int, string) {
	if info, err := os.Stat(dir); err == nil && uid == 0 {
		if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Uid != 0 {
			return int(st.Uid), "whose directory it is"
		}
	}
	return uid, "the user of dnoded"
}

// runsAs is as whom jobs run, and why.
func runsAs(f *inventory.File, uid int, dir string) inventory.Fact {
	fact := inventory.Fact{What: "run_as"}
	uid, fact.Why = starter(uid, dir)
	fact.Value = account.UserName(uid)
	switch {
	case f.RunAs != "":
		fact.Value, fact.Why = ruleOf(f).String(), "node.yaml"
	case uid == 0: // and the directory is root's
		fact.Why = "no run_as, so only root's jobs of a head on this machine"
	}
	return fact
}
