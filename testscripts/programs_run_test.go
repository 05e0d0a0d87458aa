package testscripts

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode"
)

// A way is a place where programs run: a node that offers the capability of that name, or
// a cluster. As is the user whose batches run there.
type way struct {
	name, as string
	cluster  bool
}

// An outcome is what a person sees of a program that has ended.
type outcome struct {
	end     string            // "done", "failed 3", "failed SIGTERM"
	reason  string            // as dquery shows it
	printed map[string]string // by rank, "" for the only one; " of the build" by its build
	home    tree              // what came home
	skipped []string          // what could not, by its path
	maybe   []string          // what may be among these, too
	mounted bool              // something that is mounted there, or was, could not
	said    string            // the last line of a build that has failed
	build   string            // how a build ended that has failed, or printed too much
	spoil   bool              // a job of the batch may have changed a shared input
	unbuilt bool              // or its build may have, and has failed then
	begins  string            // the beginning of what was printed, if that is more than a node keeps
}

// outputLimit is what the nodes of job_programs keep of what a job prints.
const outputLimit = 8 << 20

// begins returns what a node keeps of a text that is too long, "" of others.
func begins(text []byte) string {
	if len(text) <= outputLimit {
		return ""
	}
	return summed(text[:outputLimit])
}

// programs runs batches in each way.
type programs struct {
	work   string
	ways   []way
	canary string
	runs   int        // how often a batch was run anywhere
	half   bool       // each batch runs in two of four ways only
	taking sync.Mutex // held while a folder's results are brought home, one at a time
	nodes  *interrupted
}

// An interrupted is what is interrupted: held while a node is, or is asked.
type interrupted struct {
	sync.Mutex
	kills  int            // how often the daemon of a node was killed
	pauses int            // how often a node was paused
	long   map[string]int // of each node, batches that were disturbed leavingUntil times
}

// mainPrograms is the command "programs WAY[=USER] ...": it writes D_PROGRAMS programs of
// chance from the seed D_SEED on, runs each in a directory and on each node and cluster that
// is named, and compares their outcomes. What differs is shortened until each step of it
// matters, printed, and is an error.
func mainPrograms() {
	if len(os.Args) < 2 {
		misuse("programs WAY[=USER] ...")
	}
	n, seed := 100, uint64(1)
	var err error
	if v := os.Getenv("D_PROGRAMS"); v != "" {
		if n, err = strconv.Atoi(v); err != nil {
			misuse("D_PROGRAMS=NUMBER")
		}
		seed = uint64(time.Now().UnixNano()/1e6) % 1e9
	}
	if v := os.Getenv("D_SEED"); v != "" {
		if seed, err = strconv.ParseUint(v, 10, 64); err != nil {
			misuse("D_SEED=NUMBER")
		}
	}
	p := &programs{work: os.Getenv("WORK"), canary: filepath.Join(os.Getenv("WORK"), "canary"), half: os.Getenv("D_PROGRAMS") == "", nodes: &interrupted{long: map[string]int{}}}
	for _, arg := range os.Args[1:] {
		name, as, _ := strings.Cut(arg, "=")
		p.ways = append(p.ways, way{name: name, as: as, cluster: name == "cluster"})
	}
	was, err := readTree(p.canary)
	p.must(err)
	const jobs, size, most = 10, 10, 100
	var (
		all       sync.WaitGroup
		mu        sync.Mutex // guards what follows
		bad, done int
		active    = map[int]bool{} // the first batches of the rounds that run
		tries     = 20 * time.Minute
	)
	free := make(chan bool, 2) // while one round waits the other keeps the processors busy
	for first := 0; first < n/jobs; first += size {
		free <- true
		mu.Lock()
		enough := bad >= most
		active[first] = true
		mu.Unlock()
		if enough {
			break
		}
		all.Go(func() {
			defer func() { <-free }()
			var round []programBatch
			for i := first; i < min(first+size, n/jobs); i++ {
				round = append(round, newProgramBatch(seed, i, jobs))
			}
			found, err := p.compare(round)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				bad++
				p.say("seed %d, batches %d to %d: %v", seed, first, first+len(round)-1, err)
			}
			is, err := readTree(p.canary)
			p.must(err)
			harm := was.differs(is)
			for _, d := range found {
				bad++
				if began := time.Now(); harm == "" && tries > 0 { // else nothing is as it was
					d = p.shrink(d, began.Add(min(tries, 2*time.Minute)))
					tries -= time.Since(began)
				}
				p.say("%s", d.text(seed))
			}
			if harm != "" {
				bad++
				p.say("seed %d, one of %d batches from each of %v on: of what is outside of the directories of jobs %s", seed, size, slices.Sorted(maps.Keys(active)), harm)
				p.restore(was)
			}
			delete(active, first)
			if done += len(round) * jobs; n > 1000 && done/500 > (done-len(round)*jobs)/500 {
				p.say("%d of %d programs, %d differences", done, n, bad)
			}
		})
	}
	all.Wait()
	fmt.Printf("daemons of nodes were killed %d times, and nodes paused %d times\n", p.nodes.kills, p.nodes.pauses)
	if bad > 0 {
		fail("programs: %d differences", bad)
	}
}

