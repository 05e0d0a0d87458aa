package batchfile

import (
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"distribute/lib/capability"
	"distribute/lib/conf"
	"distribute/lib/job"
	"distribute/lib/msg"
	"distribute/lib/sweep"
	"distribute/lib/unit"
)

// A File is a batch as a person wrote it, in a batch file (dbatch(5)) or as a
// command with lines ([Template]): all that can be known without looking at the
// files that it names. [File.Collect] looks at them.
type File struct {
	Path      string // of the batch file, as it was given
	Data      []byte // the file, byte for byte
	Namespace string
	Name      string    // of the batch
	Spec      job.Spec  // without Inputs and Image
	Jobs      []job.Job // without Inputs; none is legal in a file, and refused by Collect
	Note      string    // what else is to be said, of parameters that lines have and jobs do not; "": nothing

	dir      string   // what relative paths are relative to
	image    want     // of an apptainer batch
	run      []string // of those of its jobs that say none
	wants    []want   // of the batch
	jobWants [][]want // of each job
	jobMade  [][]made // files that were made for each job; nil: none
	madeAt   map[string]bool
	words    []string // of a command that all jobs share, which may name files
	unkept   int      // lines that Note tells of
	jobAt    []conf.Place
	needAt   map[int][]conf.Place // of the needs of jobs
	jobsAt   conf.Place
	secretAt map[string]conf.Place // of the names of secrets
	buildAt  conf.Place
}

// ID is the batch's namespace/name.
func (f *File) ID() job.BatchID { return job.NewBatchID(f.Namespace, f.Name) }

// ReadFile reads and checks the batch file of that name. The error holds every
// mistake that can be found without looking at other files, each a
// [*conf.Mistake] with its place, joined by errors.Join; a file that cannot be
// read is a [*fs.PathError]. It costs about a second for each 100,000 jobs.
func ReadFile(name string) (*File, error) { return readFile(name, false) }

// ReadOlder is [ReadFile] where the batch may be there already: of an older version it may have
// "=" in its name, and places where nothing is filled.
func ReadOlder(name string) (*File, error) { return readFile(name, true) }

func readFile(name string, older bool) (*File, error) {
	data, err := conf.ReadFile(name)
	if err != nil {
		return nil, err
	}
	return parseFile(name, data, older)
}

// ParseFile is [ReadFile] of a file whose content is at hand. Relative paths
// in it are relative to the directory of name.
func ParseFile(name string, data []byte) (*File, error) {
	return parseFile(name, data, false)
}

func parseFile(name string, data []byte, older bool) (*File, error) {
	doc, err := conf.Parse(name, data)
	if err != nil {
		return nil, err
	}
	r := reader{doc: doc, older: older, f: &File{Path: name, Data: data, dir: filepath.Dir(name)}}
	r.batch()
	if err := doc.Err(); err != nil {
		return nil, err
	}
	return r.f, nil
}

// Choose leaves those jobs in the batch that lines name: the first field of each, where
// fields end with a TAB, is the id of a job or of an attempt, or the name alone. It
// returns how many different jobs are named; the error tells of each that the file lacks.
func (f *File) Choose(lines []string) (named int, err error) {
	want, has, there := map[string]bool{}, f.names(), map[string]bool{}
	for _, name := range has {
		there[name] = true
	}
	var missing []error
	for _, l := range lines {
		id, _, _ := strings.Cut(l, "\t")
		name, _, _ := strings.Cut(path.Base(id), "~")
		if id == "" || want[name] {
			continue
		}
		if want[name] = true; !there[name] {
			some := strings.Join(has[:min(3, len(has))], ", ")
			if more := len(has) - 3; more > 0 {
				some += fmt.Sprintf(" and %d more", more)
			}
			missing = append(missing, fmt.Errorf("%s has no job %q: it has %s", f.Path, name, some))
		}
	}
	f.Only(func(name string) bool { return want[name] })
	return len(want), errors.Join(missing...)
}

// Only leaves those jobs in the batch whose names keep wants, in their order.
// Files that only the others name are not looked at by Collect, and the others
// are not waited for.
func (f *File) Only(keep func(name string) bool) {
	n := 0
	for i := range f.Jobs {
		if keep(f.Jobs[i].Name) {
			f.Jobs[n], f.jobWants[n], f.jobAt[n] = f.Jobs[i], f.jobWants[i], f.jobAt[i]
			if f.jobMade != nil {
				f.jobMade[n] = f.jobMade[i]
			}
			n++
		}
	}
	if f.jobMade != nil {
		f.jobMade, f.madeAt = f.jobMade[:n], nil
	}
	f.Jobs, f.jobWants, f.jobAt = f.Jobs[:n], f.jobWants[:n], f.jobAt[:n]
	f.forgetNeeds()
}

