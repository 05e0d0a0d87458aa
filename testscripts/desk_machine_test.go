package testscripts

import (
	"os"
	"path/filepath"
	"testing"

	"distribute/lib/suite"
)

// TestN56N60P70P71P72P75Desk is a desk whose kernel has all controllers, with the
// unit of a node and one of a user of his: jobs come up against their limits, and
// somebody who is not root pauses them, under whatever happens to dnoded and to the
// machine.
func TestN56N60P70P71P72P75Desk(t *testing.T) {
	suite.Long(t, "")
	needComputer(t)
	m := &deskMachine{newUnitMachine(t)}
	m.step("install", func() { m.install(makeDesk) })
	m.step("boot", func() { m.check(m.switchOn()) })
	m.step("accept", m.accept)
	m.step("limits", m.limits)
	m.step("pause", m.pause)
	m.step("without dnoded", m.dead)
	m.step("give back", m.give)
	m.step("hidden processes", m.hidden)
	m.step("power cut", m.powerCut)
	m.step("out", m.out)
}

// A deskMachine is a machine whose user ana sits at it and lends it, with the node
// "machine" of its unit and the node "lent" of her own; maria is who submits.
type deskMachine struct{ *unitMachine }

// deskTools are what the scripts of a desk have in common. The groups are those of
// the nodes.
const deskTools = `
g=/sys/fs/cgroup/system.slice/distribute-node.service/distribute/machine.*
h=/sys/fs/cgroup/user.slice/user-1001.slice/user@1001.service/app.slice/distribute-node.service/distribute/lent.*
ana() { runuser -l ana -c "$*"; }
g=$(echo $g) h=$(echo $h)
used() { sed -n 's/^usage_usec //p' $g/cpu.stat $h/cpu.stat | xargs; }
still() { [ "$(used)" = "$(cat /tmp/used)" ] || fail "$1: they had used $(cat /tmp/used), and have $(used)"; }
says() { grep -qx "$1" "$2" || fail "not $1: $(cat "$2")"; }
`

func (m *deskMachine) do(script string) {
	m.Helper()
	m.unitMachine.do(deskTools + script)
}

// await waits until a script ends well; what it waited for in vain is told with what
// the units say.
func (m *deskMachine) await(script string) {
	m.Helper()
	m.do(`
end=$(($(date +%s) + 200))
until (
` + script + `
) >/tmp/seen 2>&1; do
	[ "$(date +%s)" -lt $end ] || fail "waited in vain: $(cat /tmp/seen; dquery -N -t; ana dpause)"
	sleep 0.2
done`)
}

// makeDesk is all that is done before the machine starts, at which units start by
// themselves; there is no logind.
const makeDesk = `
cp -r testdata/machine "$root/root/jobs"
chroot "$root" sh -eu <<'DESK'
export PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
mount -t proc proc /proc
cd /
systemd-sysusers
useradd -m -u 1000 -s /bin/sh -G distribute maria
useradd -m -u 1001 -s /bin/sh ana
systemd-tmpfiles --create distribute-node.conf
install -d -o distribute -g distribute -m 750 /srv/spool
install -d -o distribute-node -g distribute-node -m 711 /var/lib/distribute/node
dadm init -g distribute /srv/spool >/root/fingerprint
echo "listen: ['tls://']" >/srv/spool/head.yaml
mkdir /etc/distribute
echo /srv/spool >/etc/distribute/head
printf 'name: machine\nkeep: {memory: 0}\ncapabilities: [shared]\n' >/var/lib/distribute/node/node.yaml
chown distribute-node: /var/lib/distribute/node/node.yaml
dnoded -init 127.0.0.1 "$(cat /root/fingerprint)" >/root/nodes
systemctl enable distribute-head distribute-node
mkdir /etc/systemd/system/user@.service.d
printf '[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=install -d -m 700 -o %%i /run/user/%%i\n' >/etc/systemd/system/user-runtime-dir@.service
printf '[Service]\nPAMName=\nEnvironment=XDG_RUNTIME_DIR=/run/user/%%i\n' >/etc/systemd/system/user@.service.d/machine.conf
ln -s /usr/lib/systemd/system/user@.service /etc/systemd/system/multi-user.target.wants/user@1001.service
cd /home/ana
mkdir -p .local/state/distribute/node .config/systemd/user/default.target.wants
ln -s /usr/local/lib/systemd/user/distribute-node.service .config/systemd/user/default.target.wants
printf 'name: lent\nkeep: {memory: 0}\ncapabilities: [lent]\n' >.local/state/distribute/node/node.yaml
chown -R ana: .local .config
HOME=/home/ana runuser -u ana -- dnoded -init 127.0.0.1 "$(cat /root/fingerprint)" >>/root/nodes
cp -r /root/jobs /home/maria
chown -R maria: /home/maria
DESK
`

