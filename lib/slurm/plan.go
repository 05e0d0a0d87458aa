package slurm

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"distribute/lib/job"
)

// A plan is which jobs are submitted together, and how.
type plan struct {
	groups []*group
	at     []spot // of each job
	build  *settings
	notes  []string
}

type spot struct{ group, index int }

// A group are jobs of which all have the same options and wait for the same.
type group struct {
	settings
	jobs  []int
	limit int
	needs string
	depth int
	list  uint32
}

// settings are how jobs are submitted.
type settings struct {
	options []job.Option
	cpus    string // a number, or "tasks" or "node"
	memory  int64
	gpus    string
	ranks   int // that srun starts; 0: the job is one process
}

func (s *settings) words() string {
	list := make([]string, len(s.options))
	for i, o := range s.options {
		if list[i] = "--" + o.Name; o.Value != "" {
			list[i] += "=" + o.Value
		}
	}
	return words(list)
}

func (s *settings) key() string {
	return fmt.Sprintf("%s %d %s %d %s", s.cpus, s.memory, s.gpus, s.ranks, s.words())
}

// planOf groups the jobs of a batch.
func planOf(b *job.Batch) (*plan, error) {
	p := &plan{at: make([]spot, len(b.Jobs))}
	names, needs := make([]string, len(b.Jobs)), make([][]string, len(b.Jobs))
	for i := range b.Jobs {
		names[i], needs[i] = b.Jobs[i].Name, b.Jobs[i].Needs
	}
	lists, errs := job.ResolveNeeds(names, needs)
	if errs != nil {
		return nil, job.NeedErrors(errs)
	}
	said := map[string]bool{}
	note := func(format string, a ...any) {
		if s := fmt.Sprintf(format, a...); !said[s] {
			said[s] = true
			p.notes = append(p.notes, s)
		}
	}
	if len(b.Spec.Build) > 0 {
		s, err := settingsOf(b.Name, &b.Spec, &job.Job{}, note)
		if err != nil {
			return nil, err
		}
		p.build = &s
	}
	depth := depths(lists)
	groups := map[string]*group{}
	for i := range b.Jobs {
		s, err := settingsOf(b.Name, &b.Spec, &b.Jobs[i], note)
		if err != nil {
			return nil, fmt.Errorf("job %q: %w", names[i], err)
		}
		g := group{settings: s, limit: b.Spec.MaxRunning}
		if lists != nil && lists.Of[i] > 0 {
			g.list = lists.Of[i]
			g.depth = depth[g.list]
		}
		key := fmt.Sprintf("%d %s", g.list, s.key())
		if groups[key] == nil {
			groups[key] = &g
			p.groups = append(p.groups, &g)
		}
		groups[key].jobs = append(groups[key].jobs, i)
	}
	// What others need is submitted before them.
	slices.SortStableFunc(p.groups, func(a, b *group) int { return cmp.Compare(a.depth, b.depth) })
	for k, g := range p.groups {
		for n, i := range g.jobs {
			p.at[i] = spot{k, n}
		}
	}
	for _, g := range p.groups {
		if g.list > 0 {
			g.needs = p.ranges(lists.List(g.list))
		}
	}
	p.lost(&b.Spec, b.Jobs, note)
	return p, nil
}

// depths is how many lists of needs lead to each, one after another.
func depths(n *job.Needs) []int {
	if n == nil {
		return nil
	}
	d := make([]int, n.Lists()+1)
	var of func(k uint32) int
	of = func(k uint32) int {
		if k > 0 && d[k] == 0 {
			most := 0
			for _, i := range n.List(k) {
				most = max(most, of(n.Of[i]))
			}
			d[k] = most + 1
		}
		return d[k]
	}
	for k := range d {
		of(uint32(k))
	}
	return d
}