// sort sorts the jobs that were made of lines; those that compare equal stay as they
// are.
func (f *File) sort(compare func(i, k int) int) {
	order := make([]int, len(f.Jobs))
	for i := range order {
		order[i] = i
	}
	if slices.IsSortedFunc(order, compare) {
		return
	}
	slices.SortStableFunc(order, compare)
	f.Jobs, f.jobWants, f.jobAt = sorted(f.Jobs, order), sorted(f.jobWants, order), sorted(f.jobAt, order)
	f.jobMade = sorted(f.jobMade, order)
}

func sorted[T any](list []T, order []int) []T {
	if list == nil {
		return nil
	}
	out := make([]T, len(order))
	for i, k := range order {
		out[i] = list[k]
	}
	return out
}

// A reader walks a batch file and fills a File.
type reader struct {
	doc  *conf.Doc
	f    *File
	kind string // as it is written: "singularity" for old files

	older bool // the batch may be of an older version

	sweeps    bool               // the batch has a sweep
	cases     *sweep.Sweep       // nil: it has none, or one that is wrong
	names     []string           // of its parameters
	param     []string           // of the case of which a job is made
	number    int                // of that case, from 1
	swept     bool               // some job is made of each case
	templates map[string]*fileOf // that were read, by their paths
	size      sizes              // of what was made of them
}

// notYet are the messages for keys that dbatch(5) reserves.
func notYet(keys ...string) map[string]string {
	m := make(map[string]string, len(keys))
	for _, k := range keys {
		m[k] = fmt.Sprintf("%q is not supported by this version: remove it", k)
	}
	return m
}

var (
	topKeys = conf.Keys{
		Known: []string{"meta", "python", "apptainer", "command", "resources", "slurm", "keep", "retry", "private", "checkpoint", "priority", "max_running",
			"canary", "stop_after", "retries", "sweep", "env", "outputs", "secrets"},
		Refused: notYet("notify", "lease"),
	}
	metaKeys = conf.Keys{Known: []string{"batch_name", "namespace", "matrix", "capabilities"}}
	fileKeys = conf.Keys{Known: []string{"path", "alias", "fill"}}
)

// kinds are the sections of which a batch has one; singularity is what
// apptainer was called once.
var kinds = map[string]string{
	"python": job.Python, "apptainer": job.Apptainer, "singularity": job.Apptainer, "command": job.Command,
}

func (r *reader) batch() {
	root := r.doc.Root()
	keys := conf.Keys{Known: topKeys.Known, Refused: map[string]string{}}
	for k, text := range topKeys.Refused {
		keys.Refused[k] = text
	}
	all := root.AnyMap()
	if !all.Has() {
		return
	}
	keys.Refused["ranks"], keys.Refused["mpi"] = inResources, mpiInResources
	keys.Refused["docker"] = dockerText(all.Get("docker"))
	if !all.Key("singularity").Absent() {
		keys.Known = append([]string{"singularity"}, keys.Known...)
	}
	top := root.Map(keys)
	r.meta(top.Need("meta").Map(metaKeys))
	unsaid := job.Unsaid(job.Python)
	if !all.Key(job.Command).Absent() {
		unsaid = job.Unsaid(job.Command)
	}
	r.f.Spec.Resources = r.resources(top.Get("resources"), unsaid)
	r.f.Spec.Slurm = r.slurm(top.Get("slurm"))
	r.f.Spec.Keep = r.keep(top.Get("keep"))
	r.f.Spec.Retry = r.retry(top.Get("retry"))
	if n := r.retries(top.Get("retries")); n != nil {
		r.f.Spec.Retries = *n
	}
	r.f.Spec.Private = top.Get("private").Bool()
	r.f.Spec.Checkpoint = r.checkpoint(top.Get("checkpoint"))
	r.f.Spec.Priority = int(top.Get("priority").Int(-job.MaxPriority, job.MaxPriority))
	r.f.Spec.MaxRunning = int(top.Get("max_running").Int(1, job.MaxJobs))
	r.f.Spec.Canary = int(top.Get("canary").Int(1, job.MaxJobs))
	r.f.Spec.StopAfter, r.f.Spec.StopShare = stopAfter(top.Get("stop_after"))
	r.sweeps = !top.Get("sweep").Absent()
	r.sweep(top.Get("sweep"))
	r.f.Spec.Secrets = r.secrets(top.Get("secrets"))
	r.f.Spec.Env = r.batchEnv(top.Get("env"))
	r.notFilled(top.Get("slurm"), "slurm")
	if n := top.Get("outputs"); !r.notFilled(n, "outputs") {
		r.f.Spec.Outputs = r.outputs(n)
	}
	for _, p := range top.Pairs() {
		kind, ok := kinds[p.Name]
		switch {
		case !ok || p.Absent():
			continue
		case r.kind != "":
			p.Key.Errorf("both %q and %q are here: a batch has one kind; split it into two files", r.kind, p.Name)
		default:
			r.kind, r.f.Spec.Kind = p.Name, kind
			if err := r.f.Spec.CheckMPI(&r.f.Spec.Resources); err != nil {
				top.Get("resources").Errorf("%w", err)
			}
			r.section(p.Node)
			continue
		}
		other := reader{doc: r.doc, f: &File{dir: r.f.dir, Spec: job.Spec{Kind: kind}}, kind: p.Name, sweeps: r.sweeps, cases: r.cases, names: r.names}
		other.section(p.Node) // for its mistakes
	}
	if r.cases != nil && !r.swept && r.kind != "" {
		top.Key("sweep").Errorf("no job has a place that the sweep fills: write {%s} where the value is wanted", r.names[0])
	}
	if r.kind != "" {
		if err := job.CheckOutputs(r.f.Spec.Kind, r.f.Spec.Outputs); err != nil {
			top.Get("outputs").Errorf("%w", err)
		}
	}
	if r.kind == "" && top.Key("docker").Absent() {
		root.Errorf(`the batch says nothing to run: add one of "python", "apptainer" or "command" (dnew prints one to fill in)`)
	}
}

