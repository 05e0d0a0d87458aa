package batchfile

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"distribute/lib/conf"
	"distribute/lib/job"
	"distribute/lib/msg"
)

// The keys of a kind's section, of its initialize and of its jobs; and what
// is said of keys that belong to other kinds.
type kindKeys struct{ section, init, job conf.Keys }

var keysOf = map[string]kindKeys{
	job.Python: {
		section: sectionKeys,
		init: conf.Keys{Known: []string{"build_file", "required_files"}, Refused: map[string]string{
			"required_mounts": `"required_mounts" is for apptainer batches: a python job writes below distribute_save`,
			"sif":             `"sif" is for apptainer batches: a python batch has a "build_file"`,
			"build":           `"build" is for command batches: a python batch has a "build_file"`,
		}},
		job: conf.Keys{Known: []string{"name", "param", "file", "required_files", "needs", "retries", "priority", "capabilities", "resources", "slurm", "env"}, Refused: jobRefused(map[string]string{
			"run":     `"run" is for command batches: a python job has a "file"`,
			"outputs": `"outputs" is for command batches: what a python job writes below distribute_save comes home`,
		})},
	},
	job.Apptainer: {
		section: sectionKeys,
		init: conf.Keys{Known: []string{"sif", "run", "contain", "required_files", "required_mounts"}, Refused: map[string]string{
			"build_file": `"build_file" is for python batches: an apptainer batch runs what is in its "sif"`,
			"build":      `"build" is for command batches: an apptainer batch runs what is in its "sif"`,
			"image":      `write "sif" for "image", with the name of a .sif file`,
		}},
		job: conf.Keys{Known: []string{"name", "param", "run", "required_files", "needs", "retries", "priority", "capabilities", "resources", "slurm", "env"}, Refused: jobRefused(map[string]string{
			"file":    `"file" is for python batches: an apptainer job runs its image; list files that it reads in "required_files"`,
			"outputs": `"outputs" is for command batches: what an apptainer job writes to /distribute_save comes home`,
		})},
	},
	job.Command: {
		section: sectionKeys,
		init: conf.Keys{Known: []string{"build", "required_files"}, Refused: map[string]string{
			"required_mounts": `"required_mounts" is for apptainer batches: a command job writes in its own directory`,
			"build_file":      `"build_file" is for python batches: write "build" with a list, as in [make, -j4]`,
			"sif":             `"sif" is for apptainer batches`,
		}},
		job: conf.Keys{Known: []string{"name", "param", "run", "required_files", "needs", "retries", "priority", "capabilities", "resources", "slurm", "env", "outputs"}, Refused: jobRefused(map[string]string{
			"file": `"file" is for python batches: write "run" with a list, as in [python3, main.py]`,
		})},
	},
}

var sectionKeys = conf.Keys{Known: []string{"initialize", "jobs"}}

const (
	inResources    = `"ranks" is one of the resources: write resources: {ranks: N}`
	mpiInResources = `"mpi" is one of the resources: write resources: {ranks: N, mpi: true}`
)

// jobRefused adds to m the keys of jobs that dbatch(5) reserves.
func jobRefused(m map[string]string) map[string]string {
	for k, text := range notYet("notify") {
		m[k] = text
	}
	m["ranks"], m["mpi"] = inResources, mpiInResources
	m["sweep"] = `"sweep" is of the whole batch: write it at the top level, and {NAME} here`
	for _, k := range []string{"keep", "retry", "private", "max_running", "canary", "stop_after"} {
		m[k] = fmt.Sprintf("%q is of the whole batch: write it at the top level", k)
	}
	return m
}

// section reads what stands under the kind: how to make ready, and the jobs.
func (r *reader) section(n conf.Node) {
	keys := keysOf[r.f.Spec.Kind]
	m := n.Map(keys.section)
	init := m.Get("initialize")
	if r.f.Spec.Kind != job.Command {
		init = m.Need("initialize")
	}
	r.initialize(init.Map(keys.init))
	jobs := m.Need("jobs")
	r.f.jobsAt = jobs.Place()
	r.jobs(jobs.List("write a list, a job an entry"), keys.job)
}