// say prints a line on the terminal, if the tests have one: a test's output comes at its end.
func (p *programs) say(format string, args ...any) {
	line := fmt.Sprintf(time.Now().Format("15:04:05 ")+format+"\n", args...)
	fmt.Print(line)
	if progress, err := os.OpenFile(os.Getenv("PROGRESS"), os.O_APPEND|os.O_WRONLY, 0); err == nil {
		progress.WriteString(line)
		progress.Close()
	}
}

// restore makes the canary as it was.
func (p *programs) restore(was tree) {
	p.exec(p.canary, "find", ".", "-mindepth", "1", "-delete")
	for _, at := range slices.Sorted(maps.Keys(was)) {
		if e := was[at]; e.kind == 0 {
			p.put(filepath.Join(p.canary, at), e.content)
			p.must(os.Chtimes(filepath.Join(p.canary, at), e.time, e.time))
		}
	}
}

// A broken is what makes a round of batches impossible, in a panic.
type broken string

func (b broken) Error() string { return string(b) }

func (p *programs) fail(format string, args ...any) { panic(broken(fmt.Sprintf(format, args...))) }

func (p *programs) must(err error) {
	if err != nil {
		p.fail("%v", err)
	}
}

// A team does things at once, so many at a time, and keeps the first that breaks.
type team struct {
	all  sync.WaitGroup
	free chan bool
	once sync.Once
	err  error
}

func newTeam(size int) *team { return &team{free: make(chan bool, size)} }

func (t *team) do(f func()) {
	t.free <- true
	t.all.Go(func() {
		defer func() {
			<-t.free
			if r := recover(); r != nil {
				err, ok := r.(broken)
				if !ok {
					panic(r)
				}
				t.once.Do(func() { t.err = err })
			}
		}()
		f()
	})
}

// wait returns when all is done. The first error of it is the team's.
func (t *team) wait() error {
	t.all.Wait()
	return t.err
}

// A difference is a batch with one program that does not end in a way as it does in a
// directory.
type difference struct {
	batch programBatch
	way   way
	what  string
}

func (d difference) text(seed uint64) string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d, batch %s, %s, as %q, ranks %d: %s\n", seed, d.batch.name, d.way.name, d.way.as, d.batch.ranks, d.what)
	if d.batch.build != nil {
		fmt.Fprintf(&b, "build:\n\t%s\n", strings.Join(d.batch.build.steps, "\n\t"))
	}
	for _, j := range d.batch.jobs {
		fmt.Fprintf(&b, "%s:\n\t%s\n", j.name, strings.Join(j.steps, "\n\t"))
	}
	return b.String()
}

// compare runs batches in all ways at once, and returns where they differ: at most one
// difference of each batch in each way.
func (p *programs) compare(batches []programBatch) ([]difference, error) {
	type key struct{ user, batch string }
	plain := map[key]map[string]outcome{}
	gots := make([]map[string]map[string]outcome, len(p.ways))
	there := make([][]programBatch, len(p.ways))
	ways, runs := newTeam(len(p.ways)), newTeam(2)
	var mu sync.Mutex // guards plain
	for i, w := range p.ways {
		for _, b := range batches {
			if !p.half || (b.number+i)%4 < 2 {
				there[i] = append(there[i], b)
			}
		}
		if len(there[i]) > 0 {
			ways.do(func() { gots[i] = p.run(there[i], w) })
		}
	}
	asked := map[key]bool{}
	for i, w := range p.ways {
		for _, b := range there[i] {
			if k := (key{w.as, b.name}); !asked[k] {
				asked[k] = true
				runs.do(func() {
					of := p.plainly(b, w.as)
					mu.Lock()
					defer mu.Unlock()
					plain[k] = of
				})
			}
		}
	}
	if err := errors.Join(ways.wait(), runs.wait()); err != nil {
		return nil, err
	}
	var found []difference
	for i, w := range p.ways {
		got := gots[i]
		for _, b := range there[i] {
			for _, j := range b.jobs {
				if d := plain[key{w.as, b.name}][j.name].differs(w, got[b.name][j.name]); d != "" {
					alone := b
					alone.jobs = []program{j}
					found = append(found, difference{alone, w, d})
					break
				}
			}
		}
	}
	return found, nil
}

