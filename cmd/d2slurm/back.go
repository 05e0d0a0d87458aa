package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"distribute/lib/ask"
	"distribute/lib/cli"
	"distribute/lib/dial"
	"distribute/lib/job"
	"distribute/lib/node"
	"distribute/lib/noded"
	"distribute/lib/pack"
	"distribute/lib/slurm"
	"distribute/lib/unit"
	"distribute/lib/wire"
)

// A back brings home what became of the jobs of a folder.
type back struct {
	c       *cli.Cmd
	head    string
	name    string // of the cluster; "": as the folder says
	batch   string // the head is to know the batch by this name; "": as the folder says
	renamed bool   // just now: it does not
	dry     bool
	claim   bool // take the jobs of the folder that wait at home
	kill    bool // cancel in Slurm what nobody wants
	giveUp  bool // give the jobs that have not ended back to the head
	silent  bool // print nothing, and note in given what was given back
	given   map[job.ID]bool

	p         *place
	folder    *slurm.Folder
	submitted *slurm.Submitted
	records   *slurm.Records
	inputs    bool              // those of the folder are here
	status    map[string][]byte // of status files, and of what says that all is built, by their names
	problems  []error
	cancel    []string // what is to be cancelled in Slurm
}

// A work is one attempt on the cluster, of which the head is to be told.
type work struct {
	wire.Claimed
	job  *slurm.FolderJob
	fate slurm.Fate
	say  *job.Result // how it ended; nil: it has not
	left bool        // and it has left a result

	done    bool // the head has what it wants of it
	refused bool // the head does not take it
}

// run brings back what is to be had now, from the folder that the operand names.
func (b *back) run(ctx context.Context) (err error) {
	if len(b.c.Args) != 1 {
		return cli.Usagef("-r takes one folder, %d operands were given", len(b.c.Args))
	}
	if b.p, err = placeOf(ctx, b.c, b.c.Args[0]); err != nil {
		return err
	}
	if b.folder, b.submitted, err = b.p.readFolder(ctx); err != nil {
		return err
	}
	for _, odd := range b.submitted.Odd {
		b.c.Talk("%s, and is passed over", odd)
	}
	if b.name == "" {
		b.name = b.folder.Name
	}
	if b.batch != "" {
		if err := b.rename(ctx); err != nil {
			return err
		}
	}
	h, fresh, err := b.dial(ctx)
	if err != nil {
		return err
	}
	defer h.Close()
	if (b.claim || fresh) && !b.dry {
		if err = b.take(ctx, h); err == nil && fresh {
			err = b.mark(ctx, "")
		}
		if err != nil {
			return err
		}
	}
	works, err := b.works(ctx, h)
	if err != nil {
		return err
	}
	told := map[string]bool{}
	if !b.silent {
		if told, err = b.been(); err != nil {
			return err
		}
	}
	var none error
	if len(works) == 0 && !b.silent && !fresh {
		none = b.nothing(len(told))
	}
	if err := b.look(ctx, works); err != nil {
		return err
	}
	if err := b.hold(ctx, works); err != nil {
		return err
	}
	b.judge(works, told)
	if !b.dry && !b.silent { // else the folder goes, and its disk may be full
		err = b.note(ctx, works, told)
	}
	if !b.dry {
		err = errors.Join(err, b.bring(ctx, h.Addr, works))
	}
	if b.silent {
		b.given = map[job.ID]bool{}
		for _, w := range works {
			if b.given[w.Job] = w.done; !w.done && err == nil {
				err = fmt.Errorf("the head does not take %s back", w.Job)
			}
		}
		return err
	}
	if err == nil && !b.dry && !slices.ContainsFunc(works, func(w *work) bool { return !w.done }) {
		err = b.dropSecrets(ctx, works, told)
		b.p.dropAll()
	}
	return errors.Join(err, b.report(ctx, works, told), none)
}

// dropSecrets removes the values of secrets from the folder, if no job of it needs them any more: all
// have come home, or were given back.
func (b *back) dropSecrets(ctx context.Context, works []*work, told map[string]bool) error {
	home := maps.Clone(told)
	for _, w := range works {
		home[w.job.Job] = true
	}
	if !b.folder.Secrets || !b.giveUp && len(home) < len(b.folder.Jobs) {
		return nil
	}
	_, err := b.p.shell(ctx, "[ ! -w . ] || rm -f "+slurm.SecretsFile+"\n")
	return err
}