func (r *reader) initialize(m conf.Map) {
	all := new(places)
	switch r.f.Spec.Kind {
	case job.Python:
		if w, ok := r.file(m.Need("build_file"), ""); ok {
			r.add(all, w)
			r.f.Spec.Build = []string{"python3", w.place()}
		}
	case job.Apptainer:
		r.f.image, _ = r.file(m.Need("sif"), "")
		r.notFilled(m.Get("run"), "run")
		r.f.run = r.words(m.Get("run"))
		if n := m.Get("contain"); !n.Absent() {
			r.f.Spec.Uncontained = !n.Bool()
		}
		r.mounts(m.Get("required_mounts"))
	case job.Command:
		if n := m.Get("build"); !n.Absent() {
			r.f.Spec.Build, r.f.buildAt = r.words(n), n.Place()
			r.f.words = r.f.Spec.Build
		}
	}
	for _, w := range r.files(all, m.Get("required_files")) {
		r.doc.Errorf(w.at, `only a file of a job can be filled: write it under "jobs"`)
	}
	r.f.wants = all.list
}

// mounts reads directories of the container that jobs write to.
func (r *reader) mounts(n conf.Node) {
	seen := map[string]bool{}
	for _, e := range n.List("write [/scratch]") {
		s := e.Text()
		clean := path.Clean(s)
		switch {
		case e.Absent():
			e.Errorf("a mount is empty: remove it")
			continue
		case !e.IsText():
			continue
		case seen[clean]:
			e.Errorf("mount %s is here twice: remove one", msg.Quote(s))
			continue
		case !strings.HasPrefix(s, "/"):
			clean = s
		}
		err := job.CheckMount(clean)
		if err == nil && len(r.f.Spec.Mounts) == job.MaxMounts {
			err = fmt.Errorf("is one too many: %d is the limit", job.MaxMounts)
		}
		if err != nil {
			e.Errorf("mount %s %v", msg.Quote(s), err)
		} else {
			seen[clean] = true
			r.f.Spec.Mounts = append(r.f.Spec.Mounts, clean)
		}
	}
}

func (r *reader) jobs(list []conf.Node, keys conf.Keys) {
	if len(list) > job.MaxJobs {
		list[job.MaxJobs].Errorf("the batch has %d jobs, and %d is the limit: split it", len(list), job.MaxJobs)
		list = list[:job.MaxJobs]
	}
	r.f.Jobs, r.f.jobWants = make([]job.Job, 0, len(list)), make([][]want, 0, len(list))
	r.f.jobAt = make([]conf.Place, 0, len(list))
	all := indexed(r.f.wants)
	names := make(map[string]int, len(list))
	r.f.jobMade = make([][]made, 0, len(list))
	for _, n := range list {
		if n.Absent() {
			n.Errorf("a job is empty: remove the entry")
			continue
		}
		if r.sweeps {
			if has, texts := r.hasPlaces(n); has {
				r.addSwept(n, texts, func(c conf.Node) { r.addJob(c, keys, all, names) })
				continue
			}
			n = n.Fill(r.isParam, func(_ string, _ conf.Node, text string) string {
				segs, _ := segments(text)
				return join(segs)
			})
		}
		r.addJob(n, keys, all, names)
	}
	if !slices.ContainsFunc(r.f.jobMade, func(m []made) bool { return m != nil }) {
		r.f.jobMade = nil
	}
	r.allNeeds()
}

