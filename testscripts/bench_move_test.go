package testscripts

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"distribute/lib/job"
)

// What a node does its work as: one that no account has.
const benchUser = 61000

// 2 GiB (BENCH_MIB sets another size), in one file and in a thousand, of noise
// and of text: from a person to the head and home again over ssh, and from the
// head to a node and back over TLS, each beside scp and rsync over the same ssh
// to this machine. Where the head says that it is safe, it is on the disk; so it
// is with scp and rsync then, by a sync. Of peers: 2 is twice as fast as the
// quicker of scp and rsync.
func BenchmarkMove(b *testing.B) {
	if err := wantSSHD(); err != nil {
		b.Skip("needs sshd and ssh: ", err)
	}
	if _, err := exec.LookPath("rsync"); err != nil {
		b.Skip("needs rsync")
	}
	mib := setting(b, "BENCH_MIB", 2048)
	for _, content := range []string{"noise", "text"} {
		for _, files := range []int{1, 1000} {
			b.Run(fmt.Sprintf("%s/%d", content, files), func(b *testing.B) {
				rounds(b, 3, func(f *tally) {
					m := &move{b: b, bytes: float64(mib) * (1 << 20), tally: f}
					m.round(content == "text", files, mib<<20/files)
				})
			})
		}
	}
}

// A move is what is moved, and the ways that it takes.
type move struct {
	b     *testing.B
	dir   string
	bytes float64
	port  string
	lab   *lab
	*tally
}

// round goes each way once.
func (m *move) round(text bool, files, size int) {
	var err error
	m.dir, err = os.MkdirTemp(m.b.TempDir(), "round")
	m.check(err)
	for dir := m.dir; dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		m.check(os.Chmod(dir, 0o755))
	}
	m.fill(text, files, size)
	m.all()
	m.check(os.RemoveAll(m.dir))
}

// fill makes the directory data.
func (m *move) fill(text bool, files, size int) {
	var seed [32]byte
	noise := rand.NewChaCha8(seed)
	block := make([]byte, 4<<20)
	r := rand.New(noise)
	for i := 0; text && i < len(block); i += 16 {
		copy(block[i:], fmt.Sprintf("%16.9e", r.Float64()))
	}
	m.check(os.Mkdir(filepath.Join(m.dir, "data"), 0o755))
	for i := range files {
		f, err := os.Create(filepath.Join(m.dir, "data", fmt.Sprintf("field_%04d", i)))
		m.check(err)
		for n := size; n > 0; n -= len(block) {
			if text { // none like another
				copy(block, fmt.Sprintf("%16.9e%16d", r.Float64(), n))
			} else {
				noise.Read(block)
			}
			_, err := f.Write(block[:min(n, len(block))])
			m.check(err)
		}
		m.check(f.Close())
	}
}

func (m *move) all() {
	s, err := startSSHD(filepath.Join(m.dir, "sshd"), "HOME="+m.dir, "PATH="+os.Getenv("PATH"))
	m.check(err)
	defer s.stop()
	before := os.Getenv("PATH")
	m.b.Setenv("PATH", s.path(before))
	defer os.Setenv("PATH", before)
	for _, l := range s.settings {
		if port, ok := strings.CutPrefix(l, "SSHD_PORT="); ok {
			m.port = port
		}
	}
	safe, quick := m.peers(true), m.peers(false)

	m.lab = newLab(m.b, 0)
	defer m.lab.stop()
	m.listen()
	head := "ssh://127.0.0.1:" + m.port + m.lab.spool()
	m.report("ssh-up", safe, m.took(func() {
		m.shell(m.dir, `dsubmit -q -H "$0" -b ns/move -i data -- sh -c "cp -r data out && sync && cat '$1' >/dev/null"`, head, m.memory())
	}))
	m.rest()
	m.node()
	m.lab.run("dwait", "-q", "-T", "10m", "ns/move")
	down, up := m.logged()
	m.report("tls-down", quick, down)
	m.report("tls-up", safe, up)
	m.report("ssh-down", quick, m.took(func() {
		m.shell(m.fresh(), `dpull -q -H "$0" -i '^out' ns/move`, head)
	}))
}

