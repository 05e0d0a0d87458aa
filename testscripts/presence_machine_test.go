package testscripts

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"path/filepath"
	"testing"
	"time"

	"distribute/lib/suite"
)

// TestDeskHasSomebody is a node under systemd that pauses while somebody is there,
// by each source alone: a session of logind on the console, the console itself, the
// interrupts of its keyboard, and work that is not ours. The emulator presses keys
// at the keyboard, so that all above it is as on a desk.
func TestDeskHasSomebody(t *testing.T) {
	suite.Long(t, "")
	needComputer(t)
	m := newUnitMachine(t)
	m.step("install", func() { m.install(sessions) })
	m.step("boot", func() { m.check(m.switchOn()) })
	m.step("set up", func() { m.setUp(); m.login() })
	for _, s := range []struct {
		source string
		does   func()
		seen   string
	}{
		{"logind", m.press, `session [0-9]* (maria, tty1)`},
		{"terminals", m.press, `terminal tty1 (maria)`},
		{"input", m.press, `input i8042 1`},
		{"load", m.work, `load of [0-9.]* cpus that is not ours`},
	} {
		m.step(s.source, func() { m.somebody(s.source, s.does, s.seen) })
	}
}

// sessions installs what makes sessions of who logs in.
const sessions = `
cp -r "$PEERS/machine/session" "$root"
chroot "$root" sh -c 'dpkg -i /session/*.deb && rm -r /session'
`

// login has maria log in on the console.
func (m *unitMachine) login() {
	m.do(`
mkdir /etc/systemd/system/getty@tty1.service.d
printf '[Service]\nExecStart=\nExecStart=-/sbin/agetty --autologin maria --noclear %%I linux\n' >/etc/systemd/system/getty@tty1.service.d/maria.conf
systemctl daemon-reload
systemctl restart getty@tty1
`)
	m.await(`loginctl list-sessions --no-legend | grep 'maria.*tty1'`)
}

// work has somebody work at something that is not ours.
func (m *unitMachine) work() {
	m.do("pgrep -u maria timeout || setsid runuser -u maria -- timeout 900 sh -c 'while :; do :; done' >/dev/null 2>&1 </dev/null &")
}

// press presses A and Enter on the machine's keyboard.
func (m *unitMachine) press() {
	c, err := net.Dial("unix", filepath.Join(m.home, "monitor"))
	m.check(err)
	defer c.Close()
	for _, key := range []string{"a", "ret"} {
		_, err := fmt.Fprintf(c, "sendkey %s\n", key)
		m.check(err)
		// The monitor is ready for the next when it has asked for it.
		_, err = bufio.NewReader(c).ReadString('\n')
		m.check(err)
	}
}

// somebody has the node go by one source, and a job stand still while somebody does
// something, until he has been away.
func (m *unitMachine) somebody(source string, does func(), seen string) {
	m.do(fmt.Sprintf(`
file=/var/lib/distribute/node/node.yaml
sed -i '/^auto_pause/d; /^presence/d' $file
printf 'auto_pause: 20s\npresence: [%[1]s]\n' >>$file
systemctl reload distribute-node
maria "dsubmit -q -b lab/%[1]s -R cpus=1 -- sh -c 'until test -e /var/tmp/%[1]s; do sleep 0.2; done'"
`, source))
	running := fmt.Sprintf(`[ "$(maria dquery -c state %s)" = running ]`, source)
	m.await(running)
	paused := fmt.Sprintf(`
{ maria dquery -N; dpause; } >/tmp/seen
grep 'machine.paused.*somebody is active: %s' /tmp/seen && grep '^pause.*somebody is active' /tmp/seen && [ "$(maria dquery -c state %s)" = paused ]`, seen, source)
	if !within(8*time.Minute, func(context.Context) bool {
		does()
		_, err := m.try(paused)
		return err == nil
	}) {
		m.do(`fail "$(cat /tmp/seen; dnoded -n)"`)
	}
	if source == "load" {
		m.do("pkill -u maria timeout || fail 'nothing worked'; dadm resume machine")
	} else {
		m.await(running)
	}
	m.do(fmt.Sprintf("touch /var/tmp/%[1]s; maria dwait -q %[1]s", source))
}