// ranges is jobs as submit.sh wants them: 0:3-7 1:0-9.
func (p *plan) ranges(jobs []uint32) string {
	at := make([]spot, len(jobs))
	for k, i := range jobs {
		at[k] = p.at[i]
	}
	slices.SortFunc(at, func(a, b spot) int { return cmp.Or(cmp.Compare(a.group, b.group), cmp.Compare(a.index, b.index)) })
	var out []string
	for k := 0; k < len(at); {
		end := k + 1
		for end < len(at) && at[end].group == at[k].group && at[end].index == at[end-1].index+1 {
			end++
		}
		out = append(out, fmt.Sprintf("%d:%d-%d", at[k].group, at[k].index, at[end-1].index))
		k = end
	}
	return strings.Join(out, " ")
}

// script is what submit.sh does.
func (p *plan) script() string {
	var b strings.Builder
	b.WriteString("# shellcheck shell=bash disable=SC2016\n# build CPUS MEMORY GPUS OPTION ...\n# group NUMBER JOBS LIMIT CPUS MEMORY GPUS RANKS NEEDS OPTION ...\n")
	if s := p.build; s != nil {
		fmt.Fprintf(&b, "build %s %d %s %s\n", s.cpus, s.memory, s.gpus, s.words())
	}
	for k, g := range p.groups {
		limit := ""
		if g.limit > 0 {
			limit = strconv.Itoa(g.limit)
		}
		fmt.Fprintf(&b, "group %d %d %s %s %d %s %d %s %s\n", k, len(g.jobs), quote(limit), g.cpus, g.memory, g.gpus, g.ranks, quote(g.needs), g.words())
	}
	return strings.ReplaceAll(b.String(), " \n", "\n")
}

// Options of sbatch that would break what the scripts rely on, each with why it is left out.
var ours = map[string]string{
	"array": "jobs are in arrays of d2slurm's own", "dependency": "jobs wait for the build and for what they need",
	"output": "what a job prints is in jobs/NAME/output.txt", "error": "what a job prints is in jobs/NAME/output.txt",
	"open-mode": "what a job prints is in jobs/NAME/output.txt", "input": "a job reads nothing",
	"chdir": "each job has a directory of its own", "wrap": "the batch says what runs", "container": "the scripts run outside of containers",
	"container-id": "the scripts run outside of containers", "parsable": "d2slurm reads the answer of sbatch",
	"quiet": "d2slurm reads the answer of sbatch", "verbose": "d2slurm reads the answer of sbatch", "test-only": "nothing would be submitted",
	"help": "nothing would be submitted", "usage": "nothing would be submitted", "version": "nothing would be submitted", "wait": "submit.sh does not wait",
	"kill-on-invalid-dep": "what needs a job that failed does not run", "ignore-pbs": "there is no script of PBS",
	"export-file": "a job gets nothing of who submits it", "clusters": "results are asked for on the cluster where the folder is",
}

// bare are the options of sbatch that have no value, or need none.
var bare = []string{"contiguous", "exclusive", "get-user-env", "hold", "nice", "no-kill", "no-requeue", "overcommit", "oversubscribe", "reboot",
	"requeue", "spread-job", "spread-segments", "consolidate-segments", "stepmgr", "use-min-nodes", "x11", "propagate"}

// opposite are those of them of which the one is said by "false" for the other.
var opposite = map[string]string{"requeue": "no-requeue", "no-requeue": "requeue"}

// wantsGPU is the capability of a batch, as of the original's users, that says no number of GPUs.
const wantsGPU = "gpu"

// asksGPUs reports whether a value of --gres or --tres-per-task names GPUs or parts of them, or none
// on purpose: gpu:a100:2, gres/gpu:1, none.
func asksGPUs(value string) bool {
	return slices.ContainsFunc(strings.Split(value, ","), func(g string) bool {
		name, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(g, "gres/"), "gres:"), ":")
		name, _, _ = strings.Cut(name, "=")
		return slices.Contains([]string{"gpu", "mps", "shard", "none"}, name)
	})
}