// addJob reads a job. Its parameters are r.param, and what it says itself.
func (r *reader) addJob(n conf.Node, keys conf.Keys, all *places, names map[string]int) {
	j, wants, files := r.job(n.Map(keys), all)
	if first, ok := names[j.Name]; ok && j.Name != "" && r.param != nil && first == n.Place().Line {
		n.Errorf("two cases give the job %s: put all that differs into its name, as in {%s}, or {#}", msg.Quote(j.Name), strings.Join(r.names, "}_{"))
	} else if ok && j.Name != "" {
		n.Errorf("job %s is here twice (the first time in line %d): names in a batch differ", msg.Quote(j.Name), first)
	}
	names[j.Name] = n.Place().Line
	r.f.Jobs, r.f.jobWants, r.f.jobAt = append(r.f.Jobs, j), append(r.f.jobWants, wants), append(r.f.jobAt, n.Place())
	r.f.jobMade = append(r.f.jobMade, files)
}

func (r *reader) job(m conf.Map, batch *places) (j job.Job, wants []want, files []made) {
	own := &places{outer: batch}
	if r.param != nil && m.Get("name").Absent() {
		j.Name = safeName(strings.Join(r.param, "_"))
	} else {
		j.Name = r.name(m.Need("name"), job.CheckName)
	}
	j.Param = r.params(m.Get("param"))
	switch r.f.Spec.Kind {
	case job.Python:
		if w, ok := r.file(m.Need("file"), ""); ok {
			r.add(own, w)
			j.Run = []string{w.place()}
		}
	case job.Apptainer:
		if j.Run = r.words(m.Get("run")); j.Run == nil {
			j.Run = r.f.run
		}
	case job.Command:
		j.Run = r.words(m.Need("run"))
	}
	for _, w := range r.files(own, m.Get("required_files")) {
		if f, ok := r.fillFile(&w, &j); ok {
			files = append(files, f)
		}
	}
	r.ownOf(m, &j)
	return j, own.list, files
}

// ownOf reads what a job of any kind may say besides.
func (r *reader) ownOf(m conf.Map, j *job.Job) {
	j.Needs = r.needs(m.Get("needs"))
	j.Retries = r.retries(m.Get("retries"))
	j.Priority = int(m.Get("priority").Int(-job.MaxPriority, job.MaxPriority))
	j.Capabilities = r.capabilities(m.Get("capabilities"))
	if n := m.Get("resources"); !n.Absent() {
		res := r.resources(n, r.f.Spec.Resources)
		j.Resources = &res
		if err := r.f.Spec.CheckMPI(&res); err != nil {
			n.Errorf("%w", err)
		}
	}
	j.Slurm = r.slurm(m.Get("slurm"))
	j.Env = r.env(m.Get("env"))
	j.Outputs = r.outputs(m.Get("outputs"))
}

// outputs reads what comes home.
func (r *reader) outputs(n conf.Node) (list []string) {
	const remedy = "write a list: [results, '*.csv']"
	if n.Absent() {
		return nil
	}
	all := n.List(remedy)
	if n.IsList() && len(all) == 0 {
		n.Errorf("nothing would come home but what the job prints: leave it out if all is to, or %s", remedy)
	}
	for _, e := range all {
		s := path.Clean(e.Text())
		switch err := job.CheckOutput(s); {
		case e.Absent():
			e.Errorf("an entry of outputs is empty: remove it")
		case !e.IsText():
		case s == ".":
			e.Errorf(`that is all that the job leaves: leave "outputs" out`)
		case err != nil:
			e.Errorf("%w", err)
		case !r.older && hasBraces(s):
			e.Errorf("%s: braces are neither a place nor alternatives here: write an entry for each name, and [{] for a brace", msg.Quote(s))
		case !slices.Contains(list, s):
			list = append(list, s)
		}
	}
	if len(list) > job.MaxOutputs {
		n.Errorf("%d outputs, and %d is the limit", len(list), job.MaxOutputs)
	}
	return list
}

// hasBraces reports whether a pattern has text between braces, which stand for themselves only between brackets.
func hasBraces(pattern string) bool {
	for i, open := 0, false; i < len(pattern); i++ {
		switch pattern[i] {
		case '[':
			i += strings.IndexByte(pattern[i:], ']')
		case '{':
			open = true
		case '}':
			if open {
				return true
			}
		}
	}
	return false
}