// keep reads how long the batch keeps its inputs.
func (r *reader) keep(n conf.Node) *int64 {
	if n.Absent() || !n.IsText() {
		n.Text()
		return nil
	}
	d, err := unit.WrittenDuration(n.Text())
	if err == nil && d > job.MaxKeep*time.Second {
		err = fmt.Errorf("%s is longer than 100 years", msg.Quote(n.Text()))
	}
	if err != nil {
		n.Errorf("%w", err)
		return nil
	}
	seconds := int64(d / time.Second)
	return &seconds
}

// retry reads whether lost jobs are started again.
func (r *reader) retry(n conf.Node) string {
	if s := n.Text(); n.IsText() && s != job.Never {
		n.Errorf(`"retry" is %q or left out, other values are not supported by this version: not %s`, job.Never, msg.Quote(s))
	}
	if n.IsText() {
		return n.Text()
	}
	return ""
}

// retries reads how often a job is tried again that fails; nil if it is not said.
func (r *reader) retries(n conf.Node) *int {
	if n.Absent() {
		return nil
	}
	times := int(n.Int(0, job.MaxRetries))
	if times > 0 && r.f.Spec.Retry == job.Never {
		n.Errorf(`"retries: %d" and "retry: never" contradict each other: remove one of them`, times)
	}
	return &times
}

func (r *reader) meta(m conf.Map) {
	check := job.CheckBatchName
	if r.older {
		check = job.CheckName
	}
	r.f.Name = r.name(m.Need("batch_name"), check)
	r.f.Namespace = r.name(m.Need("namespace"), check)
	if n := m.Get("matrix"); !n.Absent() {
		r.f.Spec.Matrix = n.Text()
		if n.IsText() && !job.IsMatrixUser(n.Text()) || len(n.Text()) > 255 {
			n.Errorf(`%s is no Matrix user: write it as "@user:server"`, msg.Quote(n.Text()))
		}
	}
	r.f.Spec.Capabilities = r.capabilities(m.Get("capabilities"))
}

// capabilities reads what a node must be, each entry once.
func (r *reader) capabilities(n conf.Node) (list []string) {
	for _, n := range n.List("write [python3, gpu]") {
		if n.Absent() {
			n.Errorf("a capability is empty: remove it")
			continue
		}
		e, err := capability.Written(n.Text())
		if c := e.String(); n.IsText() && err != nil {
			n.Errorf("capability %v", err)
		} else if n.IsText() && !slices.Contains(list, c) {
			list = append(list, c)
		}
	}
	return list
}

// name reads a name and checks it.
func (r *reader) name(n conf.Node, check func(string) error) string {
	s := n.Text()
	if n.Absent() || !n.IsText() {
		return s
	}
	if err := check(s); err != nil {
		n.Errorf("%v", err)
	}
	return s
}

// imageName is what may stand in a command line that is to be copied.
var imageName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/:@-]*$`) })

// dockerText says how to make a file of a Docker image.
func dockerText(section conf.Node) string {
	image := "IMAGE"
	if section.IsMap() {
		init := section.AnyMap().Get("initialize")
		if init.IsMap() {
			n := init.AnyMap().Get("image")
			if n.IsMap() {
				n = n.AnyMap().Get("path")
			}
			if n.IsText() && imageName().MatchString(n.Text()) {
				image = n.Text()
			}
		}
	}
	sif, _, _ := strings.Cut(path.Base(image), "@")
	sif, _, _ = strings.Cut(sif, ":")
	if image == "IMAGE" {
		sif = "NAME"
	}
	return fmt.Sprintf("docker images are not run: make a .sif of it with `apptainer build %s.sif docker://%s`, and write \"apptainer\" for \"docker\", \"sif: %s.sif\" for \"image\"",
		sif, image, sif)
}
