package testscripts

import (
	"context"
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

// TestN54L40Systemd is a head and a node under systemd, on a machine that has
// nothing but what make install has put there: units are stopped, killed and
// upgraded under jobs that do not notice, and come back after a reboot without a
// network.
func TestN54L40Systemd(t *testing.T) {
	suite.Long(t, "")
	needComputer(t)
	m := newUnitMachine(t)
	m.step("install", func() { m.install("") })
	m.step("boot", func() { m.check(m.switchOn()) })
	m.step("set up", m.setUp)
	m.step("jobs do not notice", m.undisturbed)
	m.step("before systemd 254", m.older)
	m.step("as the submitter", m.asSubmitter)
	m.step("a desk that its user lends, and a timer", m.lent)
	m.step("reboot", m.reboot)
}

// A unitMachine is a computer whose process 1 is systemd.
type unitMachine struct {
	*testing.T
	*computer
}

func newUnitMachine(t *testing.T) *unitMachine {
	c, err := newComputer(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	c.boot = "init=/sbin/init root=/dev/vdb"
	t.Cleanup(func() { c.cut() })
	return &unitMachine{t, c}
}

func (m *unitMachine) check(err error) {
	m.Helper()
	if err != nil {
		m.Fatal(err)
	}
}

func (m *unitMachine) step(name string, f func()) {
	began := time.Now()
	f()
	m.Logf("%s: %v", name, time.Since(began).Round(time.Second))
}

// tools are what the scripts below have in common.
const tools = `
set -eu
export PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
maria() { runuser -l maria -c "$*"; }
fail() { echo "$*" >&2; systemctl status --no-pager -l 'distribute-*' >&2; journalctl --no-pager -n 60 -u 'distribute-*' -u user@1000 >&2; exit 1; }
main() { systemctl show -P MainPID "$1"; }
`

// do has root's shell run a script, and returns what it printed.
func (m *unitMachine) do(script string) string {
	m.Helper()
	out, err := m.try(script)
	if err != nil {
		m.Fatalf("%v\n%s", err, script)
	}
	return out
}

func (m *unitMachine) try(script string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	cmd := m.ssh(ctx, strings.NewReader(tools+script), "exec sh -s")
	var talk strings.Builder
	cmd.Stderr = &talk
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%w: %s%s", err, out, talk.String())
	}
	return strings.TrimSpace(string(out)), err
}

// await waits until a script ends well.
func (m *unitMachine) await(script string) {
	m.Helper()
	m.do("for n in $(seq 600); do if (\n" + script + "\n) >/dev/null 2>&1; then exit 0; fi; sleep 0.2; done; fail 'waited in vain'")
}

// install makes the disk that the machine starts from, installs there, and has a
// script of the host do more while the disk is mounted on $root.
func (m *unitMachine) install(more string) {
	image, root := filepath.Join(m.home, "data.img"), filepath.Join(m.home, "root")
	m.check(run("cp", "--sparse=always", filepath.Join(os.Getenv("PEERS"), "machine", "root.img"), image))
	m.check(os.Mkdir(root, 0o755))
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	// Namespaces that other tests make now would keep a mount of ours after its end,
	// and the kernel would write to the disk under the machine.
	cmd := exec.CommandContext(ctx, "unshare", "-m", "sh", "-eu", "-c", `
image=$1 root=$2
mount -o loop "$image" "$root"
make -C "$3" install DESTDIR="$root" BIN="$4"
`+more+`
umount -R "$root"
while losetup -j "$image" | grep .; do sleep 0.1; done
`, "sh", image, root, os.Getenv("TOP"), filepath.Join(m.home, "bin"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if out, err := cmd.CombinedOutput(); err != nil {
		m.Fatalf("installing: %v: %s", err, out)
	}
}

// setUp is what an operator does on a head that is a node, too.
func (m *unitMachine) setUp() {
	m.do(`
{
` + example(m.T, "dsched.8", "enable --now distribute-head") + `
} >/root/fingerprint
useradd -m -u 1000 -s /bin/sh -G distribute maria
maria dquery >/dev/null || [ $? = 1 ] || fail 'started, and does not listen'
{
` + joins(example(m.T, "dnoded.8", "enable --now distribute-node")) + `
} >/root/node
dadm accept $(cat /root/node)
mkdir -m 1777 /scratch
`)
	m.await(`maria dquery -N | grep -q 'machine.idle'`)
	m.do(`
journalctl -u distribute-node | grep -q 'containment=cgroup' || fail 'not contained by a cgroup'
! journalctl -u distribute-node | grep 'does not enforce' || fail 'not bound'
journalctl -u distribute-head -p info -o cat | grep -q '^msg=listening' || fail 'no log, or not as the journal has it'
[ "$(journalctl -u distribute-head -p warning -o cat)" = '' ] || fail 'warnings'
[ "$(stat -c %U "/proc/$(main distribute-head)" "/proc/$(main distribute-node)" | xargs)" = 'distribute distribute-node' ] || fail 'users'
systemd-analyze security --no-pager --threshold=25 distribute-head >/tmp/scores || fail "$(cat /tmp/scores)"
systemd-analyze security --no-pager --threshold=50 distribute-node >>/tmp/scores || fail "$(cat /tmp/scores)"
`)
	m.Log(m.do("grep Overall /tmp/scores"))
	m.contains("contained")
}

// contains has a job make what a container has: namespaces of a user, with a /proc.
func (m *unitMachine) contains(batch string) {
	m.do("maria dsubmit -wb " + batch + " -R cpus=1 -- unshare -Urmpf --mount-proc true || fail \"$(maria dlog " + batch + " 2>&1)\"")
}

// joins is an example in which a node joins the head of this machine.
func joins(example string) string {
	return strings.Replace(example, "head SHA256:...", `127.0.0.1 "$(cat /root/fingerprint)"`, 1)
}

// begin has maria submit a job that counts until its file end is there, and waits
// for its pid.
func (m *unitMachine) begin(batch string) {
	m.do(`
cat >/home/maria/count <<'END'
#!/bin/sh
cd /var/tmp
echo $$ >"$1.pid"
id -un >"$1.user"
n=0
until [ -e "$1.end" ]; do echo $((n += 1)); sleep 0.1; done
echo over >"$OLDPWD/result"
END
chmod 755 /home/maria/count
maria dsubmit -b ` + batch + ` -R cpus=1 -- ./count ` + batch)
	m.await("test -s /var/tmp/" + batch + ".pid")
}

// counts holds that the job of a batch goes on while a script runs: the process is
// the same, and what it prints arrives.
func (m *unitMachine) counts(batch, script string) {
	m.Helper()
	const born = `cut -d' ' -f22 </proc/$(cat /var/tmp/BATCH.pid)/stat`
	counted := `maria dlog BATCH | tail -n 1`
	m.do(strings.ReplaceAll(`
`+born+` >/tmp/born
`+counted+` >/tmp/counted
`+script+`
[ "$(`+born+`)" = "$(cat /tmp/born)" ] || fail 'another process'
for n in $(seq 300); do
	now=$(`+counted+`) && [ "$now" -gt $(($(cat /tmp/counted) + 5)) ] && exit 0
	sleep 0.2
done
fail "counted to $(cat /tmp/counted), then to $now"`, "BATCH", batch))
}

// finish lets the job end, and brings its result home.
func (m *unitMachine) finish(batch string) {
	m.do(strings.ReplaceAll(`
touch /var/tmp/BATCH.end
maria 'dquery BATCH | dwait | dpull -q -o home && grep -rqx over home/*/BATCH' || fail "no result: $(maria find home)"
`, "BATCH", batch))
}

// undisturbed is all that happens to a daemon under a job that does not notice.
func (m *unitMachine) undisturbed() {
	m.do(`
d=/etc/systemd/system/distribute-node.service.d
mkdir $d
cat >$d/scratch.conf <<'END'
` + example(m.T, "dnoded.8", "ReadWritePaths=/scratch") + `END
systemctl daemon-reload
systemctl restart distribute-node
`)
	m.begin("long")
	m.do(`
group=$(sed -n 's/^0:://p' "/proc/$(cat /var/tmp/long.pid)/cgroup")
case $group in
/system.slice/distribute-node.service/distribute/machine.*/*) ;;
*) fail "the job is in $group" ;;
esac
[ "$(cat "/sys/fs/cgroup${group%/*}/memory.max")" != max ] || fail 'memory is not bound'
[ "$(sed -n 's/^0:://p' "/proc/$(main distribute-node)/cgroup")" = /system.slice/distribute-node.service/dnoded ] || fail 'dnoded is elsewhere'
[ "$(cat /var/tmp/long.user)" = distribute-node ] || fail 'another user'
grep -q '^NoNewPrivs:.1' "/proc/$(cat /var/tmp/long.pid)/status" || fail 'may gain privileges'
! nsenter -t "$(cat /var/tmp/long.pid)" -m ls /home/maria 2>/dev/null || fail 'sees homes'
nsenter -t "$(cat /var/tmp/long.pid)" -m touch /scratch/mark /var/tmp/mark || fail 'no scratch'
! nsenter -t "$(cat /var/tmp/long.pid)" -m touch /srv/mark /etc/mark 2>/dev/null || fail 'writes anywhere'
`)
	m.counts("long", "systemctl restart distribute-node")
	m.counts("long", "systemctl stop distribute-node; [ $(systemctl is-active distribute-node) = inactive ]; systemctl start distribute-node")
	m.counts("long", "was=$(main distribute-node); kill -9 $was; until [ $(main distribute-node) != $was ] && systemctl -q is-active distribute-node; do sleep 0.2; done")
	m.counts("long", "systemctl restart distribute-head")
	m.counts("long", `
for name in dsched dnoded; do
	cp /usr/local/bin/$name /usr/local/bin/$name.new
	echo newer >>/usr/local/bin/$name.new
	mv /usr/local/bin/$name.new /usr/local/bin/$name
done
systemctl restart distribute-head distribute-node
for unit in dsched:head dnoded:node; do
	cmp "/proc/$(main "distribute-${unit#*:}")/exe" "/usr/local/bin/${unit%:*}" || fail 'not the new one'
done`)
	m.do(`[ $(journalctl -u distribute-node -o cat | grep -c 'attempt taken up.*stage=adopted') -ge 4 ] || fail 'not taken up'`)
	m.finish("long")
}

// older is a systemd that does not know DelegateSubgroup=, where dnoded is in the
// group of the unit itself: what jobs take is not bounded, and all else is as ever.
func (m *unitMachine) older() {
	m.do(`
systemctl stop distribute-node
mkdir /run/systemd/system/distribute-node.service.d
printf '[Service]\nDelegateSubgroup=\n' >/run/systemd/system/distribute-node.service.d/older.conf
systemctl daemon-reload
systemctl start distribute-node
`)
	m.begin("older")
	m.counts("older", "systemctl restart distribute-node")
	m.do(`
grep -q '/distribute-node.service/distribute/machine[.]' "/proc/$(cat /var/tmp/older.pid)/cgroup" || fail "in $(cat "/proc/$(cat /var/tmp/older.pid)/cgroup")"
journalctl -u distribute-node -n 20 -o cat | grep -q 'does not enforce.*processes, memory' || fail 'bound'
`)
	m.finish("older")
	m.do(`
systemctl stop distribute-node
rm -r /run/systemd/system/distribute-node.service.d
systemctl daemon-reload
systemctl start distribute-node
`)
}

// asSubmitter changes the node to one that is root.
func (m *unitMachine) asSubmitter() {
	m.do(`
printf 'run_as: submitter\nusers: [maria]\n' >>/var/lib/distribute/node/node.yaml
` + example(m.T, "dnoded.8", "run-as.conf") + `
systemd-analyze security --no-pager --threshold=65 distribute-node >/tmp/scores || fail "$(cat /tmp/scores)"
`)
	m.Log(m.do("grep Overall /tmp/scores"))
	m.contains("contained.own")
	m.begin("own")
	m.do(`
[ "$(cat /var/tmp/own.user)" = maria ] || fail 'another user'
grep -q '/system.slice/distribute-node.service/distribute/machine[.]' "/proc/$(cat /var/tmp/own.pid)/cgroup" || fail 'another group'
grep -q '^NoNewPrivs:.1' "/proc/$(cat /var/tmp/own.pid)/status" || fail 'may gain privileges'
[ "$(grep -c '^Cap...:.0000000000000000' "/proc/$(cat /var/tmp/own.pid)/status")" -ge 4 ] || fail "$(grep Cap "/proc/$(cat /var/tmp/own.pid)/status")"
nsenter -t "$(cat /var/tmp/own.pid)" -m ls /home/maria >/dev/null || fail 'sees no homes'
`)
	m.counts("own", "systemctl restart distribute-node")
	m.finish("own")
}

// lent is a node of a user's own manager, which has the timer of distribute(7), too.
// There is no logind, for which the machine lacks D-Bus.
func (m *unitMachine) lent() {
	lend := joins(example(m.T, "dnoded.8", "systemctl --user"))
	m.do(`
systemctl stop distribute-node
cd /etc/systemd/system
mkdir user@.service.d
printf '[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=install -d -m 700 -o %%i /run/user/%%i\n' >user-runtime-dir@.service
printf '[Service]\nPAMName=\nEnvironment=XDG_RUNTIME_DIR=/run/user/%%i\n' >user@.service.d/machine.conf
systemctl daemon-reload
systemctl start user@1000
mkdir -p /home/maria/.local/state/distribute/node
echo 'name: lent' >/home/maria/.local/state/distribute/node/node.yaml
chown -R maria: /home/maria/.local
cat >/root/lend <<'END'
export XDG_RUNTIME_DIR=/run/user/1000
` + strings.Replace(lend, "loginctl enable-linger\n", "", 1) + `END
chmod 755 /root /root/lend /root/fingerprint
dadm accept $(maria sh /root/lend)
`)
	m.begin("lent")
	m.do(`
[ "$(cat /var/tmp/lent.user)" = maria ] || fail 'another user'
grep -q '/user@1000.service/app.slice/distribute-node.service/distribute/lent[.]' "/proc/$(cat /var/tmp/lent.pid)/cgroup" || fail "in $(cat "/proc/$(cat /var/tmp/lent.pid)/cgroup")"
`)
	m.counts("lent", "maria XDG_RUNTIME_DIR=/run/user/1000 systemctl --user restart distribute-node")
	m.finish("lent")
	soon := strings.Replace(example(m.T, "distribute.7", "OnCalendar="), "OnCalendar=Mon..Fri 03:00", "OnActiveSec=1s\nAccuracySec=1s", 1)
	m.do(`
cd /home/maria
mkdir -p study .config/systemd/user
cat >study/study.yaml <<'END'
meta: {namespace: maria, batch_name: study}
command:
  jobs: [{name: one, run: ["true"]}]
END
cat >.config/systemd/user/study.service <<'END'
` + example(m.T, "distribute.7", "Type=oneshot") + `END
cat >.config/systemd/user/study.timer <<'END'
` + soon + `END
chown -R maria: .config study
maria XDG_RUNTIME_DIR=/run/user/1000 systemctl --user daemon-reload
maria XDG_RUNTIME_DIR=/run/user/1000 systemctl --user start study.timer
`)
	m.await("maria dquery study state=done | grep -q one")
	m.ownHead()
	m.do(`
systemctl stop user@1000
systemctl start distribute-node`)
}

// ownHead is dlocal(1) of a user who has a systemd of his own: his jobs have groups in a
// scope, and go on in it when all is stopped and started again. Without logind, systemd may
// take his processes only from a group of his.
func (m *unitMachine) ownHead() {
	const own = `
terminal=/sys/fs/cgroup/user.slice/user-1000.slice/user@1000.service/app.slice/terminal
mkdir -p $terminal
own() { (
	sh -c 'echo $PPID' >$terminal/cgroup.procs
	maria "export XDG_RUNTIME_DIR=/run/user/1000 DHEAD=/home/maria/mine/spool; $*"
); }
group() { sed -n 's/^0:://p' "/proc/$(cat /var/tmp/mine.pid)/cgroup"; }
`
	m.do(own + `
own dlocal -d mine || fail 'dlocal'
own dquery -N >/tmp/lacks
! grep -i 'best effort' /tmp/lacks || fail 'best effort'
own dsubmit -b mine -R cpus=1,memory=64MiB -- ./count mine
`)
	m.await("test -s /var/tmp/mine.pid")
	m.do(own + `
case $(group) in
/user.slice/user-1000.slice/user@1000.service/app.slice/distribute-*.scope/distribute/*/*) ;;
*) fail "the job is in $(group)" ;;
esac
[ "$(cat "/sys/fs/cgroup$(group)/memory.max")" = 67108864 ] || fail 'memory is not bound'
group >/tmp/group
cut -d' ' -f22 <"/proc/$(cat /var/tmp/mine.pid)/stat" >/tmp/born
own dlocal -s -d mine
own dlocal -d mine
[ "$(group)" = "$(cat /tmp/group)" ] || fail 'another group'
[ "$(cut -d' ' -f22 <"/proc/$(cat /var/tmp/mine.pid)/stat")" = "$(cat /tmp/born)" ] || fail 'another process'
own 'dpause -D mine/node 1h' || fail 'dpause'
grep -qx 'frozen 1' "/sys/fs/cgroup$(cat /tmp/group)/cgroup.events" || fail 'it runs on'
own dpause -r -D mine/node
touch /var/tmp/mine.end
own 'dquery mine | dwait -q && dquery mine | dpull -q -o mine/home && grep -rqx over mine/home/*/mine' || fail 'no result'
own dlocal -s -d mine
`)
}

// reboot is one that jobs are under, into a boot whose network comes only when the
// units are up.
func (m *unitMachine) reboot() {
	m.begin("again")
	m.do(`
systemctl mask systemd-networkd.service systemd-networkd.socket
cat >/etc/systemd/system/late-network.service <<'END'
[Unit]
After=distribute-head.service distribute-node.service
[Service]
Type=oneshot
ExecStart=sh -c 'systemctl is-active distribute-head distribute-node >/var/tmp/seen; ip -br -4 address >>/var/tmp/seen; \
	for card in /sys/class/net/e*; do ip addr add 10.0.2.15/24 dev $${card##*/}; ip link set $${card##*/} up; done'
[Install]
WantedBy=multi-user.target
END
systemctl enable late-network
rm /var/tmp/again.pid
sync
systemctl --no-block reboot
`)
	m.awaitOff()
	m.check(m.switchOn())
	if seen := m.do("cat /var/tmp/seen"); !strings.HasPrefix(seen, "active\nactive\n") || strings.Contains(seen, "10.0.2.15") {
		m.Errorf("when the units had come up:\n%s", seen)
	}
	m.await("test -s /var/tmp/again.pid")
	m.do(`
maria dquery -j again | grep -q '"attempt":2' || fail "$(maria dquery -j again)"
`)
	m.finish("again")
}
