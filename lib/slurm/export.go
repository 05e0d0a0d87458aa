package slurm

import (
	"bufio"
	"cmp"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"distribute/lib/durable"
	"distribute/lib/job"
	"distribute/lib/mpi"
)

// The scripts of a folder, which are the same in all of them.
//
//go:embed run.sh submit.sh
var scripts embed.FS

// sharedFrom is from how many bytes on an input is linked and not copied, as on a node.
const sharedFrom = 64 << 20

// ErrBatch is what every error is of a batch that cannot go to a cluster.
var ErrBatch = errors.New("this cannot go to a cluster")

// An Export is a batch that is to be a folder.
type Export struct {
	Batch   *job.Batch
	ID      job.Token // of the folder, 128 random bits
	Name    string    // of the cluster
	Modules []string  // lines of shell before a job
	Runtime string    // the program for containers; "": what there is
	Unknown bool      // no head may know the batch: the folder has what to submit
}

// Write makes the folder dir, which must not be there; it is there whole or not at
// all. The error is fs.ErrExist if it is there. What could not be carried over is
// returned, a line each. progress is told of bytes that are copied.
func (e *Export) Write(ctx context.Context, dir string, progress func(n int64)) (notes []string, err error) {
	for _, line := range e.Modules {
		if strings.ContainsAny(line, "\n\r\x00") {
			return nil, fmt.Errorf("%q is more than one line", line)
		}
	}
	p, err := checked(e.Batch)
	if err != nil {
		return nil, err
	}
	if _, err := os.Lstat(dir); err == nil {
		return nil, &os.PathError{Op: "create", Path: dir, Err: os.ErrExist}
	}
	fresh, err := os.MkdirTemp(filepath.Dir(dir), ".d2slurm-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(fresh)
	mode := os.FileMode(0o755)
	if e.Batch.Spec.Private {
		mode = 0o700
	}
	if err := os.Chmod(fresh, mode); err != nil {
		return nil, err
	}
	w := writer{Export: e, plan: p, dir: fresh, progress: progress}
	if err := w.all(ctx); err != nil {
		return nil, err
	}
	if err := durable.SyncTree(fresh); err != nil {
		return nil, err
	}
	if err := durable.Publish(fresh, dir); err != nil {
		return nil, err
	}
	if err := durable.SyncDir(filepath.Dir(dir)); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return p.notes, nil
}

// Check says why no folder can be made of a batch: an [ErrBatch].
func Check(b *job.Batch) error {
	_, err := checked(b)
	return err
}

// checked is the plan of a batch of which a folder can be made.
func checked(b *job.Batch) (*plan, error) {
	p, err := planOf(b)
	if err == nil {
		err = checkPlaces(b)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBatch, err)
	}
	return p, nil
}

// A writer writes a folder.
type writer struct {
	*Export
	plan     *plan
	dir      string
	progress func(int64)
}

func (w *writer) all(ctx context.Context) error {
	for _, d := range []string{"groups", "inputs", "jobs", "run", "slurm"} {
		if err := os.Mkdir(filepath.Join(w.dir, d), 0o755); err != nil {
			return err
		}
	}
	steps := []func() error{w.scripts, w.secrets, w.list, w.batch, w.groups, w.jobs, func() error { return w.inputs(ctx) }}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) file(name, text string, mode os.FileMode) error {
	return os.WriteFile(filepath.Join(w.dir, name), []byte(text), mode)
}

