package testscripts

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"distribute/lib/suite"
)

// deb makes a package of this source, and returns its path.
func deb(t *testing.T, out, version string) string {
	t.Helper()
	cmd := exec.Command(filepath.Join(os.Getenv("TOP"), "scripts", "deb"), "amd64")
	cmd.Env = append(os.Environ(), "OUT="+out, "VERSION="+version, "SOURCE_DATE_EPOCH=1700000000", "PACKAGES=./cmd/dadm ./cmd/dnoded ./cmd/dpull ./cmd/dquery ./cmd/dsched ./cmd/dsubmit ./cmd/dwait", "GOFLAGS=-buildvcs=false")
	var talk strings.Builder
	cmd.Stderr = &talk
	name, err := cmd.Output()
	if err != nil {
		t.Fatalf("deb: %v: %s", err, &talk)
	}
	return strings.TrimSpace(string(name))
}

// waiting prints the processes of jobs that wait for /tmp/go.
const waiting = `
waiting() { grep -lz 'until test -[e] /tmp/go' /proc/[0-9]*/cmdline 2>/dev/null | cut -d/ -f3 | grep .; }
`

// TestDeb is a package on a machine with systemd: installed, used as the pages say, upgraded
// under a job that does not notice, removed with the jobs, and purged without what was computed.
// Made twice, it is the same.
func TestDeb(t *testing.T) {
	suite.Long(t, "")
	needComputer(t)
	need(t, "dpkg-deb")
	m := newUnitMachine(t)
	out := t.TempDir()
	first, second := deb(t, out, "0.1.0"), deb(t, out, "0.1.1")
	if filepath.Base(first) != "distribute_0.1.0_amd64.deb" {
		t.Error(first)
	}
	same(t, first, deb(t, t.TempDir(), "0.1.0"))

	m.check(run("cp", "--sparse=always", filepath.Join(os.Getenv("PEERS"), "machine", "root.img"), filepath.Join(m.home, "data.img")))
	m.check(m.switchOn())
	for _, name := range []string{first, second} {
		data, err := os.ReadFile(name)
		m.check(err)
		copied := m.ssh(context.Background(), strings.NewReader(string(data)), "cat >/root/"+filepath.Base(name))
		if out, err := copied.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	m.do(`
dpkg -i distribute_0.1.0_amd64.deb 2>&1
useradd -m -u 1000 -s /bin/sh -G distribute maria
! systemctl is-active -q distribute-node || fail 'started, and nobody has said so'
dadm init -g distribute /srv/spool >/root/fingerprint
echo "listen: ['tls://']" >/srv/spool/head.yaml
mkdir -p /etc/distribute
echo /srv/spool >/etc/distribute/head
systemctl enable --now distribute-head
dnoded -init 127.0.0.1 $(cat /root/fingerprint) >/root/node
systemctl enable --now distribute-node
dadm accept $(cat /root/node)
`)
	m.await(`maria dquery -N | grep -q 'machine.idle'`)
	m.do(`
maria 'dsubmit -q -b maria/long -R cpus=1 -- sh -c "until test -e /tmp/go; do sleep 0.1; done"'
maria 'echo 1 | dsubmit -q -b maria/short -R cpus=1 -- echo {}'
maria dwait -q short
`)
	m.await(waiting + `waiting >/root/job`)
	m.do(`
main distribute-node >/root/daemon
dpkg -i distribute_0.1.1_amd64.deb 2>&1
[ "$(main distribute-node)" != "$(cat /root/daemon)" ] || fail 'the daemon is the old one'
kill -0 $(head -n 1 /root/job) || fail 'the job has noticed'
touch /tmp/go
maria dwait -q long
[ "$(maria 'dquery -c attempt long')" = 1 ] || fail 'the job was begun again'
rm /tmp/go
maria 'dsubmit -q -b maria/stays -R cpus=1 -- sh -c "until test -e /tmp/go; do sleep 0.1; done"'
`)
	m.await(waiting + `waiting`)
	if got := m.do(waiting + `
dpkg -r distribute 2>&1
! waiting || fail 'a job runs on'
! cat /proc/[0-9]*/comm 2>/dev/null | grep -x 'dnoded\|dsched\|dnoded-slot' || fail 'a daemon runs on'
[ ! -e /usr/bin/dnoded ] || fail 'it is still there'
dpkg -P distribute 2>&1
cat /srv/spool/batches/maria/short/out/*/*_output.txt
`); !strings.HasSuffix(got, "remove them by hand\n1") {
		t.Errorf("purged: %s", got)
	}
}