// shrink leaves out of a difference each step without which there still is one, as long as
// there is time.
func (p *programs) shrink(d difference, until time.Time) difference {
	try := func(b programBatch) bool {
		if time.Now().After(until) {
			return false
		}
		p.runs++
		b.name = fmt.Sprintf("s%d", p.runs)
		only := &programs{work: p.work, canary: p.canary, ways: []way{d.way}, nodes: p.nodes}
		got, err := only.compare([]programBatch{b})
		if err != nil || len(got) == 0 {
			return false
		}
		d.batch.build, d.batch.jobs, d.what = b.build, b.jobs, got[0].what
		return true
	}
	if b := d.batch; b.build != nil {
		b.build = nil
		try(b)
	}
	for size := 8; size > 0; size /= 2 {
		for i := 0; i < len(d.batch.jobs[0].steps); {
			if b := d.batch; i+size <= len(b.jobs[0].steps) {
				b.jobs = []program{b.jobs[0].without(i, size)}
				if try(b) {
					continue
				}
			}
			i++
		}
		for i := 0; d.batch.build != nil && i < len(d.batch.build.steps); {
			if b := d.batch; i+size <= len(b.build.steps) {
				less := b.build.without(i, size)
				b.build = &less
				if try(b) {
					continue
				}
			}
			i++
		}
	}
	return d
}

// as returns a command of a user, or of root, in a file system of its own: what it mounts
// goes with it.
func (p *programs) as(user, dir string, words ...string) *exec.Cmd {
	args := []string{os.Getenv("HERE")}
	if user != "" {
		args = []string{os.Getenv("AS"), user}
	}
	args = append(args, words...)
	c := exec.Command(args[0], args[1:]...)
	c.Dir = dir
	c.Env = append(os.Environ(), "CANARY="+p.canary)
	return c
}

// tool runs a command of a user and returns what it prints. One of these statuses is expected.
func (p *programs) tool(user, dir string, statuses []int, words ...string) string {
	c := p.as(user, dir, words...)
	var talk bytes.Buffer
	c.Stderr = &talk
	out, err := c.Output()
	if status := exitStatus(err); !slices.Contains(statuses, status) {
		p.fail("%q in %s as %q: status %d\n%s%s", words, dir, user, status, out, talk.Bytes())
	}
	return string(out)
}

// exec runs a command of root in a directory.
func (p *programs) exec(dir string, words ...string) {
	c := exec.Command(words[0], words[1:]...)
	c.Dir = dir
	if out, err := c.CombinedOutput(); err != nil {
		p.fail("%q: %v\n%s", words, err, out)
	}
}

// write makes the directory of a batch, as its user has it, and returns it.
func (p *programs) write(b programBatch, w way) string {
	dir := filepath.Join(p.work, "batches", w.name, b.name)
	for name, text := range programInputs {
		p.input(filepath.Join(dir, name), text)
	}
	var y strings.Builder
	fmt.Fprintf(&y, "meta: {namespace: t, batch_name: %s-%s, capabilities: [%s]}\n", b.name, w.name, w.name)
	fmt.Fprintf(&y, "env: {CANARY: %q, SPOIL: %q}\n", p.canary, map[bool]string{true: "yes"}[b.spoil && !w.cluster])
	fmt.Fprintf(&y, "resources: {cpus: 1, memory: 100M")
	if b.ranks > 0 {
		fmt.Fprintf(&y, ", ranks: %d", b.ranks)
	}
	big := ""
	if b.big {
		big = ", big.dat"
		fmt.Fprintf(&y, ", disk: 40M") // which does not count it
		p.large(b, filepath.Join(dir, "big.dat"))
	}
	fmt.Fprintf(&y, "}\ncommand:\n  initialize:\n    required_files: [a.cfg, b.cfg, tool.sh, sub, build.sh%s]\n", big)
	p.put(filepath.Join(dir, "build.sh"), "exit 99\n")
	if b.build != nil {
		p.put(filepath.Join(dir, "build.sh"), b.build.script())
		fmt.Fprintf(&y, "    build: [sh, input/build.sh]\n")
	}
	fmt.Fprintf(&y, "  jobs:\n")
	for i, j := range b.jobs {
		p.put(filepath.Join(dir, j.name+".sh"), j.script())
		fmt.Fprintf(&y, "    - {name: %s, param: {n: %s}, run: [sh, input/%s.sh], required_files: [%s.sh, {path: table.in, fill: true}]}\n", j.name, programValue(i), j.name, j.name)
	}
	p.put(filepath.Join(dir, "batch.yaml"), y.String())
	return dir
}