// scripts writes what a shell reads but for the jobs.
func (w *writer) scripts() error {
	for _, name := range []string{"run.sh", "submit.sh"} {
		text, err := scripts.ReadFile(name)
		if err == nil {
			err = w.file(name, string(text), 0o755)
		}
		if err != nil {
			return err
		}
	}
	spec := &w.Batch.Spec
	uncontained := ""
	if spec.Uncontained {
		uncontained = "1"
	}
	var b strings.Builder
	b.WriteString("# shellcheck shell=bash disable=SC2016,SC2034\n")
	for _, v := range [][2]string{{"kind", spec.Kind}, {"name", w.Name}, {"namespace", w.Batch.Namespace}, {"batch", w.Batch.Name}, {"runtime", w.Runtime}, {"uncontained", uncontained}} {
		fmt.Fprintf(&b, "%s=%s\n", v[0], quote(v[1]))
	}
	// One that lies in another comes after it.
	fmt.Fprintf(&b, "mounts=(%s)\nbuild=(%s)\nenv=(%s)\n", words(byLength(spec.Mounts)), words(spec.Build), words(spec.Env))
	fmt.Fprintf(&b, "secret_names=(%s)\n", words(spec.Secrets))
	inputsList(&b, "batch_inputs", spec.Inputs)
	modules := "# shellcheck shell=bash\n# Lines for the shell before each job, as: module load apptainer\n" + strings.Join(append(w.Modules, ""), "\n")
	return cmp.Or(w.file("batch.sh", b.String(), 0o644), w.file("modules.sh", modules, 0o644), w.file("plan.sh", w.plan.script(), 0o644))
}

// secrets writes the values of secrets, which only the owner of the folder can read.
func (w *writer) secrets() error {
	if len(w.Batch.Secrets) == 0 {
		return nil
	}
	return w.file(SecretsFile, "# shellcheck shell=bash disable=SC2034\nsecrets=("+words(w.Batch.Secrets)+")\n", 0o600)
}

// inputsList writes what run.sh is to place: of each input five words.
func inputsList(b *strings.Builder, name string, inputs []job.Input) {
	fmt.Fprintf(b, "%s=(\n", name)
	for _, in := range inputs {
		shared := 0
		if in.Size >= sharedFrom {
			shared = 1
		}
		fmt.Fprintf(b, "\t%s %04o %d %s %s\n", in.Sum, in.Mode&0o777|0o600, shared, quote(in.Path), in.ModTime().UTC().Format(time.RFC3339Nano))
	}
	b.WriteString(")\n")
}

// list writes which jobs there are.
func (w *writer) list() error {
	linked := w.contentTimes()
	f := &Folder{Version: 1, ID: w.ID, Name: w.Name, Batch: w.Batch.ID(), Kind: w.Batch.Spec.Kind, Secrets: len(w.Batch.Secrets) > 0}
	for i := range w.Batch.Jobs {
		j := &w.Batch.Jobs[i]
		at := w.plan.at[i]
		row := FolderJob{Job: j.Name, Dir: "jobs/" + j.Name, Group: at.group, Index: at.index, Outputs: job.OutputsOf(&w.Batch.Spec, j)}
		if r := cmp.Or(j.Resources, &w.Batch.Spec.Resources); !r.MPI {
			row.Ranks = r.Ranks
		}
		for _, list := range [][]job.Input{w.Batch.Spec.Inputs, j.Inputs} {
			for _, in := range list {
				row.Inputs, row.MTimes = append(row.Inputs, in.Path), append(row.MTimes, in.ModTime().UnixNano())
				if t := linked[in.Sum]; in.Size >= sharedFrom && !t.Equal(in.ModTime()) { // which it has as a link
					row.Inputs, row.MTimes = append(row.Inputs, in.Path), append(row.MTimes, t.UnixNano())
				}
			}
		}
		f.Jobs = append(f.Jobs, row)
	}
	return f.Write(w.dir)
}

// batch writes what a head has to be told of a batch that it does not know.
func (w *writer) batch() error {
	if !w.Unknown {
		return nil
	}
	f, err := os.Create(filepath.Join(w.dir, BatchFile))
	if err != nil {
		return err
	}
	defer f.Close()
	out := bufio.NewWriter(f)
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	err = enc.Encode(&w.Batch.Spec)
	for i := 0; err == nil && i < len(w.Batch.Jobs); i++ {
		err = enc.Encode(&w.Batch.Jobs[i])
	}
	return cmp.Or(err, out.Flush(), f.Close(), w.file(SourceFile, string(w.Batch.Data), 0o644))
}