// accept lets the nodes in.
func (m *deskMachine) accept() {
	m.await("dquery -H /srv/spool -N >/dev/null || [ $? = 1 ]")
	m.do(`while read -r line; do dadm accept $line; done </root/nodes`)
	m.await(`[ "$(maria dquery -N -c state,containment | sort | uniq -c | xargs)" = '2 idle cgroup' ]`)
}

// limits are jobs that are held to what they may use, and what they used is told.
func (m *deskMachine) limits() {
	want, err := os.ReadFile(filepath.Join("testdata", "machine", "ends"))
	m.check(err)
	m.do(`
cd /home/maria
maria 'cd jobs && dsubmit -q bounds.yaml'
maria dwait -q bounds || [ $? = 1 ] || fail 'not over'
maria "dquery -c job,state,exit,signal,reason bounds 'job=*'" >/tmp/ends
cat >/tmp/want <<'END'
` + string(want) + `END
cmp -s /tmp/ends /tmp/want || fail "$(cat /tmp/ends)"
maria dpull -q bounds -o home
says 1 home/lab/bounds/cpus/cpus_output.txt
says '1[0-9][0-9][0-9], and no more: Resource temporarily unavailable' home/lab/bounds/bomb~1/bomb_output.txt
[ "$(sed 's/,.*//' home/lab/bounds/bomb~1/bomb_output.txt)" -lt 1280 ] || fail "$(cat home/lab/bounds/bomb~1/bomb_output.txt)"
for of in 'holds memory_peak=120M..200M' 'burns cpu_time=2s..10s' 'writes written=64M..80M' 'deaf runtime=2s..' 'hog memory_peak=190M..201M'; do
	maria "dquery -c job bounds job=$of" | grep -qx "${of% *}" || fail "not $of: $(maria dquery -j bounds 'job=*')"
done
[ "$(ls -d $g/*/ 2>/dev/null)" = '' ] || fail "left: $(ls $g/*)"
`)
}

// pause is one that everything but dnoded can see, and that a restart of it does not
// end.
func (m *deskMachine) pause() {
	m.do("maria 'cd jobs && dsubmit -q spin.yaml && dsubmit -q lent.yaml'")
	m.await(`[ "$(maria "dquery -c state,reason lent job=hog")" = 'failed	out of memory: it had 100M' ]`)
	m.await("cd /var/tmp && ls own.up saves.up begins.up")
	m.await("ana dpause -q | grep -qx '3 jobs of maria, 3 cores; dpause 2h'")
	m.do(`
[ "$(ana id -u)" = 1001 ] || fail 'not ana'
ana dpause 2h >/tmp/said 2>&1 || fail "$? $(cat /tmp/said)"
used >/tmp/used
says 'dpause: 3 jobs of maria stand still until .*' /tmp/said
[ "$(cat $g/*/cgroup.freeze $h/*/cgroup.freeze | xargs)" = '1 1 1' ] || fail 'not frozen'
ana dpause >/tmp/said
[ "$(grep -c '^job.*paused' /tmp/said)" = 3 ] && grep -q '^pause.ana.*all' /tmp/said || fail "$(cat /tmp/said)"
still 'when it was over'
systemctl restart distribute-node
ana XDG_RUNTIME_DIR=/run/user/1001 systemctl --user restart distribute-node
still restart
`)
	m.await("[ $(maria dquery -N -c state | grep -cx paused) = 2 ] && [ $(maria \"dquery -c state spin lent 'job=*'\" | grep -cx paused) = 3 ]")
	m.do(`
still 'when the head knew'
ana dpause -r 2>/tmp/said
says 'dpause: 3 jobs of maria go on' /tmp/said
`)
	m.await(`set -- $(used) $(cat /tmp/used) && [ "$1" -gt "$3" ] && [ "$2" -gt "$4" ]`)
}

// dead is a pause while there is no dnoded.
func (m *deskMachine) dead() {
	m.do(`
systemctl kill --kill-whom=main -s KILL distribute-node
systemctl stop distribute-node
ana dpause 2h >/tmp/said 2>&1 || fail "$? $(cat /tmp/said)"
used >/tmp/used
says 'dpause: dnoded of machine does not run: .*' /tmp/said
[ "$(cat $g/*/cgroup.freeze | xargs)" = '1 1' ] || fail 'not frozen'
still 'without dnoded'
systemctl start distribute-node
still 'when it had started'
[ "$(ana dpause | grep -c '^job.*paused')" = 3 ] || fail "$(ana dpause)"
ana dpause -r
`)
	m.await(`set -- $(used) $(cat /tmp/used) && [ "$1" -gt "$3" ] && [ "$2" -gt "$4" ]`)
}