// nothing returns why the head expects nothing of the folder, of which so many jobs have come home. It
// is an error if the others never can; -b brings all of a folder or none.
func (b *back) nothing(told int) error {
	left := len(b.folder.Jobs) - told
	if left <= 0 {
		b.c.Talk("all of %q has come home already, or was given up", b.c.Args[0])
		return nil
	}
	never := fmt.Sprintf("the head expects nothing of %q: %s never taken to the cluster in it", b.c.Args[0], unit.Count(left, "job"))
	switch {
	case b.claim && told > 0:
		return cli.Errorf(cli.No, "%s, and none waits at home", never)
	case b.claim:
		return cli.Errorf(cli.No, "%s, and none waits at home (-b brings them as another batch)", never)
	case told > 0:
		return cli.Errorf(cli.No, "%s (-C takes those that still wait at home)", never)
	}
	return cli.Errorf(cli.No, "%s (-C takes those that still wait at home; -b brings all as another batch)", never)
}

// rename has the head know the batch of the folder by another name from now on, as where it has
// one of the same name, of which no job was taken in this folder.
func (b *back) rename(ctx context.Context) error {
	id, err := job.NameBatch(b.folder.Batch.Namespace(), b.batch)
	switch {
	case err != nil:
		return cli.Errorf(cli.Input, "-b: %w", err)
	case id == b.folder.Batch:
		return nil
	}
	told, err := b.been()
	if err != nil {
		return err
	}
	h, err := ask.Dial(ctx, b.c, b.head)
	if err != nil {
		return err
	}
	defer h.Close()
	taken := len(told)
	if err := h.Claims(ctx, string(node.Abroad(b.name)), b.folder.ID, func(*wire.Claimed) error { taken++; return nil }); err != nil {
		return h.Failed(ctx, err)
	}
	if taken > 0 {
		return cli.Errorf(cli.Input, "-b: the head has taken jobs of this folder as %s", b.folder.Batch)
	}
	if known, err := knows(ctx, h, id); err != nil {
		return h.Failed(ctx, err)
	} else if known {
		return cli.Errorf(cli.Input, "-b: the head has a batch %s: name another", id)
	}
	if !b.dry {
		if _, err := b.p.shell(ctx, "echo '"+string(id)+"' >"+slurm.NamedFile+" && rm -f "+slurm.KnownFile+"\n"); err != nil {
			return err
		}
	}
	b.folder.Batch, b.renamed = id, true
	return nil
}

// take has the head take the jobs of the folder for those of the cluster, as far as they
// are queued or held.
func (b *back) take(ctx context.Context, h *ask.Head) error {
	been, err := b.been()
	if err != nil {
		return err
	}
	ops, n := &ask.Operands{}, 0
	for i := range b.folder.Jobs {
		if name := b.folder.Jobs[i].Job; !been[name] {
			ops.Args = append(ops.Args, string(b.folder.Batch.Job(name)))
		}
	}
	if len(been) > 0 {
		b.c.Talk("%s left that have come home from this folder: another folder takes those that wait again (d2slurm -o)", unit.Count(len(b.folder.Jobs)-len(ops.Args), "job"))
	}
	if len(ops.Args) == 0 {
		return nil
	}
	err = h.Claim(ctx, string(node.Abroad(b.name)), b.folder.ID, ops, func(*wire.Claimed) error { n++; return nil })
	if err == nil && n < len(ops.Args) && !b.silent {
		b.c.Talk("%d of %d jobs are not for the cluster: they are over, run at home, or wait for others", len(ops.Args)-n, len(ops.Args))
	}
	return err
}

// note notes the jobs of which the head will be told what became of them, before it is told: its answer
// may be lost. What the folder has of them is not what becomes of them the next time. A job that the
// head still expects is told of again, noted or not. In a folder of another user nothing is noted.
func (b *back) note(ctx context.Context, works []*work, told map[string]bool) error {
	var names []string
	for _, w := range works {
		if w.say != nil && !told[w.job.Job] {
			names = append(names, w.job.Job)
		}
	}
	if len(names) == 0 {
		return nil
	}
	_, err := b.p.shell(ctx, "[ -w . ] || exit 0\ncat >>"+slurm.HomeFile+" <<'/'\n"+strings.Join(names, "\n")+"\n/\n")
	return err
}