// Write writes the list of a folder into dir.
func (f *Folder) Write(dir string) error {
	file, err := os.Create(filepath.Join(dir, ListFile))
	if err != nil {
		return err
	}
	defer file.Close()
	out := bufio.NewWriter(file)
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	err = enc.Encode(f)
	for i := 0; err == nil && i < len(f.Jobs); i++ {
		err = enc.Encode(&f.Jobs[i])
	}
	return cmp.Or(err, out.Flush(), file.Close())
}

func (w *writer) groups() error {
	for k, g := range w.plan.groups {
		var b strings.Builder
		for _, i := range g.jobs {
			b.WriteString(w.Batch.Jobs[i].Name + "\n")
		}
		name := filepath.Join("groups", strconv.Itoa(k))
		if err := w.file(name, b.String(), 0o644); err != nil {
			return err
		}
		if g.needs != "" {
			if err := w.file(name+".needs", strings.ReplaceAll(g.needs, " ", "\n")+"\n", 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

// jobs writes what each job is.
func (w *writer) jobs() error {
	for i := range w.Batch.Jobs {
		j := &w.Batch.Jobs[i]
		var b strings.Builder
		fmt.Fprintf(&b, "# shellcheck shell=bash disable=SC2016,SC2034\nargv=(%s) env=(%s)\n", words(j.Run), words(job.Environ(w.Batch.Spec.Env, j.Env)))
		inputsList(&b, "job_inputs", j.Inputs)
		if cmp.Or(j.Resources, &w.Batch.Spec.Resources).MPI {
			fmt.Fprintf(&b, "mpi=(%s) mpi_start=%s mpi_rank=%s\n", words(mpi.Env), quote(mpi.Start), quote(mpi.Rank))
		}
		if err := w.file(filepath.Join("run", j.Name+".sh"), b.String(), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// checkPlaces says why the inputs of a batch cannot lie where they would.
func checkPlaces(b *job.Batch) error {
	for _, in := range b.Spec.Inputs {
		if err := job.CheckPath(in.Path); err != nil {
			return err
		}
	}
	for i := range b.Jobs {
		for _, in := range b.Jobs[i].Inputs {
			if err := job.CheckPath(in.Path); err != nil {
				return fmt.Errorf("job %q: %w", b.Jobs[i].Name, err)
			}
		}
	}
	return nil
}

// contentTimes returns the time of each content, by its sum: that of the first input that has it.
// All links of a large one have that.
func (w *writer) contentTimes() map[string]time.Time {
	times := map[string]time.Time{}
	note := func(inputs []job.Input) {
		for i := range inputs {
			if _, ok := times[inputs[i].Sum]; !ok {
				times[inputs[i].Sum] = inputs[i].ModTime()
			}
		}
	}
	note(w.Batch.Spec.Inputs)
	for i := range w.Batch.Jobs {
		note(w.Batch.Jobs[i].Inputs)
	}
	return times
}

// inputs copies each content once, with its time.
func (w *writer) inputs(ctx context.Context) error {
	times := w.contentTimes()
	for sum, src := range w.Batch.Sources {
		name := filepath.Join(w.dir, "inputs", sum)
		if image := w.Batch.Spec.Image; image != nil && image.Sum == sum {
			if err := os.Symlink("inputs/"+sum, filepath.Join(w.dir, "image.sif")); err != nil {
				return err
			}
		}
		mode := os.FileMode(0o644)
		if src.Size >= sharedFrom {
			mode = 0o555 // links of it are read-only, and it may be a program
		}
		if err := w.copy(ctx, name, src, mode); err != nil {
			return err
		}
		if t, ok := times[sum]; ok {
			if err := os.Chtimes(name, t, t); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *writer) copy(ctx context.Context, name string, src job.Source, mode os.FileMode) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	in, err := src.Open()
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	n, err := io.Copy(out, in)
	w.progress(n)
	if err = errors.Join(err, out.Chmod(mode), out.Close()); err != nil {
		return err
	}
	return src.Unchanged(in)
}

// quote is s as one word of a shell.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

func words(list []string) string {
	quoted := make([]string, len(list))
	for i, s := range list {
		quoted[i] = quote(s)
	}
	return strings.Join(quoted, " ")
}
