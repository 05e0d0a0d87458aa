package noded

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"distribute/lib/account"
	"distribute/lib/desk"
	"distribute/lib/node"
	"distribute/lib/pause"
	"distribute/lib/proc"
)

// As whom jobs run, where that is not the user of the daemon. A tree is made by
// the daemon where nobody else can enter, and then handed over; from then on
// what is in it is read with the owner's rights, since he can put anything there
// at any time. What the daemon itself believes lies beside it, in a directory
// that the owner can only go through.

// A barredError says that the node does not run the jobs of a user.
type barredError struct{ user, why string }

func (e *barredError) Error() string {
	return fmt.Sprintf("does not run jobs of %.100s: %s", e.user, e.why)
}

// whose finds as whom the jobs of a user run, each time anew: an account may have come
// or gone since.
func (n *daemon) whose(ctx context.Context, user string) (*account.Account, error) {
	if n.given().As == nil {
		return nil, nil
	}
	acc, err := n.given().As(ctx, user)
	if err != nil && ctx.Err() == nil {
		return nil, &barredError{user, err.Error()}
	}
	return n.asJob(acc), err
}

// maxGroups is how many groups a user can have on NFS, besides the first.
const maxGroups = 16

// asJob returns the account with the group of jobs, which keeps them from pausing the node,
// unless another group would count no more for that.
func (n *daemon) asJob(acc *account.Account) *account.Account {
	if acc == nil || n.JobGroup == 0 || len(acc.Groups) > maxGroups-1 {
		return acc
	}
	job := *acc
	job.Groups = append(slices.Clone(acc.Groups), n.JobGroup)
	return &job
}

// closePlaces lets no job write into the node's own places. Those of the machine are its
// installation's.
func (n *daemon) closePlaces() {
	if n.JobGroup == 0 {
		return
	}
	for _, place := range pause.PlacesOf(n.desk.Dir()) {
		if place == pause.MachinePlace || place == pause.RunPlace {
			continue
		}
		if err := pause.CloseTo(place, n.JobGroup); err != nil {
			n.Log.Warn("jobs can pause the node", "why", err)
		}
	}
}

// builder is as whom an attempt's batch is built, as the directory of the build
// is named by it.
func (n *daemon) builder(submitter string) string {
	if n.RunsAs == node.Submitter {
		return submitter
	}
	return n.RunsAs
}

// ownerOf is an account as the directory knows it; nil for none.
func ownerOf(acc *account.Account) *desk.Owner {
	if acc == nil {
		return nil
	}
	return &desk.Owner{UID: acc.UID, GID: acc.GID, Groups: acc.Groups}
}

// identity is with whose rights files of an owner are read; nil: the daemon's.
func identity(o *desk.Owner) *proc.Identity { return (*proc.Identity)(o) }

// owner is whose the files of an attempt are that has started.
func (a *attempt) owner() *desk.Owner {
	s := a.Started()
	if s == nil {
		return nil
	}
	return s.As
}

// env is what jobs of an account get of the daemon's environment: of the
// variables that tell of a user, his.
func (n *daemon) env(acc *account.Account) []string {
	if acc == nil {
		return n.Env[:len(n.Env):len(n.Env)]
	}
	env := []string{"HOME=" + acc.Home, "USER=" + acc.Name, "LOGNAME=" + acc.Name, "SHELL=" + acc.Shell}
	if acc.Shell == "" {
		env[3] = "SHELL=/bin/sh" // as passwd(5) has it
	}
	for _, v := range n.Env {
		if name, _, _ := strings.Cut(v, "="); name != "HOME" && name != "USER" {
			env = append(env, v)
		}
	}
	return env
}