// largeSum is the beginning of the sum of such an input.
var largeSum = fmt.Sprintf("%d bytes ", 64<<20+len("ends\n"))

// lastOf returns the last line of a text that has a letter, or the last one if none has, or the
// beginning of a long one.
func lastOf(text []byte) string {
	text = bytes.TrimSpace(text)
	lines := bytes.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' })
	last := text[max(bytes.LastIndexAny(text, "\n\r"), 0):]
	for _, line := range slices.Backward(lines) {
		if bytes.ContainsFunc(line, unicode.IsLetter) {
			last = line
			break
		}
	}
	last = bytes.TrimSpace(last)
	return string(last[:min(len(last), 20)])
}

// large makes the input that the jobs of a batch may share, of little but zeros. Each batch
// has another, so that none changes that of others.
func (p *programs) large(b programBatch, name string) {
	p.put(name, fmt.Sprintf("begins %d\n", b.number))
	p.must(os.Truncate(name, 64<<20))
	f, err := os.OpenFile(name, os.O_APPEND|os.O_WRONLY, 0)
	p.must(err)
	_, err = f.WriteString("ends\n")
	p.must(errors.Join(err, f.Close(), os.Chtimes(name, inputTime, inputTime)))
}

// input makes an input, which can be executed if it is a program.
func (p *programs) input(name, text string) {
	p.put(name, text)
	if path.Base(name) == "tool.sh" {
		p.must(os.Chmod(name, 0o755))
	}
	p.must(os.Chtimes(name, inputTime, inputTime))
}

// inputTime is the time of inputs, which jobs see.
var inputTime = time.Unix(1577836801, 0)

func (p *programs) put(name, text string) {
	p.must(os.MkdirAll(filepath.Dir(name), 0o755))
	p.must(os.WriteFile(name, []byte(text), 0o644))
}

