package testscripts

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"distribute/lib/suite"
)

// chaosPort is where the head listens for nodes.
const chaosPort = "8951"

// TestChaos plays with a head and five nodes, each a machine of namespaces,
// whose processes are killed and stopped, whose network is cut and whose disks
// are filled or lose power, while a user submits, cancels and pulls. Then all is
// healed, and what the user was told is held against what there is.
//
// CHAOS is for how long, as 10m; CHAOS_SEED the seed of a run that went wrong,
// which makes the same faults, if not at the same instants.
func TestChaos(t *testing.T) {
	length := 40 * time.Second
	if text := os.Getenv("CHAOS"); text == "" {
		suite.Long(t, "make chaos")
	} else {
		var err error
		if length, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	if err := hostsWant(); err != nil {
		suite.Missing(t, err)
	}
	h, err := newHosts(t)
	if err != nil {
		t.Fatal(err)
	}
	h.play(length)
	t.Log(h.report())
}

// hostsWant says what is missing for machines of namespaces.
func hostsWant() error {
	if os.Getuid() != 0 {
		return errors.New("machines of namespaces want root, for mounts")
	}
	for _, name := range []string{"ip", "nft", "nsenter", "mkfs.ext4", "mount", "sha256sum"} {
		if _, err := exec.LookPath(name); err != nil {
			return fmt.Errorf("machines of namespaces want %s: %w", name, err)
		}
	}
	err := run("unshare", "-nm", "sh", "-c", "ip link set lo up && echo 'add table inet chaos' | nft -f - && exec mount -t tmpfs none /mnt")
	if err != nil {
		return fmt.Errorf("no namespaces here: %w", err)
	}
	return nil
}

// Hosts are a head and its nodes on machines of namespaces.
type hosts struct {
	*chaos
	net   *network
	head  *machine
	nodes []*machine

	ending context.Context // of the daemons: they are not started again
	halt   context.CancelFunc
	faults sync.WaitGroup // that wait for their healing
	goneOn atomic.Int64   // changes while something stopped is let go on
}

// newHosts makes the machines, and starts nothing on them.
func newHosts(t *testing.T) (*hosts, error) {
	c, err := newChaos(t)
	if err != nil {
		return nil, err
	}
	h := &hosts{chaos: c}
	c.place, c.size = h, 5
	h.ending, h.halt = context.WithCancel(context.Background())
	if err := h.guard("net", "head", "n1", "n2", "n3", "n4", "n5"); err != nil {
		return nil, err
	}
	t.Cleanup(h.off)
	if h.net, err = newNetwork(c.dir); err != nil {
		return nil, err
	}
	if h.head, err = newMachine(c.dir, "head", "192.0.2.100", 512<<20); err != nil {
		return nil, err
	}
	c.spool = filepath.Join(h.head.disk, "spool")
	for i := range c.size {
		m, err := newMachine(c.dir, fmt.Sprintf("n%d", i+1), fmt.Sprintf("192.0.2.%d", i+1), 192<<20)
		if err != nil {
			return nil, err
		}
		h.nodes = append(h.nodes, m)
	}
	for _, m := range h.machines() {
		if err := errors.Join(h.net.plug(m), m.switchOn()); err != nil {
			return nil, err
		}
	}
	return h, h.prepare()
}

// guard sees to it that nothing lives longer than this run.
func (h *hosts) guard(names ...string) error {
	homes := make([]string, len(names))
	for i, name := range names {
		homes[i] = filepath.Join(h.dir, name, "home")
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
	h.t.Cleanup(func() {
		end.Close()
		guard.Wait()
	})
	return nil
}

func (h *hosts) machines() []*machine {
	if h.head == nil {
		return h.nodes
	}
	return append([]*machine{h.head}, h.nodes...)
}

// off ends the machines.
func (h *hosts) off() {
	h.halt()
	for _, m := range h.machines() {
		h.check(m.off())
	}
	if h.net != nil {
		h.net.off()
	}
}

// prepare makes the spool and the settings.
func (h *hosts) prepare() error {
	if err := h.head.command(h.ending, h.head.init, "dadm", "init", h.spool).Run(); err != nil {
		return err
	}
	settings := "lease: 1m\nlisten: [tcp://" + h.head.addr + ":" + chaosPort + "]\n"
	if err := os.WriteFile(h.head.see(filepath.Join(h.spool, "head.yaml")), []byte(settings), 0o640); err != nil {
		return err
	}
	for _, m := range h.nodes {
		if err := os.WriteFile(filepath.Join(m.dir, "node.yaml"), []byte("name: "+m.name+"\ncpus: 2\n"), 0o644); err != nil {
			return err
		}
	}
	return run("sync", "-f", h.head.see(h.spool))
}

// play is the whole run: the daemons, the user and the faults for the length,
// then the healing and the judgement.
func (h *hosts) play(length time.Duration) {
	ctx, calm := context.WithTimeout(context.Background(), length)
	defer calm()
	var daemons sync.WaitGroup
	daemons.Go(func() { h.keep(h.head, "dsched", "-insecure", "-S", h.spool) })
	for _, m := range h.nodes {
		daemons.Go(func() {
			h.keep(m, "dnoded", "-insecure", "-D", nodeDir(m), "-H", "tcp://"+h.head.addr+":"+chaosPort, filepath.Join(m.dir, "node.yaml"))
		})
	}
	h.ordeal(ctx, h.trouble, func() {
		h.faults.Wait()
		h.heal()
	}, func() {
		for _, m := range h.machines() {
			h.check(m.cut(false))
		}
		h.note("power cut: all", "when all is over")
		h.heal()
	})
	h.halt()
	h.stopDaemons()
	daemons.Wait()
	h.judgeTalk()
	h.judgeDisks()
}

func nodeDir(m *machine) string { return filepath.Join(m.disk, "node") }

// judgeDisks asks dfsck what is on the disks.
func (h *hosts) judgeDisks() {
	look := func(m *machine, args ...string) {
		init := m.power(context.Background())
		if out, err := m.command(context.Background(), init, args...).CombinedOutput(); err != nil {
			h.violation("%s on %s: %v: %s", strings.Join(args, " "), m.name, err, out)
		}
	}
	look(h.head, "dfsck", "-s", "-S", h.spool)
	for _, m := range h.nodes {
		look(m, "dfsck", "-D", nodeDir(m))
	}
}

// keep starts a daemon again and again, as the unit of an operator does.
func (h *hosts) keep(m *machine, args ...string) {
	r := h.random("keep " + m.name)
	out, err := os.OpenFile(filepath.Join(m.dir, "daemon.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		h.check(err)
		return
	}
	defer out.Close()
	for {
		init := m.power(h.ending)
		if init == nil {
			return
		}
		cmd := m.command(context.Background(), init, args...)
		cmd.Stdout, cmd.Stderr = out, out
		status := exitStatus(cmd.Run())
		if status == 70 || status == 2 {
			h.violation("%s on %s ended with status %d, a fault of its own", args[0], m.name, status)
		}
		h.note("daemons ended", "%s on %s, status %d", args[0], m.name, status)
		if !wait(h.ending, between(r, 50*time.Millisecond, 1500*time.Millisecond)) {
			return
		}
	}
}

// stopDaemons asks every daemon to end.
func (h *hosts) stopDaemons() {
	for _, m := range h.machines() {
		for _, p := range m.processes() {
			if p.kind == "dsched" || p.kind == "dnoded" {
				syscall.Kill(p.pid, syscall.SIGTERM)
			}
		}
	}
}

func (h *hosts) run(ctx context.Context, args ...string) (stdout, stderr string, err error) {
	init := h.head.power(ctx)
	if init == nil {
		return "", "", ctx.Err()
	}
	var out, talk strings.Builder
	cmd := h.head.command(ctx, init, args...)
	cmd.Stdout, cmd.Stderr = &out, &talk
	err = cmd.Run()
	return out.String(), talk.String(), err
}

// The files of the host are those of the machines, but for the disks.
func (h *hosts) put(context.Context, string) error { return nil }
func (h *hosts) get(context.Context, string) error { return nil }

func (h *hosts) starts() (lines string, whole bool) {
	data, err := os.ReadFile(h.user.file)
	if !errors.Is(err, os.ErrNotExist) {
		h.check(err)
	}
	return string(data), true
}

func (h *hosts) left() []string {
	list, _ := filepath.Glob(h.head.see(filepath.Join(h.spool, "batches/*/*/staging/*")))
	for _, m := range h.nodes {
		attempts, _ := filepath.Glob(m.see(filepath.Join(nodeDir(m), "attempts/*")))
		list = append(list, attempts...)
	}
	return list
}

func (h *hosts) batchLog(batch string) string {
	data, err := os.ReadFile(h.head.see(filepath.Join(h.spool, "batches", batch, "log.jsonl")))
	if !errors.Is(err, os.ErrNotExist) {
		h.check(err)
	}
	return string(data)
}

func (h *hosts) talk() map[string]string {
	all := map[string]string{}
	for _, m := range h.machines() {
		data, err := os.ReadFile(filepath.Join(m.dir, "daemon.log"))
		h.check(err)
		all[m.name] = string(data)
	}
	return all
}
