package testscripts

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// A plan is what a job was sent out to do.
type plan struct {
	exit  int  // its status, if nothing happens to it
	never bool // it may be started once
}

// A row is what dquery says of a job.
type row struct {
	id, state, attempt, exit, signal, reason string
}

const rowFields = "id,state,attempt,exit,signal,reason"

func (r row) over() bool { return r.state == "done" || r.state == "failed" || r.state == "cancelled" }

// A user submits, asks, cancels and pulls, and remembers what he was told.
type user struct {
	c        *chaos
	file     string        // to which each attempt appends when it begins
	mark     string        // with what its line begins
	patience time.Duration // with a tool
	told     chan struct{} // gets one when a dsubmit has exited with 0, if somebody waits

	asking    sync.Mutex                 // held while dquery is asked, so that answers are in order
	mu        sync.Mutex                 // guards what follows
	plans     map[string]map[string]plan // what was tried to submit: by batch, by job
	safe      map[string]bool            // batches whose dsubmit exited with 0
	asked     map[string]bool            // jobs that were tried to cancel
	cancelled map[string]bool            // jobs of which dcancel said so
	last      map[string]row             // as last seen
	ends      map[string]row             // as first seen over
}

func newUser(c *chaos) *user {
	return &user{c: c, file: filepath.Join(c.dir, "starts"), patience: time.Minute, told: make(chan struct{}), plans: map[string]map[string]plan{}, safe: map[string]bool{},
		asked: map[string]bool{}, cancelled: map[string]bool{}, last: map[string]row{}, ends: map[string]row{}}
}

// home is where results are pulled to.
func (u *user) home() string { return filepath.Join(u.c.dir, "pulled") }

// tool runs a tool at the head, whose power may be off for a while. A status of
// -1 is that it was killed, or hung for a minute.
func (u *user) tool(ctx context.Context, args ...string) (stdout string, status int) {
	ctx, cancel := context.WithTimeout(ctx, u.patience)
	defer cancel()
	args = append([]string{args[0], "-H", u.c.spool}, args[1:]...)
	out, talk, err := u.c.place.run(ctx, args...)
	var exit *exec.ExitError
	switch {
	case err == nil:
		return out, 0
	case !errors.As(err, &exit) || exit.ExitCode() < 0 || exit.ExitCode() > 128:
		return out, -1
	case exit.ExitCode() == 70 || exit.ExitCode() == 64 || exit.ExitCode() == 2:
		u.c.violation("%s: status %d: %s", strings.Join(args, " "), exit.ExitCode(), talk)
	}
	u.c.note("tools said no", "%s: status %d: %s", args[0], exit.ExitCode(), strings.TrimSpace(talk))
	return out, exit.ExitCode()
}

// work does what users do, beside trouble, until ctx ends.
func (u *user) work(ctx context.Context, trouble func(context.Context)) {
	var all sync.WaitGroup
	all.Go(func() { trouble(ctx) })
	for i := range 3 {
		all.Go(func() { u.submitAll(ctx, i) })
	}
	all.Go(func() { u.cancelSome(ctx) })
	all.Go(func() {
		for r := u.c.random("pull"); wait(ctx, between(r, time.Second, 4*time.Second)); {
			u.tool(ctx, "dpull", "-q", "-o", u.home(), "job=*")
		}
	})
	all.Wait()
}

// submitAll submits one batch after the other, each until it is safe.
func (u *user) submitAll(ctx context.Context, who int) {
	r := u.c.random(fmt.Sprint("submit ", who))
	for i := 0; wait(ctx, between(r, 100*time.Millisecond, 2*time.Second)); i++ {
		if u.open() > 60 {
			continue
		}
		name := fmt.Sprintf("b%d-%d", who, i)
		file, jobs := u.write(r, name)
		u.mu.Lock()
		u.plans["chaos/"+name] = jobs
		u.mu.Unlock()
		for status := 1; status != 0; {
			if u.c.place.put(ctx, filepath.Dir(file)) == nil {
				_, status = u.tool(ctx, "dsubmit", "-q", file)
			}
			if status == 65 {
				u.c.violation("batch %s, submitted again as it was, is refused", name)
				return
			} else if status == 0 {
				u.safely("chaos/" + name)
			} else if !wait(ctx, between(r, 50*time.Millisecond, time.Second)) {
				return
			}
		}
	}
}

// open is how many jobs are not over, as far as is known.
func (u *user) open() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	n := -len(u.ends)
	for _, jobs := range u.plans {
		n += len(jobs)
	}
	return n
}

func (u *user) safely(batch string) {
	u.mu.Lock()
	u.safe[batch] = true
	u.mu.Unlock()
	u.c.note("batches safe", "%s", batch)
	select {
	case u.told <- struct{}{}:
	default:
	}
}

// awaitSubmit returns when a dsubmit has exited with 0, or after a while.
func (u *user) awaitSubmit(ctx context.Context) {
	select {
	case <-u.told:
	case <-time.After(3 * time.Second):
	case <-ctx.Done():
	}
}