// been returns the jobs of whose end the head was told before.
func (b *back) been() (map[string]bool, error) {
	names := map[string]bool{}
	text, err := b.p.read(slurm.HomeFile, maxList)
	for l := range strings.Lines(string(text)) {
		names[strings.TrimSuffix(l, "\n")] = true
	}
	return names, err
}

// works is what the head still expects of the folder.
func (b *back) works(ctx context.Context, h *ask.Head) ([]*work, error) {
	jobs := make(map[job.ID]*slurm.FolderJob, len(b.folder.Jobs))
	for i := range b.folder.Jobs {
		jobs[b.folder.Batch.Job(b.folder.Jobs[i].Job)] = &b.folder.Jobs[i]
	}
	var works []*work
	err := h.Claims(ctx, string(node.Abroad(b.name)), b.folder.ID, func(c *wire.Claimed) error {
		if j := jobs[c.Job]; j != nil {
			works = append(works, &work{Claimed: *c, job: j})
		} else {
			b.problems = append(b.problems, fmt.Errorf("%s was taken to the cluster in this folder, whose list does not have it", c.Job))
		}
		return nil
	})
	return works, err
}

// look reads what Slurm and the jobs say.
func (b *back) look(ctx context.Context, works []*work) error {
	b.records, b.status = slurm.ReadRecords("", nil), map[string][]byte{}
	of := map[int64]bool{}
	if b.kill {
		of = b.submitted.IDs()
	}
	if b.submitted.Build != 0 && (b.kill || len(works) > 0) {
		of[b.submitted.Build] = true
	}
	if len(works) == 0 && len(of) == 0 {
		return nil
	}
	names := make([]string, 0, len(works))
	for _, w := range works {
		names = append(names, statusOf(w.job))
		if t, ok := b.submitted.Of(w.job); ok {
			of[t.Job] = true
		}
	}
	// Slurm is asked first: what ends in between has written its status by then.
	if len(of) > 0 {
		ids := make([]int64, 0, len(of))
		for id := range of {
			ids = append(ids, id)
		}
		slices.Sort(ids)
		text, err := b.p.shell(ctx, slurm.Ask(ids))
		if err != nil {
			return err
		}
		b.records = slurm.ReadRecords(text, of)
		if !b.records.Accounted && !b.records.Known {
			b.problems = append(b.problems, errors.New("no answer of Slurm (neither sacct nor scontrol): only what has written its status is known"))
		}
	}
	// A status that cannot be read keeps no other job from coming home.
	if err := b.p.copy(ctx, append(names, slurm.BuiltFile)); errors.Is(err, errPartial) {
		b.problems = append(b.problems, err)
	} else if err != nil {
		return err
	}
	for _, name := range append(names, slurm.BuiltFile) {
		text, err := b.p.read(name, slurm.MaxStatus)
		if err != nil {
			b.problems = append(b.problems, err)
		}
		b.status[name] = text
	}
	return ctx.Err()
}

// hold has Slurm hold the tasks that wait and are to be given back, and asks it again how all stand: one
// that began after the first answer would be given back as if it had not begun. Slurm may hold a task and
// not say so in time.
func (b *back) hold(ctx context.Context, works []*work) error {
	if !b.giveUp || b.dry || !b.records.Known { // else each task would wait for its controller
		return nil
	}
	var tasks []string
	for _, w := range works {
		if f := slurm.FateOf(w.job, b.submitted, b.records, b.status[statusOf(w.job)]); f.Stand == slurm.Waiting {
			tasks = append(tasks, f.Task.String())
		}
	}
	if len(tasks) == 0 {
		return nil
	}
	for some := range slices.Chunk(tasks, 500) {
		if _, err := b.p.shell(ctx, "scontrol hold "+strings.Join(some, ",")+" >&2 || :\n"); err != nil {
			return err
		}
	}
	return b.look(ctx, works)
}

func statusOf(j *slurm.FolderJob) string { return path.Join(j.Dir, slurm.StatusFile) }