// run submits batches in a way, and returns what became of their jobs, by batch and job.
func (p *programs) run(batches []programBatch, w way) map[string]map[string]outcome {
	ids := make([]string, len(batches))
	submits := newTeam(2)
	for i, b := range batches {
		ids[i] = "t/" + b.name + "-" + w.name
		submits.do(func() {
			dir := p.write(b, w)
			if !w.cluster {
				p.tool(w.as, dir, []int{0}, "dsubmit", "-q", "batch.yaml")
				return
			}
			p.must(os.Chown(dir, p.id(w.as), p.id(w.as)))
			p.tool(w.as, dir, []int{0}, "env", "-u", "DHEAD", "d2slurm", "-q", "-o", "folder", "-N", "hpc", "batch.yaml")
			p.tool(w.as, dir, []int{0}, "env", "-u", "DHEAD", "folder/submit.sh")
			p.taking.Lock()
			defer p.taking.Unlock()
			p.tool(w.as, dir, []int{0, 1}, "d2slurm", "-q", "-r", "folder")
		})
	}
	uninterrupted := p.interrupt(w, ids)
	submits.wait()
	submits.do(func() {
		p.tool(w.as, p.work, []int{0, 1, 124}, append([]string{"timeout", "300", "dwait", "-q"}, ids...)...)
	})
	p.must(errors.Join(submits.wait(), uninterrupted()))
	if late := p.unfinished(w, ids); late != "" {
		p.fail("jobs of %v have not finished on %s after 5 minutes (state, job, attempt, reason):\n%s", ids, w.name, late)
	}
	home := filepath.Join(p.work, "home", w.name+"-"+batches[0].name)
	p.must(os.MkdirAll(home, 0o755))
	p.must(os.Chown(home, p.id(w.as), p.id(w.as)))
	p.tool(w.as, home, []int{0, 1}, append([]string{"dpull", "-q"}, ids...)...)
	if !w.cluster { // there Slurm does it
		for end := time.Now().Add(15 * time.Second); len(p.left(ids)) > 0 && time.Now().Before(end); {
			time.Sleep(100 * time.Millisecond) // an attempt whose daemon was killed may still be ended
		}
		for _, pid := range p.left(ids) {
			cmd, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			p.fail("of %v, %q is left on the node %s", ids, cmd, w.name)
		}
	}
	all := map[string]map[string]outcome{}
	for i, b := range batches {
		all[b.name] = map[string]outcome{}
		built, known := "", true
		switch {
		case b.build == nil:
		case w.cluster:
			text, err := os.ReadFile(filepath.Join(p.work, "batches", w.name, b.name, "folder", "build_output.txt"))
			p.must(err)
			built = summed(text) // a cluster keeps all of it
		default:
			var text string
			text, known = p.builtOutput(w, ids[i]+"/"+b.jobs[0].name)
			built = summed([]byte(remark.ReplaceAllString(text[:min(len(text), outputLimit)], "")))
		}
		rows := p.tool(w.as, p.work, []int{0}, "dquery", ids[i], "-c", "job,state,exit,signal,reason,attempt")
		for line := range strings.Lines(rows) {
			f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
			if len(f) != 6 {
				p.fail("dquery printed %q", line)
			}
			end := f[1]
			if end == "failed" {
				end += " " + strings.Trim(f[2]+f[3], "-")
			}
			reason := strings.TrimPrefix(f[4], "-")
			if plain, err := strconv.Unquote(reason); err == nil {
				reason = plain
			}
			o := p.pulled(filepath.Join(home, ids[i]), f[0], f[5], end, reason)
			if known {
				o.printed[" of the build"] = built
			}
			all[b.name][f[0]] = o
		}
	}
	p.tool(w.as, p.work, []int{0, 1}, append([]string{"dcancel", "-q"}, ids...)...)
	p.tool(w.as, p.work, []int{0, 1}, append([]string{"drm", "-q"}, ids...)...)
	p.must(os.RemoveAll(home))
	for _, b := range batches {
		p.must(os.RemoveAll(filepath.Join(p.work, "batches", w.name, b.name)))
	}
	return all
}

// unfinished returns a row of each job that has not finished.
func (p *programs) unfinished(w way, ids []string) (late string) {
	rows := p.tool(w.as, p.work, []int{0}, slices.Concat([]string{"dquery", "-c", "state,id,attempt,reason"}, ids)...)
	for row := range strings.Lines(rows) {
		if state, _, _ := strings.Cut(row, "\t"); !slices.Contains([]string{"done", "failed", "cancelled"}, state) {
			late += row
		}
	}
	return late
}

