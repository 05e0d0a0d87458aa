package testscripts

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"distribute/lib/suite"
)

// TestPowerCuts plays with a head and two nodes on a machine of its own, an
// emulator which is killed again and again: what the kernel had not written is
// gone. What the user was told is held against what there is.
//
// CHAOS_CUTS is how often, CHAOS_SEED as for TestChaos; PEERS where
// scripts/peers/machine has built the machine.
func TestPowerCuts(t *testing.T) {
	cuts := 2
	if s := os.Getenv("CHAOS_CUTS"); s != "" {
		var err error
		if cuts, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	} else {
		suite.Long(t, "make cuts")
	}
	needComputer(t)
	e, err := newEmulator(t)
	if err != nil {
		t.Fatal(err)
	}
	e.play(cuts)
	t.Log(e.report())
}

// An emulator is a machine with a head and two nodes whose power can be cut for
// good.
type emulator struct {
	*chaos
	*computer

	mu    sync.Mutex // guards what follows
	up    chan struct{}
	boots int
}

// newEmulator makes the disks: an empty one that stays, and one with the
// commands.
func newEmulator(t *testing.T) (*emulator, error) {
	c, err := newChaos(t)
	if err != nil {
		return nil, err
	}
	e := &emulator{chaos: c, up: make(chan struct{})}
	if e.computer, err = newComputer(filepath.Join(c.dir, "machine")); err != nil {
		return nil, err
	}
	c.place, c.size, c.spool, c.slack = e, 2, "/data/spool", 4
	c.user.file, c.user.mark, c.user.patience = "/dev/kmsg", "<1>", 4*time.Minute
	bin := filepath.Join(e.home, "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return nil, err
	}
	build := exec.Command("go", "build", "-o", bin+"/", "../cmd/...")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	if err := e.disk("bin.img", 384<<20, "-d", bin); err != nil {
		return nil, err
	}
	t.Cleanup(e.cut)
	return e, e.disk("data.img", 1<<30, "-m", "0")
}

// play is the whole run.
func (e *emulator) play(cuts int) {
	ctx, calm := context.WithCancel(context.Background())
	e.check(e.start())
	e.ordeal(ctx, func(ctx context.Context) {
		defer calm()
		r := e.random("cuts")
		for ; cuts > 0; cuts-- {
			e.stretch(ctx, r)
			e.cut()
			e.note("power cuts", "number %d", e.boots)
			e.check(e.start())
		}
		e.stretch(ctx, r)
	}, func() {}, func() {
		e.cut()
		e.note("power cuts", "when all is over")
		e.check(e.start())
	})
	_, talk, err := e.run(context.Background(), "/run/over")
	if err != nil {
		e.violation("dfsck at the end: %v: %s", err, talk)
	}
	e.judgeTalk()
}

// stretch is for how long the power is on.
func (e *emulator) stretch(ctx context.Context, r *rand.Rand) {
	wait(ctx, between(r, 5*time.Second, 25*time.Second))
	if r.IntN(2) == 0 {
		e.user.awaitSubmit(ctx) // right after somebody was told that it is safe
	}
}

// machineDaemons starts what an operator's units would.
const machineDaemons = `
export PATH=/opt:$PATH HOME=/root USER=root LANG=C.UTF-8
if [ ! -e /data/spool/spool.json ]; then
	dadm init /data/spool && echo 'lease: 1m' >/data/spool/head.yaml &&
		for n in 1 2; do printf 'name: n%s\ncpus: 2\n' $n >/data/n$n.yaml; done && sync || exit
fi
cat >/run/keep <<'END'
name=$1
shift
while [ ! -e /run/end ]; do
	"$@" >/dev/kmsg 2>&1 </dev/null &
	echo $! >/run/$name.pid
	wait $!
	echo "<1>$name ended with $?" >/dev/kmsg
	sleep 1
done
END
setsid sh /run/keep dsched dsched -S /data/spool >/dev/null 2>&1 </dev/null &
for n in 1 2; do setsid sh /run/keep n$n dnoded -D /data/n$n -H /data/spool /data/n$n.yaml >/dev/null 2>&1 </dev/null & done
cat >/run/over <<'END'
#!/bin/sh
touch /run/end
kill $(cat /run/n1.pid /run/n2.pid /run/dsched.pid)
for pid in $(cat /run/n1.pid /run/n2.pid /run/dsched.pid); do
	while kill -0 $pid 2>/dev/null; do sleep 0.1; done
done
dfsck -s -S /data/spool >&2 && dfsck -D /data/n1 >&2 && dfsck -D /data/n2 >&2
END
chmod +x /run/over
`