// give takes cpus and memory from the jobs, which go on.
func (m *deskMachine) give() {
	m.do(`
[ "$(cat $g/*/cpuset.cpus | sort | xargs)" = '0 1' ] || fail "cpus: $(cat $g/*/cpuset.cpus)"
ana dpause -g 1,200M 2>/tmp/said || fail "$? $(cat /tmp/said)"
says 'dpause: 1 cpu and 200M of memory given back until .*' /tmp/said
used >/tmp/used
`)
	m.await(`
[ "$(cat $g/*/cpuset.cpus.effective | xargs)" = '0 0' ] && [ "$(cat $g/memory.high)" -lt 1000000000 ]
for pid in $(cat $g/*/cgroup.procs $h/*/cgroup.procs); do
	grep -q '^Cpus_allowed_list:.0$' /proc/$pid/status || [ ! -e /proc/$pid ]
done
set -- $(used) $(cat /tmp/used) && [ "$1" -gt "$3" ] && [ "$2" -gt "$4" ]
maria dquery -N -t | grep 'machine.*1 cpu and 200M'`)
	m.do("ana dpause -r")
	m.await(`[ "$(cat $g/*/cpuset.cpus | sort | xargs) $(cat $g/memory.high)" = '0 1 max' ]`)
}

// hidden is a machine that hides the processes of others, where somebody pauses who
// cannot look into ana's home either. The file of the node is changed meanwhile.
func (m *deskMachine) hidden() {
	m.do(`
mount -o remount,hidepid=2 /proc
[ "$(stat -c %a /home/ana)" = 700 ] || fail 'not closed'
for who in maria ana; do
	$who dpause 50m >/tmp/said 2>&1 || fail "$? $(cat /tmp/said)" # maria has no session
	used >/tmp/used
	[ "$(wc -l </tmp/said)" = 1 ] || fail "$(cat /tmp/said)"
	says 'dpause: 3 jobs of maria stand still until .*' /tmp/said
	still "$who has paused"
	$who dpause -r >/tmp/said 2>&1 || fail "$? $(cat /tmp/said)"
	says 'dpause: 3 jobs of maria go on' /tmp/said
done
sed -i 's/\[shared\]/[shared, more]/' /var/lib/distribute/node/node.yaml
systemctl reload distribute-node
`)
	m.await("maria dquery -N -j | grep more")
	m.do(`
sed -i 's/^name/nmae/' /var/lib/distribute/node/node.yaml
systemctl reload distribute-node
`)
	m.await("journalctl -u distribute-node -o cat | grep 'the previous settings stay in use.*nmae'")
	m.do(`
sed -i 's/^nmae/name/' /var/lib/distribute/node/node.yaml
systemctl reload distribute-node
[ "$(cat $g/*/cgroup.procs $h/*/cgroup.procs | wc -l)" -ge 3 ] || fail 'the jobs are gone'
`)
}

// powerCut is one in a pause, which holds after it.
func (m *deskMachine) powerCut() {
	m.do(`
rm /var/tmp/*.up
sync
ana dpause 2h
`)
	m.cut()
	m.check(m.switchOn())
	m.await("[ $(maria dquery -N -c state | grep -cx paused) = 2 ]")
	m.do(`
ana dpause >/tmp/said
[ "$(grep -c '^pause.ana' /tmp/said)" -ge 1 ] && ! grep '^job' /tmp/said || fail "$(cat /tmp/said)"
! ls /var/tmp/*.up $g/*/cgroup.procs $h/*/cgroup.procs 2>/dev/null || fail 'it runs'
[ "$(maria "dquery -c state spin lent 'job=*'" | sort | uniq -c | xargs)" = '1 failed 3 queued' ] || fail "$(maria "dquery spin lent 'job=*'")"
ana dpause -r
`)
	m.await("cd /var/tmp && ls own.up saves.up begins.up")
}

// out is when the machine is left to ana alone, and the jobs go on where they were
// when she has no need of it any more.
func (m *deskMachine) out() {
	// What runs only for a moment is not told yet, and of others nothing else is seen.
	m.await(`[ "$(cat /var/lib/distribute/pause/now.* | grep -o '"cgroup":"[^"]*/[0-9a-f]\{32\}"' | wc -l)" = 3 ]`)
	m.do(`
mount -o remount,hidepid=2 /proc
ana dpause -e >/tmp/said 2>&1 || fail "$? $(cat /tmp/said)"
! pgrep -f 'spin[.]sh|begins[.]up' || fail 'left'
`)
	m.await("! ls -d $g/*/ $h/*/") // what had them in removes the empty ones
	m.do(`
[ "$(cat $g/memory.current)" -lt 8388608 ] || fail "memory: $(cat $g/memory.current)"
ls /var/tmp/own.heard /var/tmp/saves.heard || fail 'not asked'
! ls /var/tmp/*.again 2>/dev/null || fail 'too early'
rm /var/tmp/*.up
ana dpause -r
`)
	m.await("cd /var/tmp && ls own.up saves.up begins.up")
	m.do(`
says half /var/tmp/own.again
says half /var/tmp/saves.again
cd /var/tmp
touch own.end saves.end begins.end
maria dwait -q spin || fail "$(maria "dquery spin 'job=*'")"
maria "dquery -c job,state spin lent 'job=*'" >/tmp/ends
[ "$(grep -c done /tmp/ends)" -ge 2 ] || fail "$(cat /tmp/ends)"
`)
	m.await("maria dquery lent job=own state=done | grep -q own")
}