// chaosJob is a job whose output proves itself: who it is, and the sum of what
// it drew. It says before anything else that it was started, on a disk that
// nothing happens to. A disk that is full it calls by the status 9.
const chaosJob = `echo "$5start $DISTRIBUTE_ID $DISTRIBUTE_ATTEMPT $DISTRIBUTE_NODE" >>"$1" || exit 8
head -c "$2" /dev/urandom >payload && test "$(stat -c %s payload)" = "$2" || exit 9
sleep "$3"
{ echo "$DISTRIBUTE_ID" && echo "$DISTRIBUTE_ATTEMPT" && sha256sum payload; } >proof || exit 9
test "$(wc -l <proof)" = 3 || exit 9
exit "$4"
`

// write makes a batch's files, and says what its jobs are to do.
func (u *user) write(r *rand.Rand, name string) (file string, jobs map[string]plan) {
	dir := filepath.Join(u.c.dir, "batches", name)
	jobs = map[string]plan{}
	var b strings.Builder
	fmt.Fprintf(&b, "meta: {namespace: chaos, batch_name: %s, capabilities: []}\nresources: {cpus: 1}\n", name)
	never := r.IntN(4) == 0
	if never {
		b.WriteString("retry: never\n")
	}
	b.WriteString("command:\n  initialize:\n    required_files: [job.sh, input]\n")
	if r.IntN(3) == 0 {
		b.WriteString("    build: [cp, input/input, built]\n")
	}
	b.WriteString("  jobs:\n")
	for i := range 1 + r.IntN(8) {
		length, size := between(r, 0, 1500*time.Millisecond), r.IntN(60_000)
		switch r.IntN(12) {
		case 0:
			length = between(r, 2*time.Second, 12*time.Second)
		case 1:
			size = 1<<20 + r.IntN(1<<20)
		}
		p := plan{never: never}
		if r.IntN(10) == 0 {
			p.exit = 3
		}
		job := fmt.Sprintf("j%d", i)
		jobs[job] = p
		fmt.Fprintf(&b, "    - {name: %s, run: [sh, input/job.sh, %s, \"%d\", \"%.3f\", \"%d\", \"%s\"]}\n", job, u.file, size, length.Seconds(), p.exit, u.mark)
	}
	input := make([]byte, 1+r.IntN(300_000))
	for i := range input {
		input[i] = byte(r.Uint32())
	}
	file = filepath.Join(dir, "batch.yaml")
	u.c.check(os.MkdirAll(dir, 0o755))
	u.c.check(os.WriteFile(filepath.Join(dir, "job.sh"), []byte(chaosJob), 0o644))
	u.c.check(os.WriteFile(filepath.Join(dir, "input"), input, 0o644))
	u.c.check(os.WriteFile(file, []byte(b.String()), 0o644))
	return file, jobs
}

// cancelSome cancels jobs now and then, and remembers what it was told.
func (u *user) cancelSome(ctx context.Context) {
	for r := u.c.random("cancel"); wait(ctx, between(r, 500*time.Millisecond, 5*time.Second)); {
		id := u.pick(r)
		if id == "" {
			continue
		}
		out, _ := u.tool(ctx, "dcancel", "-q", id)
		for line := range strings.Lines(out) {
			if id, whole := strings.CutSuffix(line, "\n"); whole {
				u.mu.Lock()
				u.cancelled[id] = true
				u.mu.Unlock()
				u.c.note("jobs cancelled", "%s", id)
			}
		}
	}
}

// pick takes a job that was not over when it was last seen.
func (u *user) pick(r *rand.Rand) string {
	u.mu.Lock()
	defer u.mu.Unlock()
	var ids []string
	for id, row := range u.last {
		if !row.over() {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return ""
	}
	slices.Sort(ids)
	id := ids[r.IntN(len(ids))]
	u.asked[id] = true
	return id
}

// watch asks for all jobs again and again. What is once over stays as it is.
func (u *user) watch(ctx context.Context) {
	for wait(ctx, 700*time.Millisecond) {
		u.look(ctx)
	}
}

// look asks once, and says whether the answer was whole.
func (u *user) look(ctx context.Context) bool {
	u.asking.Lock()
	defer u.asking.Unlock()
	out, status := u.tool(ctx, "dquery", "-c", rowFields, "job=*")
	u.mu.Lock()
	defer u.mu.Unlock()
	for line := range strings.Lines(out) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(f) != strings.Count(rowFields, ",")+1 || !strings.HasSuffix(line, "\n") {
			if status == 0 {
				u.c.violation("dquery prints %q", line)
			}
			continue
		}
		r := row{f[0], f[1], f[2], f[3], f[4], f[5]}
		before, ended := u.ends[r.id]
		switch {
		case ended && (before.state != r.state || before.attempt != r.attempt):
			u.c.violation("%s was seen %s by attempt %s, and now is %s by attempt %s", r.id, before.state, before.attempt, r.state, r.attempt)
		case !ended && r.over():
			u.ends[r.id] = r
			u.c.note("jobs seen "+r.state, "%s attempt %s %s %s %s", r.id, r.attempt, r.exit, r.signal, r.reason)
		}
		u.last[r.id] = r
	}
	return status == 0
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
