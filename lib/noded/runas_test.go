package noded

import (
	"context"
	"errors"
	"slices"
	"testing"

	"distribute/lib/account"
	"distribute/lib/desk"
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

func TestWhose(t *testing.T) {
	maria := &account.Account{Name: "maria", UID: 1001, GID: 100, Groups: []int{100}}
	n := &daemon{Settings: &Settings{RunsAs: node.Submitter, As: func(_ context.Context, who string) (*account.Account, error) {
		if who != "maria" {
			return nil, errors.New("not among the users")
		}
		return maria, nil
	}}}
	a := &attempt{Attempt: &desk.Attempt{Note: desk.Note{User: "ben"}}}
	var barred *barredError
	if err := n.whose(t.Context(), a); !errors.As(err, &barred) || err.Error() != "does not run jobs of ben: not among the users" {
		t.Error(err)
	}
	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	if err := n.whose(stopped, a); err == nil || errors.As(err, &barred) {
		t.Errorf("of an attempt that is stopped: %v", err)
	}
	a.User = "maria"
	if err := n.whose(t.Context(), a); err != nil || a.account != maria || n.builder(a) != "maria" {
		t.Errorf("%v, %+v, %q", err, a.account, n.builder(a))
	}
	n.RunsAs = "jobs"
	if n.builder(a) != "jobs" {
		t.Errorf("%q", n.builder(a))
	}
	if o := ownerOf(a.account); o.UID != 1001 || identity(o).GID != 100 || identity(ownerOf(nil)) != nil {
		t.Errorf("%+v", o)
	}
}
