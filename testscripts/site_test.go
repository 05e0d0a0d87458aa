package testscripts

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"distribute/lib/suite"
)

// A site is a group's machines, each of namespaces, with directories of its own
// where people put things: /etc, /home, /root, /run, /srv, /usr/local, /var/lib
// and /var/log. All know each other by name.
type site struct {
	t     *testing.T
	dir   string
	net   *network
	hosts map[string]*machine
}

// siteWant says what is missing for a site.
func siteWant() error {
	if err := hostsWant(); err != nil {
		return err
	}
	for _, name := range []string{"/usr/sbin/sshd", "ssh", "runuser", "useradd", "systemd-sysusers", "systemd-tmpfiles", "make"} {
		if _, err := exec.LookPath(name); err != nil {
			return fmt.Errorf("machines of namespaces want %s: %w", name, err)
		}
	}
	return nil
}

// newSite makes machines with these names, 192.0.2.1 and on, whose power is on.
func newSite(t *testing.T, names ...string) *site {
	if os.Getenv("D_SITE") == "" {
		suite.Long(t, "D_SITE=1")
	}
	if err := siteWant(); err != nil {
		suite.Missing(t, err)
	}
	t.Parallel()
	s := &site{t: t, hosts: map[string]*machine{}}
	var err error
	if s.dir, err = os.MkdirTemp("", "site"); err != nil {
		t.Fatal(err)
	}
	s.guard(append(names, "net"))
	t.Cleanup(s.close)
	if s.net, err = newNetwork(s.dir); err != nil {
		t.Fatal(err)
	}
	var book strings.Builder
	for i, name := range names {
		fmt.Fprintf(&book, "192.0.2.%d %s\n", i+1, name)
	}
	for i, name := range names {
		m, err := newMachine(s.dir, name, fmt.Sprintf("192.0.2.%d", i+1), 0)
		if err != nil {
			t.Fatal(err)
		}
		s.hosts[name] = m
		if err := errors.Join(furnish(m, book.String()), s.net.plug(m), m.switchOn()); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// guard sees to it that nothing lives longer than this run.
func (s *site) guard(names []string) {
	homes := make([]string, len(names))
	for i, name := range names {
		homes[i] = filepath.Join(s.dir, name, "home")
	}
	guard := exec.Command("guard", homes...)
	guard.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	end, err := guard.StdinPipe()
	if err == nil {
		err = guard.Start()
	}
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		end.Close()
		guard.Wait()
	})
}

// close ends the machines, and keeps what they logged if the test has failed.
func (s *site) close() {
	for _, m := range s.hosts {
		if err := m.off(); err != nil {
			s.t.Error(err)
		}
	}
	if s.net != nil {
		s.net.off()
	}
	if s.t.Failed() {
		s.t.Logf("what the machines logged is in %s/*/own/var/log", s.dir)
		return
	}
	if err := os.RemoveAll(s.dir); err != nil {
		s.t.Error(err)
	}
}

// furnish gives a machine directories of its own, a systemctl, and a book of the
// others' addresses.
func furnish(m *machine, book string) error {
	const script = `set -e
cd "$0"
for d in etc usr var/lib; do
	mkdir -p own/$d work/$d
	mount -t overlay overlay -o lowerdir=/$d,upperdir=own/$d,workdir=work/$d /$d
done
for d in home root srv usr/local var/log; do
	mkdir -p own/$d
	mount --bind own/$d /$d
done
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /usr/local/sbin /usr/local/lib /run/sshd /run/systemd
printf '#!/bin/sh\nexec %s "$@"\n' "$1" >/usr/local/sbin/systemctl
chmod 755 /usr/local/sbin/systemctl
chmod 644 /etc/passwd /etc/group # which the machine below may hide
echo "$2" >>/etc/hosts
rm -rf /etc/ssh/ssh_host_* /etc/resolv.conf /etc/distribute /var/lib/distribute # of the machine below
ssh-keygen -q -t ed25519 -N '' -f /etc/ssh/ssh_host_ed25519_key
`
	standIn, err := exec.LookPath("unit")
	if err != nil {
		return err
	}
	words := m.inside("-m", "sh", "-c", script, m.dir, standIn, book)
	return run(words[0], words[1:]...)
}

// shell is a script that a user's shell runs on the machine, after logging in
// there. It ends at the first command that fails.
func (s *site) shell(host, user, script string) *exec.Cmd {
	m := s.hosts[host]
	init := m.power(context.Background())
	return m.command(context.Background(), init, "unshare", "-u", "sh", "-c", `hostname "$0" && exec runuser -w GORACE -l "$1" -c "$2"`,
		host, user, "set -e\n"+script)
}

// try runs a script, and returns what it printed on stdout, and all that it
// printed in an error if it failed.
func (s *site) try(host, user, script string) (string, error) {
	var out, talk bytes.Buffer
	cmd := s.shell(host, user, script)
	cmd.Stdout, cmd.Stderr = &out, &talk
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("on %s, as %s: %w:\n%s\n%s%s", host, user, err, script, out.String(), talk.String())
	}
	return out.String(), nil
}

// do is try of what must succeed.
func (s *site) do(host, user, script string) string {
	s.t.Helper()
	out, err := s.try(host, user, script)
	if err != nil {
		s.t.Fatal(err)
	}
	return out
}

// until runs a script again and again, until it has printed what is wanted.
func (s *site) until(host, user, script string, right func(out string) bool) {
	s.t.Helper()
	var out string
	var err error
	for end := time.Now().Add(3 * time.Minute); time.Now().Before(end); <-time.After(250 * time.Millisecond) {
		if out, err = s.try(host, user, script); right(out) {
			return
		}
	}
	s.t.Fatalf("on %s, as %s: %s\nprints in the end:\n%s%v", host, user, script, out, err)
}

// people makes users on machines, who reach the head by ssh from there without
// being asked anything.
func (s *site) people(head string, from []string, users ...string) {
	s.t.Helper()
	s.do(head, "root", "/usr/sbin/sshd -E /var/log/sshd.log")
	key := strings.Fields(s.do(head, "root", "cat /etc/ssh/ssh_host_ed25519_key.pub"))
	const add = `add() { id "$1" >/dev/null 2>&1 || useradd -m -s /bin/bash "$1"; }; add `
	for _, user := range users {
		s.do(head, "root", add+user)
	}
	for _, host := range from {
		s.do(host, "root", fmt.Sprintf("echo %s %s %s >>/etc/ssh/ssh_known_hosts", head, key[0], key[1]))
		for _, user := range users {
			s.do(host, "root", add+user)
			public := s.do(host, user, "test -e ~/.ssh/id_ed25519 || ssh-keygen -q -t ed25519 -N '' -f ~/.ssh/id_ed25519; cat ~/.ssh/id_ed25519.pub")
			s.do(head, user, "mkdir -pm 700 ~/.ssh; cat >>~/.ssh/authorized_keys <<'END'\n"+public+"END")
		}
	}
}

// own is where the test finds the place that a machine has for a path in one of
// the directories of its own.
func (s *site) own(host, path string) string {
	return filepath.Join(s.dir, host, "own", path)
}