// judge finds out what has become of each work, and what the head is told. What it was
// told of before, and Slurm still has, is to be cancelled.
func (b *back) judge(works []*work, told map[string]bool) {
	unbuilt, why := b.submitted.Build != 0 && b.status[slurm.BuiltFile] == nil, slurm.NotBuilt(b.submitted, b.records)
	for _, w := range works {
		w.fate = slurm.FateOf(w.job, b.submitted, b.records, b.status[statusOf(w.job)])
		f := &w.fate
		if f.Wrong != nil {
			b.problems = append(b.problems, fmt.Errorf("%s: %s: %w", w.Job, statusOf(w.job), f.Wrong))
		}
		switch {
		case w.Void:
			w.say = &job.Result{Fate: job.FateUnstarted, Outcome: job.Outcome{Reason: "nobody wants it any more"}}
		case f.Stand == slurm.Ended:
			w.say, w.left = &job.Result{Outcome: f.Outcome}, true
		case f.Stand == slurm.Unmet && unbuilt && why != "":
			w.say = &job.Result{Fate: job.FateUnstarted, Outcome: job.Outcome{Reason: why}}
		case f.Stand == slurm.Unmet && unbuilt:
			f.Stand, w.say = slurm.Ended, &job.Result{Outcome: job.Outcome{Reason: "the build failed on the cluster (build_output.txt)"}}
		case f.Stand == slurm.Unmet:
			w.say = &job.Result{Fate: job.FateUnstarted, Outcome: job.Outcome{Reason: "what it needs did not end well on the cluster"}}
		case f.Stand == slurm.Unbegun:
			w.say = &job.Result{Fate: job.FateUnstarted, Outcome: f.Outcome}
		case f.Stand == slurm.Lost:
			w.say = &job.Result{Fate: job.FateLost, Outcome: f.Outcome}
		case b.giveUp && (f.Stand == slurm.Waiting && (f.Held || b.dry) || f.Stand == slurm.Unsubmitted):
			w.say = &job.Result{Fate: job.FateUnstarted, Outcome: job.Outcome{Reason: "given back from the cluster"}}
		case b.giveUp:
			w.say = &job.Result{Fate: job.FateLost, Outcome: job.Outcome{Reason: "given back from the cluster"}}
		}
	}
	expected := make(map[string]bool, len(works))
	for _, w := range works {
		expected[w.job.Job] = true
	}
	for i := range b.folder.Jobs {
		// What was told has come home, or nobody wants it: not what was never taken, as of
		// another head, or by another name.
		if j := &b.folder.Jobs[i]; b.kill && told[j.Job] && !expected[j.Job] {
			if f := slurm.FateOf(j, b.submitted, b.records, nil); f.Goes() {
				b.cancel = append(b.cancel, f.Task.String())
			}
		}
	}
}

// bring tells the head of those that wait there or run, and of those that have ended with what they
// left. It returns when the head has all that it wants.
func (b *back) bring(ctx context.Context, addr string, works []*work) error {
	if len(works) == 0 {
		return nil
	}
	var dirs []string
	for _, w := range works {
		if w.left {
			dirs = append(dirs, w.job.Dir)
		}
	}
	bad := map[string]error{}
	if err := b.p.bring(ctx, dirs, bad); err != nil {
		return err
	}
	built, err := b.builtFiles(ctx, works)
	if err != nil {
		return err
	}
	var all []*noded.Ran
	for _, w := range works {
		r := &noded.Ran{Attempt: w.Attempt, Result: w.say, For: w.fate.Ran, Waits: w.fate.Stand == slurm.Waiting, Over: func(have bool) {
			if w.done, w.refused = have, !have; have {
				b.p.drop(w.job.Dir)
			}
		}}
		switch {
		case w.left && bad[w.job.Dir] != nil, w.say == nil && !w.fate.Goes():
			continue
		case w.left:
			var alone []string
			var times []int64
			if !w.fate.Cleared {
				alone, times = b.leftAlone(ctx, w.job.Dir, built)
			}
			r.Left = &noded.Left{Job: w.job.Job, Open: func() (*os.Root, error) { return b.p.open(w.job.Dir) }, Printed: w.job.Printed(),
				Kind: b.folder.Kind, Outputs: w.job.Outputs, Inputs: append(alone, w.job.Inputs...), MTimes: append(times, w.job.MTimes...),
				Started: w.fate.Outcome.Started, Cleared: w.fate.Cleared}
		}
		all = append(all, r)
	}
	terms := dial.Terms{Sharing: dial.SharingDirs(b.c.Getenv)}
	err = noded.Tell(ctx, noded.Settings{Addr: addr, Terms: terms, Name: node.Abroad(b.name), Batch: b.folder.Batch}, all)
	switch {
	case errors.Is(err, noded.ErrStuck):
		err = cli.Errorf(cli.Later, "%w: what is left is for the next time", err)
	case errors.Is(err, noded.ErrLost):
		err = cli.Errorf(cli.Unreachable, "%w: what is left is for the next time", err)
	case errors.Is(err, pack.ErrChanged):
		err = cli.Errorf(cli.Later, "what a job left was changed while it was read (try again): %w", err)
	}
	for _, dir := range slices.Sorted(maps.Keys(bad)) {
		err = errors.Join(err, cli.Errorf(cli.IO, "%w", bad[dir]))
	}
	return err
}