// peers is how long the quicker of scp and rsync takes.
func (m *move) peers(sync bool) float64 {
	then, mark := "", ""
	if sync {
		then, mark = ` && sync -f "$0"`, "-sync"
	}
	scp := m.took(func() { m.shell(m.dir, `scp -q -r -P "$1" data 127.0.0.1:"$0"`+then, m.fresh(), m.port) })
	rsync := m.took(func() { m.shell(m.dir, `rsync -a -e "ssh -p $1" data 127.0.0.1:"$0"`+then, m.fresh(), m.port) })
	m.add("scp"+mark+"-MB/s", m.bytes/1e6/scp)
	m.add("rsync"+mark+"-MB/s", m.bytes/1e6/rsync)
	return min(scp, rsync)
}

// took is how long f takes on a machine at rest.
func (m *move) took(f func()) float64 {
	m.rest()
	return took(f)
}

// rest leaves the disk nothing to write of what was before, and the memory full
// of what can go, as it is on a machine that was used for a while. Memory that
// the host of a virtual machine has taken back costs ten times a copy at its
// first use.
func (m *move) rest() {
	m.shell(m.dir, `sync && cat "$0" >/dev/null`, m.memory())
}

// memory is an empty file as large as the memory; where little is moved, nothing.
func (m *move) memory() string {
	name := filepath.Join(m.dir, "memory")
	if _, err := os.Lstat(name); err == nil {
		return name
	}
	var info syscall.Sysinfo_t
	m.check(syscall.Sysinfo(&info))
	m.check(os.WriteFile(name, nil, 0o644))
	if m.bytes >= 1<<28 {
		m.check(os.Truncate(name, int64(info.Totalram)*int64(info.Unit)))
	}
	return name
}

// fresh is a directory with nothing in it.
func (m *move) fresh() string {
	dir, err := os.MkdirTemp(m.dir, "to")
	m.check(err)
	return dir
}

// report notes one way.
func (m *move) report(way string, peers, ours float64) {
	m.add(way+"-MB/s", m.bytes/1e6/ours)
	m.add(way+"-of-peers", peers/ours)
}

func (m *move) check(err error) {
	m.b.Helper()
	if err != nil {
		m.b.Fatal(err)
	}
}

// shell runs a line in dir; args are $0 and so on.
func (m *move) shell(dir, line string, args ...string) {
	m.b.Helper()
	c := exec.Command("sh", append([]string{"-c", line}, args...)...)
	c.Dir = dir
	if out, err := c.CombinedOutput(); err != nil {
		m.b.Fatalf("%s: %v: %s", line, err, out)
	}
}

// listen has the head listen over TLS.
func (m *move) listen() {
	m.lab.head.Process.Signal(syscall.SIGTERM)
	m.lab.head.Wait()
	m.check(os.WriteFile(filepath.Join(m.lab.spool(), "head.yaml"), []byte("listen: ['tls://127.0.0.1:0']\n"), 0o600))
	m.lab.startHead()
}

// node starts one that reaches the head over TLS.
func (m *move) node() {
	log, err := os.ReadFile(filepath.Join(m.lab.dir, "dsched.log"))
	m.check(err)
	at := regexp.MustCompile(`tls://127\S*`).FindAllString(string(log), -1)
	dir := m.fresh()
	m.check(os.Chmod(dir, 0o755))
	start := func(args ...string) *exec.Cmd {
		c := m.lab.command("dnoded", args...)
		if c.Dir = dir; os.Geteuid() == 0 {
			m.check(os.Chown(dir, benchUser, benchUser))
			c.Env = append(c.Env, "HOME="+dir)
			c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: benchUser, Gid: benchUser}}
		}
		return c
	}
	line, err := start("-init", "-D", filepath.Join(dir, "node"), at[len(at)-1], "first").Output()
	m.check(err)
	m.lab.run("dadm", append([]string{"accept"}, strings.Fields(string(line))...)...)
	node := start("-D", filepath.Join(dir, "node"))
	m.check(node.Start())
	m.lab.all = append(m.lab.all, node)
}

// logged is how long the job's inputs took to it, and its result from it, by the
// batch's log.
func (m *move) logged() (down, up float64) {
	f, err := os.Open(filepath.Join(m.lab.spool(), "batches", "ns", "move", "log.jsonl"))
	m.check(err)
	defer f.Close()
	var given time.Time
	s := bufio.NewScanner(f)
	for s.Buffer(nil, 16<<20); s.Scan(); {
		var rec job.Record
		m.check(json.Unmarshal(s.Bytes(), &rec))
		switch rec.Kind {
		case job.KindStart:
			given = rec.Time
		case job.KindDone:
			return rec.Started.Sub(given).Seconds(), rec.Time.Sub(rec.Ended).Seconds()
		}
	}
	m.b.Fatal("the job is not done")
	return 0, 0
}
