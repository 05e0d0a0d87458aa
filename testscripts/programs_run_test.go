package testscripts

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
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
}

// programs runs batches in each way.
type programs struct {
	work   string
	ways   []way
	canary string
	runs   int  // how often a batch was run anywhere
	half   bool // each batch runs in two of four ways only
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
	p := &programs{work: os.Getenv("WORK"), canary: filepath.Join(os.Getenv("WORK"), "canary"), half: os.Getenv("D_PROGRAMS") == ""}
	for _, arg := range os.Args[1:] {
		name, as, _ := strings.Cut(arg, "=")
		p.ways = append(p.ways, way{name: name, as: as, cluster: name == "cluster"})
	}
	const jobs = 10
	was, err := readTree(p.canary)
	p.must(err)
	bad := 0
	tries := time.Now().Add(2 * time.Minute) // until then differences are shortened
	for first := 0; first < n/jobs && bad < 10; first += 10 {
		var round []programBatch
		for i := first; i < min(first+10, n/jobs); i++ {
			round = append(round, newProgramBatch(seed, i, jobs))
		}
		found := p.compare(round)
		is, err := readTree(p.canary)
		p.must(err)
		harm := was.differs(is)
		for _, d := range found {
			if bad++; harm == "" { // else nothing is as it was
				d = p.shrink(d, tries)
			}
			d.print(seed)
		}
		if harm != "" {
			fail("programs: seed %d, batches %d to %d: of what is outside of the directories of jobs %s", seed, first, first+len(round)-1, harm)
		}
	}
	if bad > 0 {
		fail("programs: %d differences", bad)
	}
}

func (p *programs) must(err error) {
	if err != nil {
		fail("programs: %v", err)
	}
}

// A difference is a batch with one program that does not end in a way as it does in a
// directory.
type difference struct {
	batch programBatch
	way   way
	what  string
}

func (d difference) print(seed uint64) {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d, batch %s, %s, as %q, ranks %d: %s\n", seed, d.batch.name, d.way.name, d.way.as, d.batch.ranks, d.what)
	if d.batch.build != nil {
		fmt.Fprintf(&b, "build:\n\t%s\n", strings.Join(d.batch.build.steps, "\n\t"))
	}
	for _, j := range d.batch.jobs {
		fmt.Fprintf(&b, "%s:\n\t%s\n", j.name, strings.Join(j.steps, "\n\t"))
	}
	fmt.Print(b.String())
}

// compare runs batches in all ways at once, and returns where they differ: at most one
// difference of each batch in each way.
func (p *programs) compare(batches []programBatch) []difference {
	plain := map[string]map[string]map[string]outcome{} // by user, batch, job
	gots := make([]map[string]map[string]outcome, len(p.ways))
	there := make([][]programBatch, len(p.ways))
	need := map[string][]programBatch{} // by user, what runs plainly
	for i, w := range p.ways {
		for _, b := range batches {
			if p.half && (b.number+i)%4 > 1 {
				continue
			}
			there[i] = append(there[i], b)
			if !slices.ContainsFunc(need[w.as], func(o programBatch) bool { return o.name == b.name }) {
				need[w.as] = append(need[w.as], b)
			}
		}
	}
	var all sync.WaitGroup
	for i, w := range p.ways {
		if len(there[i]) > 0 {
			all.Go(func() { gots[i] = p.run(there[i], w) })
		}
	}
	for user, run := range need {
		of := map[string]map[string]outcome{}
		plain[user] = of
		all.Go(func() {
			for _, b := range run {
				of[b.name] = p.plainly(b, user)
			}
		})
	}
	all.Wait()
	var found []difference
	for i, w := range p.ways {
		got := gots[i]
		for _, b := range there[i] {
			for _, j := range b.jobs {
				if d := plain[w.as][b.name][j.name].differs(got[b.name][j.name]); d != "" {
					alone := b
					alone.jobs = []program{j}
					found = append(found, difference{alone, w, d})
					break
				}
			}
		}
	}
	return found
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
		only := &programs{work: p.work, canary: p.canary, ways: []way{d.way}}
		got := only.compare([]programBatch{b})
		if len(got) == 0 {
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
		fail("programs: %q in %s as %q: status %d\n%s%s", words, dir, user, status, out, talk.Bytes())
	}
	return string(out)
}