// start switches it on, and starts the daemons.
func (e *emulator) start() error {
	began := time.Now()
	if err := e.switchOn(); err != nil {
		return err
	}
	start := e.ssh(context.Background(), strings.NewReader(machineDaemons), "exec sh -s")
	if out, err := start.CombinedOutput(); err != nil {
		return fmt.Errorf("the daemons do not start: %w: %s", err, out)
	}
	e.note("boots", "after %v", time.Since(began).Round(time.Second))
	e.mu.Lock()
	defer e.mu.Unlock()
	e.boots++
	close(e.up)
	return nil
}

// cut kills it.
func (e *emulator) cut() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.computer.cut() {
		e.up = make(chan struct{})
	}
}

// power waits until the machine is up.
func (e *emulator) power(ctx context.Context) error {
	e.mu.Lock()
	up := e.up
	e.mu.Unlock()
	select {
	case <-up:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (e *emulator) run(ctx context.Context, args ...string) (stdout, stderr string, err error) {
	if err := e.power(ctx); err != nil {
		return "", "", err
	}
	cmd := e.ssh(ctx, nil, "PATH=/opt:$PATH exec "+shellLine(args))
	var out, talk bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &talk
	err = cmd.Run()
	return out.String(), talk.String(), err
}

func (e *emulator) put(ctx context.Context, dir string) error {
	if err := e.power(ctx); err != nil {
		return err
	}
	tar, err := exec.CommandContext(ctx, "tar", "-C", "/", "-c", strings.TrimPrefix(dir, "/")).Output()
	if err != nil {
		return err
	}
	return e.ssh(ctx, strings.NewReader(string(tar)), "tar -C / -x").Run()
}

func (e *emulator) get(ctx context.Context, dir string) error {
	if err := e.power(ctx); err != nil {
		return err
	}
	tar, err := e.ssh(ctx, nil, "cd / && exec tar -c "+shellLine([]string{strings.TrimPrefix(dir, "/")})).Output()
	if err != nil {
		return err
	}
	return runWith(string(tar), "tar", "-C", "/", "-x")
}

func (e *emulator) console() string {
	data, err := os.ReadFile(filepath.Join(e.home, "console"))
	e.check(err)
	return strings.ReplaceAll(string(data), "\r", "")
}

// starts are what jobs have written into the kernel's log, of which a power cut
// may take the last of.
func (e *emulator) starts() (lines string, whole bool) {
	var b strings.Builder
	for line := range strings.Lines(e.console()) {
		if _, start, ok := strings.Cut(line, "] start "); ok && strings.HasSuffix(line, "\n") {
			b.WriteString("start " + start)
		}
	}
	return b.String(), false
}

func (e *emulator) left() []string {
	out, talk, err := e.run(context.Background(), "sh", "-c", "cd /data && ls -d n?/attempts/* spool/batches/*/*/staging/* 2>/dev/null; true")
	e.check(errors.Join(err, inWords(err, talk)))
	return strings.Fields(out)
}

// inWords is what a command said with its error.
func inWords(err error, talk string) error {
	if err == nil {
		return nil
	}
	return errors.New(talk)
}

func (e *emulator) batchLog(batch string) string {
	out, talk, err := e.run(context.Background(), "sh", "-c", "cat "+shellLine([]string{filepath.Join(e.spool, "batches", batch, "log.jsonl")})+" || true")
	e.check(errors.Join(err, inWords(err, talk)))
	return out
}

func (e *emulator) talk() map[string]string { return map[string]string{"machine": e.console()} }