// settingsOf is how one job is submitted: the options of the batch, in their places
// those of the job, and what resources come to.
func settingsOf(name string, spec *job.Spec, j *job.Job, note func(string, ...any)) (s settings, err error) {
	for _, list := range [][]job.Option{spec.Slurm, j.Slurm} {
		for _, o := range list {
			if strings.ContainsAny(o.Value, "\n\r\x00") || o.Name == "" || strings.Trim(o.Name, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" || o.Name[0] == '-' {
				return s, fmt.Errorf("%q is no option of sbatch on one line", o.Name)
			}
			if why := ours[o.Name]; why != "" {
				note("slurm: %s is left out: %s", o.Name, why)
				continue
			}
			if slices.Contains(bare, o.Name) {
				other := opposite[o.Name]
				switch strings.ToLower(o.Value) {
				case "true", "yes", "on":
					o.Value = ""
				case "false", "no", "off":
					if other != "" {
						o.Name, other, o.Value = other, o.Name, ""
						break
					}
					s.options = slices.DeleteFunc(s.options, func(x job.Option) bool { return x.Name == o.Name })
					continue
				}
				s.options = slices.DeleteFunc(s.options, func(x job.Option) bool { return x.Name == other })
			} else if o.Value == "" {
				return s, fmt.Errorf("the option %q of sbatch has no value", o.Name)
			}
			if i := slices.IndexFunc(s.options, func(x job.Option) bool { return x.Name == o.Name }); i >= 0 {
				s.options[i] = o
			} else {
				s.options = append(s.options, o)
			}
		}
	}
	has := func(names ...string) bool {
		return slices.ContainsFunc(s.options, func(o job.Option) bool { return slices.Contains(names, o.Name) })
	}
	add := func(name, value string) { s.options = append(s.options, job.Option{Name: name, Value: value}) }
	r := spec.Resources
	if j.Resources != nil {
		r = *j.Resources
	}
	if err := r.Check(); err != nil {
		return s, err
	}
	s.cpus, s.memory, s.gpus, s.ranks = "node", r.Memory, strconv.Itoa(r.GPUs.Cards()), r.Ranks
	if r.Ranks > 0 {
		for _, o := range []string{"ntasks", "ntasks-per-node", "nodes", "cpus-per-task"} {
			if has(o) {
				return s, fmt.Errorf("%s: \"ranks\" and the option %q of sbatch exclude each other: take one out", name, o)
			}
		}
		add("nodes", "1")
		add("ntasks", strconv.Itoa(r.Ranks))
	}
	all := r.Together()
	clash := func(what string, names ...string) bool {
		if has(names...) {
			note("resources: %s is left out: slurm: says it", what)
			return true
		}
		return false
	}
	switch sized := r.Ranks == 0 && has("ntasks", "cpus-per-task", "ntasks-per-node", "exclusive", "oversubscribe", "mincpus", "cpus-per-gpu"); {
	case r.CPUs == 1 && sized && spec.Kind == job.Command: // which it need not have said
	case r.CPUs > 0 && !clash("cpus", "cpus-per-task", "cpus-per-gpu"):
		s.cpus = strconv.Itoa(r.CPUs)
		add("cpus-per-task", s.cpus)
	case r.CPUs == 0 && !sized:
		note("no cpus are said: each job gets a whole node (--exclusive); resources: {cpus: N} asks for less")
		add("exclusive", "")
	}
	if has("ntasks") && r.Ranks == 0 {
		s.cpus = "tasks"
	}
	if r.Memory > 0 && !clash("memory", "mem", "mem-per-cpu", "mem-per-gpu") {
		add("mem", strconv.FormatInt((all.Memory+1023)/1024, 10)+"K")
		if r.Grows {
			note("resources: memory with + is a limit on the cluster")
		}
	}
	ofGPUs := []string{"gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket"}
	for _, o := range s.options {
		if (o.Name == "gres" || o.Name == "tres-per-task") && asksGPUs(o.Value) {
			ofGPUs = append(ofGPUs, o.Name)
		}
	}
	addGPUs := func(n int) {
		gpus := "gpu:" + strconv.Itoa(n)
		if i := slices.IndexFunc(s.options, func(o job.Option) bool { return o.Name == "gres" }); i >= 0 {
			s.options[i].Value += "," + gpus // beside local disk, as nvme:100
			return
		}
		add("gres", gpus)
	}
	switch wants := slices.Contains(spec.Capabilities, wantsGPU) || slices.Contains(j.Capabilities, wantsGPU); {
	case r.GPUs > 0 && !clash("gpus", ofGPUs...):
		addGPUs(all.GPUs.Cards())
		if r.GPUs.Part() {
			note("resources: a part of a GPU is a whole one on the cluster")
		}
	case r.GPUs == 0 && wants && !has(ofGPUs...) && !has("exclusive"): // which has all GPUs of its node
		s.gpus = "1"
		addGPUs(1)
		note("capabilities: for gpu each job asks for one (--gres=gpu:1); resources: {gpus: N} or slurm: {gres: gpu:N} asks for others")
	}
	if r.Time > 0 && !clash("time", "time") {
		add("time", fmt.Sprintf("%d-%02d:%02d:%02d", r.Time/86400, r.Time/3600%24, r.Time/60%60, r.Time%60))
		if r.Time%60 != 0 {
			note("resources: a time of %ds is %dm on the cluster, which counts whole minutes", r.Time, (r.Time+59)/60)
		}
	}
	if r.Disk > 0 && !has("tmp") {
		note("resources: disk is left out: slurm: {tmp: SIZE} asks for local disk")
	}
	if len(r.Counted) > 0 {
		note("resources: what the site counts by name is left out: slurm: {licenses: NAME} asks for it there")
	}
	if slices.ContainsFunc(j.Capabilities, func(c string) bool { return c != wantsGPU }) {
		note("capabilities of jobs are left out: slurm: {constraint: NAME} asks for nodes")
	}
	if spec.Retry == job.Never && !has("requeue", "no-requeue") {
		add("no-requeue", "")
	}
	if !has("job-name") {
		add("job-name", name)
	}
	if !has("export") {
		add("export", "NONE")
	}
	return s, nil
}