// builtOutput returns what a build printed, and whether all of it is known: the node does not
// keep it when its daemon starts again and the batch is over.
func (p *programs) builtOutput(w way, job string) (text string, known bool) {
	p.nodes.Lock()
	defer p.nodes.Unlock()
	for range 300 {
		rows := p.tool(w.as, p.work, []int{0}, "dquery", "-N", "-c", "node,state")
		if !strings.Contains(rows, w.name+"\tunreachable") {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	text = p.tool(w.as, p.work, []int{0, 66}, "dlog", "-q", "-B", job)
	part := strings.HasSuffix(text, "\n(what it printed then is not here: the node is not connected any more)\n")
	return text, (text != "" && !part) || p.nodes.kills == 0
}

// interrupt kills the daemon of a node and pauses its jobs at moments of chance, until the
// function is called that it returns. No program notices.
func (p *programs) interrupt(w way, ids []string) (end func() error) {
	ended, interrupts := make(chan bool), newTeam(1)
	interrupts.do(func() {
		for n := 0; !w.cluster && (n < 2 || !p.half); n++ {
			if n == leavingUntil {
				p.lasts(w, 1)
				defer p.lasts(w, -1)
			}
			select {
			case <-ended:
				return
			case <-time.After(time.Duration(200+rand.IntN(2000)) * time.Millisecond):
				p.disturb(w, ids)
			}
		}
	})
	return func() error { close(ended); return interrupts.wait() }
}

// leavingUntil is how many times batches are disturbed until no job of their node has to leave
// any more. A node whose jobs leave again and again rests, for twice as long each time: the
// last jobs would not end in the time of dwait.
const leavingUntil = 20

// lasts notes that so many more batches were disturbed leavingUntil times.
func (p *programs) lasts(w way, n int) {
	p.nodes.Lock()
	defer p.nodes.Unlock()
	p.nodes.long[w.name] += n
}

// disturb pauses a node, or kills its daemon and starts it again by the script "again" of
// job_programs, or does that during a pause.
func (p *programs) disturb(w way, ids []string) {
	p.nodes.Lock()
	defer p.nodes.Unlock()
	does := rand.IntN(3)
	if does > 0 {
		p.nodes.pauses++
		dpause := []string{"dpause", "-q", "-D", w.name}
		if w.name == "user" {
			dpause[3] = "people/ana/user"
		}
		kinds := [][]string{{"1m"}, {"-g", strconv.Itoa(runtime.NumCPU()), "1m"}, {"-g", "1", "1m"}, {"-e", "1m"}}
		if p.half || p.nodes.long[w.name] > 0 {
			kinds = kinds[:3] // jobs that leave take time to begin again
		}
		kind := kinds[rand.IntN(len(kinds))]
		ends := []int{0}
		if p.half {
			ends = []int{0, 75} // a busy machine stops nothing within its time
		}
		p.tool(w.as, p.work, ends, append(dpause, kind...)...)
		defer p.tool(w.as, p.work, []int{0}, append(dpause, "-r")...)
		if len(kind) == 1 || kind[1] == strconv.Itoa(runtime.NumCPU()) { // after -e they have some time to save
			p.standStill(ids)
		}
	}
	if does < 2 {
		p.nodes.kills++
		p.exec(p.work, "signal", w.name, "KILL")
		time.Sleep(time.Duration(rand.IntN(400)) * time.Millisecond)
		p.exec(p.work, "sh", "again", w.name)
	}
}

// standStill checks that no process of batches runs on in a pause. One that was stopped in the
// kernel, as for a disk, ends what it does there, and one that has ended soon was killed.
func (p *programs) standStill(ids []string) {
	before, quiet := p.switches(ids), map[int]int{}
	var ran map[int]int
	end := time.Now().Add(10 * time.Second)
	for n := 0; n < 20 || time.Now().Before(end); n++ { // on a busy machine each takes long
		time.Sleep(50 * time.Millisecond)
		ran = p.switches(ids)
		still := true
		for pid, n := range ran {
			quiet[pid]++
			if n != before[pid] {
				quiet[pid] = 0
			}
			still = still && quiet[pid] >= 4
		}
		if still {
			return
		}
		before = ran
	}
	p.fail("of %v, processes run in a pause: %v (samples since each gave up a processor: %v)", ids, ran, quiet)
}

// switches returns how often each process of batches gave up a processor or lost one.
func (p *programs) switches(ids []string) map[int]int {
	all := map[int]int{}
	for _, pid := range p.left(ids) {
		status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		for _, n := range switchesOf.FindAllSubmatch(status, -1) {
			times, err := strconv.Atoi(string(n[1]))
			p.must(err)
			all[pid] += times
		}
	}
	return all
}

var switchesOf = regexp.MustCompile(`voluntary_ctxt_switches:\s+(\d+)`)

// remark is what dlog adds to the output of a build that has failed.
var remark = regexp.MustCompile(`\n\[[^\n]*\]\n$`)

// left returns the processes of batches that have not ended, by their variables. Another run
// of this test has another canary.
func (p *programs) left(ids []string) (pids []int) {
	environs, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, at := range environs {
		b, _ := os.ReadFile(at)
		env := strings.Split(string(b), "\x00")
		for _, v := range env {
			name, ok := strings.CutPrefix(v, "DISTRIBUTE_BATCH=")
			if ok && slices.Contains(ids, "t/"+name) && slices.Contains(env, "CANARY="+p.canary) {
				pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(at)))
				if !gone(pid) {
					pids = append(pids, pid)
				}
			}
		}
	}
	return pids
}

