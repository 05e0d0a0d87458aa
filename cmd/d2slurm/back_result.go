package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"time"

	"distribute/lib/job"
	"distribute/lib/pack"
	"distribute/lib/slurm"
)

// saveDir is where jobs put what is to come home.
const saveDir = "distribute_save"

// A result is what a job has left on the cluster, as it comes home.
type result struct {
	root    *os.Root
	m       pack.Manifest
	at      map[string]string // where the file of a path is; empty: it is skipped
	left    []pack.Skipped    // what is left out
	skipped []byte            // the file that names that
}

// resultOf reads the directory of a job, as a node does at home: all that it has written,
// or of a Python job what it has saved, and what it has printed.
func resultOf(ctx context.Context, p *place, kind string, j *slurm.FolderJob, started time.Time) (*result, error) {
	root, err := p.open(j.Dir)
	if err != nil {
		return nil, err
	}
	r := &result{root: root, at: map[string]string{}}
	if err := r.read(ctx, kind, j, started); err != nil {
		root.Close()
		return nil, err
	}
	return r, nil
}

func (r *result) read(ctx context.Context, kind string, j *slurm.FolderJob, started time.Time) error {
	taken := map[string]bool{}
	add := func(m pack.Manifest, below string) {
		for _, e := range m {
			if !taken[e.Path] {
				taken[e.Path], r.at[e.Path] = true, path.Join(below, e.Path)
				r.m = append(r.m, e)
			}
		}
	}
	printed := job.OutputName(j.Job)
	out, skipped, err := pack.Scan(ctx, r.root, func(p string, _ fs.FileInfo) bool { return p == slurm.OutputFile }, pack.Limits{})
	if err != nil {
		return err
	}
	if len(out) == 1 && out[0].Type == pack.File {
		out[0].Path = printed
		r.at[printed], taken[printed] = slurm.OutputFile, true
		r.m = append(r.m, out[0])
	}
	more, err := r.work(ctx, kind, j, started, add)
	if err != nil {
		return err
	}
	if r.left = append(skipped, more...); len(r.left) > 0 {
		r.name(j)
	}
	slices.SortFunc(r.m, func(a, b pack.Entry) int { return pack.ComparePaths(a.Path, b.Path) })
	return r.m.Check(pack.DefaultLimits())
}

// work adds what is in the directory in which the job ran.
func (r *result) work(ctx context.Context, kind string, j *slurm.FolderJob, started time.Time, add func(pack.Manifest, string)) (skipped []pack.Skipped, err error) {
	if why := pack.Gone(r.root.Lstat(slurm.WorkDir)); why != "" {
		return pack.NothingOf(why), nil
	}
	work, err := r.root.OpenRoot(slurm.WorkDir)
	if err != nil {
		return nil, err
	}
	defer work.Close()
	outputs := job.NewOutputs(j.Outputs)
	if info, err := work.Lstat(saveDir); err == nil && info.IsDir() {
		save, err := work.OpenRoot(saveDir)
		if err != nil {
			return nil, err
		}
		under := func(p string) string { return path.Join(saveDir, p) }
		m, more, err := pack.Scan(ctx, save, func(p string, info fs.FileInfo) bool {
			if info.IsDir() {
				return outputs.Lead(p) || outputs.Lead(under(p))
			}
			return outputs.Have(p) || outputs.Have(under(p))
		}, pack.Limits{})
		save.Close()
		if err != nil {
			return nil, err
		}
		add(m.Pruned(func(p string) bool { return !outputs.Have(p) && !outputs.Have(under(p)) }), path.Join(slurm.WorkDir, saveDir))
		skipped = more
	}
	if kind != job.Python {
		m, more, err := pack.Scan(ctx, work, func(p string, info fs.FileInfo) bool {
			if info.IsDir() {
				return p != saveDir && outputs.Lead(p)
			}
			return own(j, p, info, started) && outputs.Have(p)
		}, pack.Limits{})
		if err != nil {
			return nil, err
		}
		of := dirsOf(j.Inputs)
		add(m.Pruned(func(p string) bool { return of[p] || !outputs.Have(p) }), slurm.WorkDir)
		skipped = append(skipped, more...)
	}
	return pack.SkippedOf(outputs, skipped), nil
}

// own says that something in the directory of a job was written by the job.
func own(j *slurm.FolderJob, p string, info fs.FileInfo, started time.Time) bool {
	if !slices.Contains(j.Inputs, p) {
		return true
	}
	// An input that it has changed. What files are told is a little behind the clock.
	return !started.IsZero() && !info.ModTime().Before(started.Add(-time.Second))
}

// dirsOf are the directories that were there for inputs.
func dirsOf(inputs []string) map[string]bool {
	of := map[string]bool{}
	for _, p := range inputs {
		for d := path.Dir(p); d != "."; d = path.Dir(d) {
			of[d] = true
		}
	}
	return of
}

// name adds the file that names what is left out.
func (r *result) name(j *slurm.FolderJob) {
	p := job.SkippedName(j.Job)
	var b bytes.Buffer
	for _, s := range r.left {
		fmt.Fprintf(&b, "%s: %s\n", s.Path, s.Why)
	}
	r.skipped = b.Bytes()
	sum := sha256.Sum256(r.skipped)
	r.m = slices.DeleteFunc(r.m, func(e pack.Entry) bool { return e.Path == p })
	r.m = append(r.m, pack.Entry{Path: p, Type: pack.File, Size: int64(b.Len()), Mode: 0o644, Time: time.Unix(0, 0).UTC(), Sum: hex.EncodeToString(sum[:])})
	r.at[p] = ""
}

// open opens a file of the result. That it is still as it was is seen on the way.
func (r *result) open(_ int, e pack.Entry) (io.ReadCloser, error) {
	at := r.at[e.Path]
	if at == "" {
		return io.NopCloser(bytes.NewReader(r.skipped)), nil
	}
	f, err := openPlain(r.root, at)
	if err != nil {
		return nil, errors.Join(pack.ErrChanged, err)
	}
	return f, nil
}

// said is what is said of the result to the head.
func (r *result) said(o job.Outcome) *job.Result {
	files := 0
	for _, e := range r.m {
		if e.Type == pack.File {
			files++
		}
	}
	o.Skipped = pack.InWords(r.left)
	return &job.Result{Outcome: o, Manifest: r.m.Sum(), Entries: len(r.m), Files: files, Bytes: r.m.Bytes()}
}