// lost notes what of a batch no option of sbatch is.
func (p *plan) lost(spec *job.Spec, jobs []job.Job, note func(string, ...any)) {
	if left := slices.DeleteFunc(slices.Clone(spec.Capabilities), func(c string) bool { return c == wantsGPU }); len(left) > 0 {
		note("capabilities are left out (%s): slurm: {constraint: NAME} asks for nodes", strings.Join(left, ", "))
	}
	if spec.MaxRunning > 0 && len(p.groups) > 1 {
		note("max_running holds for each array alone: there are %d", len(p.groups))
	}
	retried := spec.Retries > 0 || slices.ContainsFunc(jobs, func(j job.Job) bool { return j.Retries != nil && *j.Retries > 0 })
	preferred := spec.Priority != 0 || slices.ContainsFunc(jobs, func(j job.Job) bool { return j.Priority != 0 })
	for _, k := range []struct {
		is   bool
		what string
	}{{retried, "retries"}, {spec.Canary > 0, "canary"}, {spec.StopAfter > 0, "stop_after"}, {preferred, "priority"}, {spec.Checkpoint != nil, "checkpoint"}} {
		if k.is {
			note("%s is left out: Slurm knows no such thing", k.what)
		}
	}
}

// byLength is paths with the shorter first.
func byLength(list []string) []string {
	out := slices.Clone(list)
	slices.SortStableFunc(out, func(a, b string) int { return cmp.Compare(len(a), len(b)) })
	return out
}