// words reads a command as a list of words.
func (r *reader) words(n conf.Node) []string {
	const remedy = `write a list: [./solve, --n, "4"]`
	if n.Absent() {
		return nil
	}
	list := n.List(remedy)
	if n.IsList() && len(list) == 0 {
		n.Errorf("a command has at least one word: %s", remedy)
	}
	var words []string
	size := 0
	for i, e := range list {
		s := e.Text()
		switch {
		case e.Absent():
			e.Errorf("a word of the command is empty: quote it if it is meant as text")
		case !e.IsText():
		case i == 0 && s == "":
			e.Errorf("the first word of a command is the program: it must not be empty")
		case strings.ContainsRune(s, 0):
			e.Errorf("a word of the command has a zero byte")
		}
		words, size = append(words, s), size+len(s)+1
	}
	if size > job.MaxArgv {
		n.Errorf("the command has %d bytes, and %d is the limit: put what is long into a file", size, job.MaxArgv)
	}
	return words
}

// files reads a list of required files, and returns those that are to be filled.
func (r *reader) files(p *places, n conf.Node) (fills []want) {
	for _, e := range n.List("write a list, a file an entry: [{path: data/mesh.h5}]") {
		if e.Absent() {
			e.Errorf("an entry of required_files is empty: remove it")
			continue
		}
		switch w, ok := r.file(e, "input"); {
		case ok && w.fill:
			fills = append(fills, w)
		case ok:
			r.add(p, w)
		}
	}
	return fills
}

// file reads {path: …, alias: …}, or the path alone as older versions wrote it.
func (r *reader) file(n conf.Node, into string) (want, bool) {
	if n.Absent() {
		return want{}, false
	}
	w := want{at: n.Place(), into: into, many: into != ""}
	p, alias := n, conf.Node{}
	if !n.IsText() {
		m := n.Map(fileKeys)
		p, alias = m.Need("path"), m.Get("alias")
		fill := m.Get("fill")
		if w.fill = fill.Bool(); w.fill && into == "" {
			fill.Errorf(`"fill" is for required_files of jobs`)
		}
		if !m.Has() || p.Absent() || !p.IsText() {
			return want{}, false
		}
	}
	w.path, w.at = p.Text(), p.Place()
	if w.path == "" || strings.ContainsRune(w.path, 0) {
		p.Errorf("a path is empty, or has a zero byte")
		return want{}, false
	}
	if !alias.Absent() {
		if !alias.IsText() {
			alias.Text()
			return want{}, false
		}
		w.alias = path.Clean(alias.Text())
		if err := checkAlias(alias.Text()); err != nil {
			alias.Errorf("%v", err)
			return want{}, false
		}
	} else if name, ok := strings.CutSuffix(path.Base(w.source()), suffix); w.fill && ok {
		w.alias = name
	} else if w.fill {
		p.Errorf("%s is to be filled, and its name does not end in %s: give it an alias", msg.Quote(w.path), suffix)
		return want{}, false
	}
	if err := w.check(); err != nil {
		p.Errorf("%v", err)
		return want{}, false
	}
	return w, true
}

func checkAlias(s string) error {
	if s == "" || path.Clean(s) == "." {
		return fmt.Errorf("alias %s is empty: write the name under which the job finds the file", msg.Quote(s))
	}
	if err := job.CheckPath(path.Clean(s)); err != nil {
		return fmt.Errorf("alias %s %w: write a plain name", msg.Quote(s), err)
	}
	return nil
}

// add takes a wanted file into the list, unless its place is taken.
func (r *reader) add(p *places, w want) {
	if old := p.add(w); old != nil {
		r.doc.Errorf(w.at, "%s would lie at %s, where %s of line %d lies: give one of them another alias",
			msg.Quote(w.path), msg.Quote(w.place()), msg.Quote(old.path), old.at.Line)
	}
}