// id returns the number of a user; that of root is 0.
func (p *programs) id(user string) int {
	if user == "" {
		return 0
	}
	n, err := strconv.Atoi(os.Getenv(user))
	p.must(err)
	return n
}

// pulled returns the outcome of a job, of which dpull has brought the files of its last attempt.
func (p *programs) pulled(dir, job, attempt, end, reason string) outcome {
	o := outcome{end: end, reason: reason, printed: map[string]string{}}
	at := filepath.Join(dir, job)
	if _, err := os.Lstat(at); err != nil {
		at += "~" + attempt
	}
	home, err := readTree(at)
	if errors.Is(err, fs.ErrNotExist) {
		return o
	}
	p.must(err)
	for at, e := range home {
		if rest, ok := strings.CutPrefix(at, job+"_output"); ok {
			o.printed[strings.TrimSuffix(rest, ".txt")] = e.content
			delete(home, at)
		}
	}
	if e, ok := home[job+"_skipped.txt"]; ok {
		for line := range strings.Lines(e.content) {
			at, _, _ := strings.Cut(line, ": ")
			o.skipped = append(o.skipped, at)
		}
		delete(home, job+"_skipped.txt")
	}
	// Of where something is mounted, or was, it depends on the user how it ends.
	maps.DeleteFunc(home, func(at string, _ treeEntry) bool { return path.Base(at) == "m" })
	n := len(o.skipped)
	o.home, o.skipped = home, slices.DeleteFunc(o.skipped, func(at string) bool { return path.Base(at) == "m" })
	o.mounted = len(o.skipped) < n
	return o
}

// plainly runs a batch in a directory, and returns what should become of its jobs anywhere.
func (p *programs) plainly(b programBatch, user string) map[string]outcome {
	top := filepath.Join(p.work, "plain", user+"-"+b.name)
	p.must(os.RemoveAll(top))
	build := filepath.Join(top, "tree")
	p.must(os.MkdirAll(build, 0o755))
	inputs, built, all := p.inputs(b), "", map[string]outcome{}
	spoiledBuild := b.build != nil && strings.Contains(b.build.script(), "$SPOIL")
	if b.build != nil {
		p.place(b, build, user, inputs, nil)
		var ended *os.ProcessState
		var text []byte
		ended, text = p.plain(context.Background(), build, build, user, "input/build.sh")
		if built = summed(text); !ended.Success() || len(text) > outputLimit {
			for _, j := range b.jobs {
				all[j.name] = outcome{spoil: b.spoil, unbuilt: spoiledBuild, build: howEnded(ended), said: lastOf(text), printed: map[string]string{" of the build": built}, begins: begins(text)}
			}
			p.must(os.RemoveAll(top))
			return all
		}
		p.exec(build, "find", ".", "(", "-type", "p", "-o", "-type", "s", ")", "-delete") // jobs get none
	}
	for i, j := range b.jobs {
		dir := filepath.Join(top, j.name)
		p.exec(build, "cp", "-a", "--no-preserve=links", ".", "../"+j.name) // a whole path may be too long
		p.must(os.Chmod(dir, 0o755))                                        // which the build may have closed
		p.place(b, dir, user, inputs, map[string]string{
			j.name + ".sh": j.script(),
			"table":        strings.NewReplacer("{{n}}", "{n}", "{n}", programValue(i)).Replace(programInputs["table.in"]),
		})
		before, err := readTree(dir)
		p.must(err)
		o := outcome{spoil: b.spoil, unbuilt: spoiledBuild, printed: map[string]string{" of the build": built}}
		if b.ranks == 0 {
			state, text := p.plain(context.Background(), dir, dir, user, "input/"+j.name+".sh")
			o.end, o.printed[""], o.begins = howEnded(state), summed(text), begins(text)
		} else {
			p.plainRanks(b.ranks, dir, user, "input/"+j.name+".sh", &o)
		}
		p.must(os.Chmod(dir, 0o755))
		after, err := readTree(dir)
		p.must(err)
		o.home, o.skipped, o.maybe = expected(before, after, user != "")
		all[j.name] = o
	}
	p.must(os.RemoveAll(top))
	return all
}

// howEnded returns an end as an outcome has it.
func howEnded(state *os.ProcessState) string {
	switch status := state.Sys().(syscall.WaitStatus); {
	case status.Signaled():
		return "failed " + signalName(status.Signal())
	case status.ExitStatus() != 0:
		return fmt.Sprintf("failed %d", status.ExitStatus())
	}
	return "done"
}