// shell runs a command of root in a directory.
func (p *programs) shell(dir, command string) {
	c := exec.Command("sh", "-c", command)
	c.Dir = dir
	if out, err := c.CombinedOutput(); err != nil {
		fail("programs: %s: %v\n%s", command, err, out)
	}
}

// write makes the directory of a batch, as its user has it, and returns it.
func (p *programs) write(b programBatch, w way) string {
	dir := filepath.Join(p.work, "batches", w.name, b.name)
	for name, text := range programInputs {
		p.put(filepath.Join(dir, name), text)
	}
	p.must(os.Chmod(filepath.Join(dir, "tool.sh"), 0o755))
	var y strings.Builder
	fmt.Fprintf(&y, "meta: {namespace: t, batch_name: %s-%s, capabilities: [%s]}\n", b.name, w.name, w.name)
	fmt.Fprintf(&y, "env: {CANARY: %q}\n", p.canary)
	fmt.Fprintf(&y, "resources: {cpus: 1, memory: 100M")
	if b.ranks > 0 {
		fmt.Fprintf(&y, ", ranks: %d", b.ranks)
	}
	fmt.Fprintf(&y, "}\ncommand:\n  initialize:\n    required_files: [a.cfg, b.cfg, tool.sh, sub, build.sh]\n")
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

func (p *programs) put(name, text string) {
	p.must(os.MkdirAll(filepath.Dir(name), 0o755))
	p.must(os.WriteFile(name, []byte(text), 0o644))
}

// run submits batches in a way, and returns what became of their jobs, by batch and job.
func (p *programs) run(batches []programBatch, w way) map[string]map[string]outcome {
	var ids []string
	for _, b := range batches {
		dir := p.write(b, w)
		ids = append(ids, "t/"+b.name+"-"+w.name)
		if !w.cluster {
			p.tool(w.as, dir, []int{0}, "dsubmit", "-q", "batch.yaml")
			continue
		}
		p.must(os.Chown(dir, p.id(w.as), p.id(w.as)))
		p.tool(w.as, dir, []int{0}, "env", "-u", "DHEAD", "d2slurm", "-q", "-o", "folder", "-N", "hpc", "batch.yaml")
		p.tool(w.as, dir, []int{0}, "env", "-u", "DHEAD", "folder/submit.sh")
		p.tool(w.as, dir, []int{0, 1}, "d2slurm", "-q", "-r", "folder")
	}
	p.tool(w.as, p.work, []int{0, 1, 124}, append([]string{"timeout", "300", "dwait", "-q"}, ids...)...)
	home := filepath.Join(p.work, "home", w.name)
	p.must(os.RemoveAll(home))
	p.must(os.MkdirAll(home, 0o755))
	p.must(os.Chown(home, p.id(w.as), p.id(w.as)))
	p.tool(w.as, home, []int{0, 1}, append([]string{"dpull", "-q"}, ids...)...)
	all := map[string]map[string]outcome{}
	for i, b := range batches {
		all[b.name] = map[string]outcome{}
		built := ""
		switch {
		case b.build == nil:
		case w.cluster:
			text, err := os.ReadFile(filepath.Join(p.work, "batches", w.name, b.name, "folder", "build_output.txt"))
			p.must(err)
			built = summed(text)
		default:
			built = summed([]byte(p.tool(w.as, p.work, []int{0, 66}, "dlog", "-q", "-B", ids[i]+"/"+b.jobs[0].name)))
		}
		rows := p.tool(w.as, p.work, []int{0}, "dquery", ids[i], "-c", "job,state,exit,signal,reason")
		for line := range strings.Lines(rows) {
			f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
			if len(f) != 5 {
				fail("programs: dquery printed %q", line)
			}
			end := f[1]
			if end == "failed" {
				end += " " + strings.Trim(f[2]+f[3], "-")
			}
			o := p.pulled(filepath.Join(home, ids[i]), f[0], end, strings.TrimPrefix(f[4], "-"))
			o.printed[" of the build"] = built
			all[b.name][f[0]] = o
		}
	}
	p.tool(w.as, p.work, []int{0, 1}, append([]string{"dcancel", "-q"}, ids...)...)
	p.tool(w.as, p.work, []int{0, 1}, append([]string{"drm", "-q"}, ids...)...)
	return all
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

// pulled returns the outcome of a job whose files dpull has brought.
func (p *programs) pulled(dir, job, end, reason string) outcome {
	o := outcome{end: end, reason: reason, printed: map[string]string{}}
	at := filepath.Join(dir, job)
	if _, err := os.Lstat(at); err != nil {
		at += "~1"
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
	o.home, o.skipped = home, slices.DeleteFunc(o.skipped, func(at string) bool { return path.Base(at) == "m" })
	return o
}

// plainly runs a batch in a directory, and returns what should become of its jobs anywhere.
func (p *programs) plainly(b programBatch, user string) map[string]outcome {
	top := filepath.Join(p.work, "plain", user+"-"+b.name)
	p.must(os.RemoveAll(top))
	build := filepath.Join(top, "tree")
	p.must(os.MkdirAll(build, 0o755))
	inputs, built := p.inputs(b), ""
	if b.build != nil {
		p.place(build, user, inputs, nil)
		_, built = p.plain(build, user, "input/build.sh")
		p.shell(build, "find . '(' -type p -o -type s ')' -delete") // jobs get none
	}
	all := map[string]outcome{}
	for i, j := range b.jobs {
		dir := filepath.Join(top, j.name)
		p.shell(build, "cp -a . ../"+j.name) // a whole path may be too long
		p.must(os.Chmod(dir, 0o755))         // which the build may have closed
		p.place(dir, user, inputs, map[string]string{
			j.name + ".sh": j.script(),
			"table":        strings.NewReplacer("{{n}}", "{n}", "{n}", programValue(i)).Replace(programInputs["table.in"]),
		})
		before, err := readTree(dir)
		p.must(err)
		o := outcome{printed: map[string]string{" of the build": built}}
		var state *os.ProcessState
		if b.ranks == 0 {
			state, o.printed[""] = p.plain(dir, user, "input/"+j.name+".sh")
		}
		for r := range b.ranks {
			state, o.printed[fmt.Sprintf(".%d", r)] = p.plain(dir, user, "input/"+j.name+".sh", fmt.Sprintf("RANK=%d", r))
		}
		if b.ranks > 0 {
			o.printed[""] = o.printed[".0"]
		}
		switch status := state.Sys().(syscall.WaitStatus); {
		case status.Signaled():
			o.end = "failed " + signalName(status.Signal())
		case status.ExitStatus() != 0:
			o.end = fmt.Sprintf("failed %d", status.ExitStatus())
		default:
			o.end = "done"
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
func (p *programs) place(dir, user string, inputs, own map[string]string) {
	for at, text := range inputs {
		name := filepath.Join(dir, "input", at)
		if _, err := os.Lstat(name); err != nil && own[at] == "" {
			p.put(name, text)
			if at == "tool.sh" {
				p.must(os.Chmod(name, 0o755))
			}
		}
	}
	for at, text := range own {
		os.Remove(filepath.Join(dir, "input", at))
		p.put(filepath.Join(dir, "input", at), text)
	}
	p.shell(dir, fmt.Sprintf("chown -hR %d:%[1]d .", p.id(user)))
}

// plain runs a script in a directory, and returns how it ended and what it printed until
// then. What it has left behind is killed.
func (p *programs) plain(dir, user, script string, env ...string) (*os.ProcessState, string) {
	c := p.as(user, dir, "sh", script)
	c.Env = append(c.Env, env...)
	read, write, err := os.Pipe()
	p.must(err)
	p.must(write.Chown(p.id(user), p.id(user))) // it can be opened again by its name
	c.Stdout, c.Stderr = write, write
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	p.must(c.Start())
	write.Close()
	printed := make(chan string)
	go func() {
		b, _ := io.ReadAll(read) // until the deadline, if something is left behind
		printed <- summed(b)
	}()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	context.AfterFunc(ctx, func() { syscall.Kill(-c.Process.Pid, syscall.SIGKILL) })
	c.Wait()
	p.killIn(dir)
	text := <-printed
	read.Close()
	return c.ProcessState, text
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