// A builtFile is a file that the build has made.
type builtFile struct {
	path string
	time int64 // nanoseconds since 1970
	size int64
	sum  string // SHA-256 of its content, in hexadecimal
}

// builtFiles returns the files that the build has made, if a job was killed before its script had
// removed those that it left alone.
func (b *back) builtFiles(ctx context.Context, works []*work) (files []builtFile, err error) {
	if b.submitted.Build == 0 || !slices.ContainsFunc(works, func(w *work) bool { return w.left && !w.fate.Cleared }) {
		return nil, nil
	}
	text, err := b.p.shell(ctx, "[ ! -d build ] || { cd build && find . '(' -type l -o -type f ')' -printf '%T@ %s %P\\0' && find . -type f -exec sha256sum -- {} +; } || :\n")
	list, lines := text[:strings.LastIndexByte(text, 0)+1], text[strings.LastIndexByte(text, 0)+1:]
	sums := map[string]string{}
	for l := range strings.Lines(lines) {
		if sum, name, ok := strings.Cut(strings.TrimSuffix(l, "\n"), "  ./"); ok {
			sums[name] = sum
		}
	}
	for entry := range strings.SplitSeq(list, "\x00") {
		words := strings.SplitN(entry, " ", 3)
		if len(words) < 3 {
			continue
		}
		seconds, fraction, _ := strings.Cut(words[0], ".")
		at, err1 := strconv.ParseInt(seconds+(fraction + "000000000")[:9], 10, 64)
		size, err2 := strconv.ParseInt(words[1], 10, 64)
		if err1 == nil && err2 == nil && filepath.IsLocal(words[2]) {
			files = append(files, builtFile{words[2], at, size, sums[words[2]]})
		}
	}
	return files, err
}

// leftAlone returns the paths and the times of those files that a job has left as they were.
func (b *back) leftAlone(ctx context.Context, dir string, files []builtFile) (paths []string, times []int64) {
	root, err := b.p.open(path.Join(dir, slurm.WorkDir))
	if err != nil {
		return nil, nil // it comes home as it is
	}
	defer root.Close()
	for _, f := range files {
		if ctx.Err() != nil {
			break
		}
		if info, err := root.Lstat(f.path); err == nil && info.ModTime().UnixNano() == f.time && info.Size() == f.size && f.same(root, info) {
			paths, times = append(paths, f.path), append(times, f.time)
		}
	}
	return paths, times
}

// same reports whether a file has the content that the build gave it. A job may have put another one
// there with its time, as cp -p does. A link has none.
func (f *builtFile) same(root *os.Root, info os.FileInfo) bool {
	if info.Mode().Type() == os.ModeSymlink {
		return f.sum == ""
	}
	if !info.Mode().IsRegular() {
		return false
	}
	file, err := root.Open(f.path)
	if err != nil {
		return false
	}
	defer file.Close()
	sum := sha256.New()
	_, err = io.Copy(sum, file)
	return err == nil && hex.EncodeToString(sum.Sum(nil)) == f.sum
}

