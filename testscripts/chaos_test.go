package testscripts

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// chaosPort is where the head listens for nodes.
const chaosPort = "8951"

// TestChaos plays with a head and five nodes, each a machine of its own, whose
// processes are killed and stopped, whose network is cut and whose disks are
// filled or lose power, while a user submits, cancels and pulls. Then all is
// healed, and what the user was told is held against what there is.
//
// CHAOS is for how long, as 10m; CHAOS_SEED the seed of a run that went wrong,
// which makes the same faults, if not at the same instants.
func TestChaos(t *testing.T) {
	if err := chaosWants(); err != nil {
		if full() {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	length, seed := 40*time.Second, uint64(time.Now().UnixNano())
	if s := os.Getenv("CHAOS"); s != "" {
		var err error
		if length, err = time.ParseDuration(s); err != nil {
			t.Fatal(err)
		}
	} else if !full() {
		t.Skip("only in a full run, D_FULL=1, or with CHAOS=10m (make chaos)")
	}
	if s := os.Getenv("CHAOS_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("CHAOS_SEED=%d", seed)
	c, err := newChaos(t, seed)
	if err != nil {
		t.Fatal(err)
	}
	c.play(length)
	t.Log(c.report())
}

// chaosWants says what is missing for machines of namespaces.
func chaosWants() error {
	if os.Getuid() != 0 {
		return errors.New("chaos wants root, for namespaces and mounts")
	}
	for _, name := range []string{"ip", "nft", "nsenter", "mkfs.ext4", "mount", "sha256sum"} {
		if _, err := exec.LookPath(name); err != nil {
			return fmt.Errorf("chaos wants %s: %w", name, err)
		}
	}
	err := runWith("", "unshare", "-nm", "sh", "-c", "ip link set lo up && echo 'add table inet chaos' | nft -f - && exec mount -t tmpfs none /mnt")
	if err != nil {
		return fmt.Errorf("no namespaces here: %w", err)
	}
	return nil
}

// A chaos is one run.
type chaos struct {
	t     *testing.T
	seed  uint64
	dir   string
	began time.Time
	net   *network
	head  *machine
	nodes []*machine
	user  *user

	ending context.Context // of the daemons: they are not started again
	halt   context.CancelFunc
	faults sync.WaitGroup // that wait for their healing

	mu         sync.Mutex // guards what follows
	log        *os.File
	counts     map[string]int
	violations []string
}

// newChaos makes the machines, and starts nothing on them.
func newChaos(t *testing.T, seed uint64) (*chaos, error) {
	dir, err := os.MkdirTemp("", "chaos")
	if err != nil {
		return nil, err
	}
	c := &chaos{t: t, seed: seed, dir: dir, began: time.Now(), counts: map[string]int{}}
	c.ending, c.halt = context.WithCancel(context.Background())
	if c.log, err = os.Create(filepath.Join(dir, "chaos.log")); err != nil {
		return nil, err
	}
	if err := c.guard("net", "head", "n1", "n2", "n3", "n4", "n5"); err != nil {
		return nil, err
	}
	t.Cleanup(c.close)
	if c.net, err = newNetwork(dir); err != nil {
		return nil, err
	}
	if c.head, err = newMachine(dir, "head", "192.0.2.100", 512<<20); err != nil {
		return nil, err
	}
	for i := range 5 {
		m, err := newMachine(dir, fmt.Sprintf("n%d", i+1), fmt.Sprintf("192.0.2.%d", i+1), 192<<20)
		if err != nil {
			return nil, err
		}
		c.nodes = append(c.nodes, m)
	}
	for _, m := range c.machines() {
		if err := errors.Join(c.net.plug(m), m.switchOn()); err != nil {
			return nil, err
		}
	}
	c.user = newUser(c)
	return c, nil
}

// guard sees to it that nothing lives longer than this run.
func (c *chaos) guard(names ...string) error {
	homes := make([]string, len(names))
	for i, name := range names {
		homes[i] = filepath.Join(c.dir, name, "home")
	}
	guard := exec.Command("guard", homes...)
	guard.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	end, err := guard.StdinPipe()
	if err != nil {
		return err
	}
	if err := guard.Start(); err != nil {
		return err
	}
	c.t.Cleanup(func() {
		end.Close()
		guard.Wait()
	})
	return nil
}

func (c *chaos) machines() []*machine {
	if c.head == nil {
		return c.nodes
	}
	return append([]*machine{c.head}, c.nodes...)
}

// close ends the machines, and keeps the directory of a run that went wrong.
func (c *chaos) close() {
	c.halt()
	for _, m := range c.machines() {
		if err := m.off(); err != nil {
			c.t.Error(err)
		}
	}
	if c.net != nil {
		c.net.off()
	}
	c.log.Close()
	if c.t.Failed() {
		c.t.Logf("the logs are in %s; to do it again: CHAOS_SEED=%d", c.dir, c.seed)
		return
	}
	if err := os.RemoveAll(c.dir); err != nil {
		c.t.Error(err)
	}
}

// random gives a part of the run numbers of its own, so that the parts do not
// change each other's.
func (c *chaos) random(part string) *rand.Rand {
	h := fnv.New64a()
	h.Write([]byte(part))
	return rand.New(rand.NewPCG(c.seed, h.Sum64()))
}

// note counts what was done, and logs it.
func (c *chaos) note(kind, format string, a ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts[kind]++
	fmt.Fprintf(c.log, "%9.3f %s: %s\n", time.Since(c.began).Seconds(), kind, fmt.Sprintf(format, a...))
}

// violation is a promise that was broken.
func (c *chaos) violation(format string, a ...any) {
	c.note("violations", format, a...)
	c.t.Errorf(format, a...)
}

// ownFault counts what the test itself fails at.
const ownFault = "faults of the test"

func (c *chaos) check(err error) {
	if err != nil {
		c.note(ownFault, "%v", err)
		c.t.Error(err)
	}
}

func (c *chaos) count(kind string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.counts[kind]
}

// wait waits, or says that ctx has ended.
func wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// between is a random time.
func between(r *rand.Rand, from, to time.Duration) time.Duration {
	return from + time.Duration(r.Int64N(int64(to-from)+1))
}

// play is the whole run: the daemons, the user and the faults for the length,
// then the healing and the judgement.
func (c *chaos) play(length time.Duration) {
	ctx, calm := context.WithTimeout(context.Background(), length)
	defer calm()
	var daemons, users sync.WaitGroup
	c.prepare()
	daemons.Go(func() { c.keep(c.head, "dsched", "-insecure", "-S", c.spool()) })
	for _, m := range c.nodes {
		daemons.Go(func() {
			c.keep(m, "dnoded", "-insecure", "-D", filepath.Join(m.disk, "node"), "-H", "tcp://"+c.head.addr+":"+chaosPort, filepath.Join(m.dir, "node.yaml"))
		})
	}
	watched, unwatch := context.WithCancel(context.Background())
	users.Go(func() { c.user.watch(watched) })
	c.user.work(ctx, c.trouble)
	c.faults.Wait()
	c.heal()
	if c.count(ownFault) == 0 {
		c.settle()
		c.judge()
	}
	unwatch()
	users.Wait()
	c.halt()
	c.stopDaemons()
	daemons.Wait()
	c.judgeDisks()
	c.judgeLogs()
}

func (c *chaos) spool() string { return filepath.Join(c.head.disk, "spool") }

// prepare makes the spool and the settings.
func (c *chaos) prepare() {
	c.check(c.head.command(c.ending, c.head.init, "dadm", "init", c.spool()).Run())
	settings := "lease: 1m\nlisten: [tcp://" + c.head.addr + ":" + chaosPort + "]\n"
	c.check(os.WriteFile(c.head.see(filepath.Join(c.spool(), "head.yaml")), []byte(settings), 0o640))
	c.check(run("sync", "-f", c.head.see(c.spool())))
	for _, m := range c.nodes {
		c.check(os.WriteFile(filepath.Join(m.dir, "node.yaml"), []byte("name: "+m.name+"\ncpus: 2\n"), 0o644))
	}
}

// keep starts a daemon again and again, as the unit of an operator does.
func (c *chaos) keep(m *machine, args ...string) {
	r := c.random("keep " + m.name)
	out, err := os.OpenFile(filepath.Join(m.dir, "daemon.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		c.check(err)
		return
	}
	defer out.Close()
	for {
		init := m.power(c.ending)
		if init == nil {
			return
		}
		cmd := m.command(context.Background(), init, args...)
		cmd.Stdout, cmd.Stderr = out, out
		status := exitStatus(cmd.Run())
		if status == 70 || status == 2 {
			c.violation("%s on %s ended with status %d, a fault of its own", args[0], m.name, status)
		}
		c.note("daemon ended", "%s on %s, status %d", args[0], m.name, status)
		if !wait(c.ending, between(r, 50*time.Millisecond, 1500*time.Millisecond)) {
			return
		}
	}
}

// stopDaemons asks every daemon to end.
func (c *chaos) stopDaemons() {
	for _, m := range c.machines() {
		for _, p := range m.processes() {
			if p.kind == "dsched" || p.kind == "dnoded" {
				syscall.Kill(p.pid, syscall.SIGTERM)
			}
		}
	}
}

// report is what was done, and what came of it.
func (c *chaos) report() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var b strings.Builder
	fmt.Fprintf(&b, "chaos for %.0f s, CHAOS_SEED=%d\n", time.Since(c.began).Seconds(), c.seed)
	c.counts["violations"] += 0
	for _, kind := range sortedKeys(c.counts) {
		fmt.Fprintf(&b, "%8d  %s\n", c.counts[kind], kind)
	}
	return b.String()
}