func signalName(s syscall.Signal) string {
	return map[syscall.Signal]string{syscall.SIGTERM: "SIGTERM", syscall.SIGKILL: "SIGKILL", syscall.SIGSEGV: "SIGSEGV", syscall.SIGPIPE: "SIGPIPE"}[s]
}

// inputs returns the inputs of the build and of all jobs, by their paths below input.
func (p *programs) inputs(b programBatch) map[string]string {
	in := map[string]string{"build.sh": "exit 99\n"}
	if b.build != nil {
		in["build.sh"] = b.build.script()
	}
	for at, text := range programInputs {
		if at != "table.in" {
			in[at] = text
		}
	}
	return in
}

// place puts inputs into a directory: those of all jobs where nothing is, and a job's own.
func (p *programs) place(b programBatch, dir, user string, inputs, own map[string]string) {
	for at, text := range inputs {
		name := filepath.Join(dir, "input", at)
		if _, err := os.Lstat(name); err != nil && own[at] == "" {
			p.input(name, text)
		}
	}
	if name := filepath.Join(dir, "input/big.dat"); b.big {
		if _, err := os.Lstat(name); err != nil {
			p.large(b, name)
		}
	}
	for at, text := range own {
		os.Remove(filepath.Join(dir, "input", at))
		p.put(filepath.Join(dir, "input", at), text)
	}
	p.exec(dir, "chown", "-hR", fmt.Sprintf("%d:%[1]d", p.id(user)), ".")
}

// plain runs a script in a directory, and returns how it ended and what it printed until
// then. What it has left behind in the directory left is killed. When ctx ends, it is asked to
// end.
func (p *programs) plain(ctx context.Context, dir, left, user, script string, env ...string) (*os.ProcessState, []byte) {
	c := p.as(user, dir, "sh", script)
	c.Env = append(c.Env, env...)
	read, write, err := os.Pipe()
	p.must(err)
	p.must(write.Chown(p.id(user), p.id(user))) // it can be opened again by its name
	c.Stdout, c.Stderr = write, write
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	p.must(c.Start())
	write.Close()
	printed := make(chan []byte)
	go func() {
		b, _ := io.ReadAll(read) // until the deadline, if something is left behind
		printed <- b
	}()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	context.AfterFunc(ctx, func() {
		syscall.Kill(-c.Process.Pid, syscall.SIGTERM)
		time.AfterFunc(time.Second, func() { syscall.Kill(-c.Process.Pid, syscall.SIGKILL) })
	})
	c.Wait()
	for {
		p.killIn(left)
		select {
		case b := <-printed:
			read.Close()
			return c.ProcessState, b
		case <-time.After(20 * time.Millisecond): // something that is left behind began meanwhile
		}
	}
}

// plainRanks runs a script as ranks, of which the first that fails ends the others, and
// notes how they ended and what they printed.
func (p *programs) plainRanks(n int, dir, user, script string, o *outcome) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var mu sync.Mutex // guards o
	o.end = "done"
	ranks := newTeam(n)
	for r := range n {
		ranks.do(func() {
			state, b := p.plain(ctx, dir, filepath.Join(dir, fmt.Sprintf("r%d", r)), user, script, fmt.Sprintf("RANK=%d", r))
			mu.Lock()
			defer mu.Unlock()
			o.printed[fmt.Sprintf(".%d", r)] = summed(b)
			if end := howEnded(state); end != "done" && ctx.Err() == nil {
				cancel()
				how := strings.TrimPrefix(end, "failed ")
				if !strings.HasPrefix(how, "SIG") {
					how = "exit " + how
				}
				o.end, o.reason = end, fmt.Sprintf("rank %d of %d: %s", r, n, how)
			}
		})
	}
	p.must(ranks.wait())
	o.printed[""] = o.printed[".0"]
}

// killIn kills the processes whose directory is dir or below it.
func (p *programs) killIn(dir string) {
	for again := true; again; {
		again = false
		procs, _ := filepath.Glob("/proc/[0-9]*")
		for _, proc := range procs {
			at, err := os.Readlink(filepath.Join(proc, "cwd"))
			if err == nil && (at == dir || strings.HasPrefix(at, dir+"/")) {
				pid, _ := strconv.Atoi(filepath.Base(proc))
				again = !gone(pid) || again
				syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	}
}