// report prints the ids of the jobs whose results are home, and tells of the others.
func (b *back) report(ctx context.Context, works []*work, told map[string]bool) error {
	out := bufio.NewWriter(b.c.Stdout)
	n := map[string]int{}
	for _, w := range works {
		f := w.fate.Stand
		// Before the head has it back it would come home as cancelled on the cluster.
		if w.fate.Goes() && b.finished(w) {
			b.cancel = append(b.cancel, w.fate.Task.String())
		}
		switch {
		case w.refused:
			b.problems = append(b.problems, fmt.Errorf("%s: the head does not take its result", w.Job))
		case w.Void:
			n["not wanted any more"]++
		case f == slurm.Ended && (w.done || b.dry):
			fmt.Fprintln(out, w.Job)
		case f == slurm.Unmet && (w.done || b.dry):
			n["not to run there: what they need did not end well"]++
		case f == slurm.Unbegun && (w.done || b.dry):
			n["back in the queue at home, as they could not begin there (slurm/ says why)"]++
		case w.say != nil && w.say.Fate == job.FateLost && (w.done || b.dry): // by "retry: never" it has failed
			n["given back to the head"]++
		case w.say != nil && (w.done || b.dry):
			n["back in the queue at home"]++
		case f == slurm.Waiting && w.fate.Held:
			n["held in Slurm (scontrol release there has them begin, -x gives them back)"]++
		case w.say != nil:
			n["to be brought yet"]++
		case f == slurm.Waiting:
			n["in the queue there"]++
		case f == slurm.Running:
			n["running there"]++
		case f == slurm.Unsubmitted:
			n["not submitted yet"]++
		case f == slurm.Unwritten:
			n["ended there without a status file"]++
		case f == slurm.Runaway:
			n["running by Slurm's accounting, and unknown to its controller"]++
		default:
			n["unknown to Slurm"]++
		}
	}
	if b.kill && slurm.Builds(b.submitted, b.records) && !b.awaited(works, told) {
		b.cancel = append(b.cancel, slurm.TaskID{Job: b.submitted.Build, Task: -1}.String())
	}
	err := out.Flush()
	for _, what := range []string{"in the queue there", "running there", "not submitted yet", "held in Slurm (scontrol release there has them begin, -x gives them back)", "to be brought yet", "not to run there: what they need did not end well", "back in the queue at home",
		"back in the queue at home, as they could not begin there (slurm/ says why)", "given back to the head", "not wanted any more",
		"ended there without a status file", "running by Slurm's accounting, and unknown to its controller", "unknown to Slurm"} {
		if n[what] > 0 {
			b.c.Talk("%d %s", n[what], what)
		}
	}
	if n["ended there without a status file"]+n["running by Slurm's accounting, and unknown to its controller"]+n["unknown to Slurm"] > 0 {
		b.c.Talk("d2slurm -r -x gives what Slurm has lost back to the head, with all else that has not ended")
	}
	if len(b.problems) > 0 {
		return errors.Join(err, b.scancel(ctx), cli.Errorf(cli.Input, "%w", errors.Join(b.problems...)))
	}
	return errors.Join(err, b.scancel(ctx))
}

// finished reports whether the head waits no longer for an attempt on the cluster.
func (b *back) finished(w *work) bool { return w.say != nil && (w.done || w.refused || b.dry) }

// awaited reports whether a job of the folder may still need the build: also one that was never taken,
// as of another head.
func (b *back) awaited(works []*work, told map[string]bool) bool {
	expected := make(map[string]bool, len(works))
	for _, w := range works {
		if expected[w.job.Job] = true; !b.finished(w) {
			return true
		}
	}
	return slices.ContainsFunc(b.folder.Jobs, func(j slurm.FolderJob) bool { return !expected[j.Job] && !told[j.Job] })
}

// scancel has Slurm cancel what nobody wants, or says which tasks these are.
func (b *back) scancel(ctx context.Context) error {
	switch {
	case len(b.cancel) == 0:
		return nil
	case !b.kill || b.dry:
		b.c.Talk("nobody waits for these on the cluster: scancel %s", strings.Join(b.cancel, " "))
		return nil
	}
	for some := range slices.Chunk(b.cancel, 500) {
		if _, err := b.p.shell(ctx, "scancel "+strings.Join(some, " ")+"\n"); err != nil {
			return err
		}
	}
	b.c.Talk("cancelled in Slurm: %d", len(b.cancel))
	return nil
}
