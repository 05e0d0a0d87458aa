package spool

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"distribute/lib/check"
	"distribute/lib/job"
	"distribute/lib/pack"
)

// A result is what a record says is kept of an attempt.
type result struct {
	attempt  [16]byte
	manifest [32]byte
	job      string
	try      int  // 0: it is the job's, in out/
	small    bool // its manifest is in its record
	whole    bool
}

func (r *result) token() job.Token { return job.Token(hex.EncodeToString(r.attempt[:])) }

// name is what it is called in out/ or attempts/.
func (r *result) name() string {
	if r.try == 0 {
		return r.job
	}
	return r.job + "~" + strconv.Itoa(r.try)
}

// dir is out or attempts.
func (r *result) dir() string {
	if r.try == 0 {
		return "out"
	}
	return "attempts"
}

// result takes what a record says is kept.
func (b *batchLook) result(rec *job.Record) (why string) {
	r := result{job: rec.Job, small: rec.Tree != nil}
	var ok bool
	if r.attempt, ok = rawToken(string(rec.Attempt)); !ok {
		return fmt.Sprintf("%.40q is no attempt", rec.Attempt)
	}
	sum, err := hex.DecodeString(rec.Manifest)
	if err != nil || len(sum) != 32 {
		return fmt.Sprintf("%.70q is not the sum of a manifest", rec.Manifest)
	}
	if err := job.CheckName(rec.Job); err != nil {
		return err.Error()
	}
	copy(r.manifest[:], sum)
	if rec.Kind != job.KindDone {
		if r.try = rec.Try; r.try < 1 {
			return fmt.Sprintf("%d is not the number of an attempt", rec.Try)
		}
	}
	b.results = append(b.results, r)
	return ""
}

// settleResults keeps of each attempt what its last record says.
func (b *batchLook) settleResults() {
	slices.SortStableFunc(b.results, func(x, y result) int { return bytes.Compare(x.attempt[:], y.attempt[:]) })
	kept := b.results[:0]
	for i, r := range b.results {
		if i+1 == len(b.results) || b.results[i+1].attempt != r.attempt {
			kept = append(kept, r)
		}
	}
	b.results = kept
	slices.SortFunc(b.results, func(x, y result) int {
		if c := strings.Compare(x.job, y.job); c != 0 {
			return c
		}
		return x.try - y.try
	})
}

// place compares what the log accepts with what is in out/, attempts/,
// manifests/ and staging/.
func (b *batchLook) place() error {
	b.settleResults()
	staged := make(map[job.Token]bool)
	for _, e := range b.lists["staging"] {
		staged[job.Token(e.Name())] = true
	}
	d := damages{u: b.u, cure: "nothing: put it back from a copy, or submit the job again"}
	for i := range b.results {
		r := &b.results[i]
		b.u.Results++
		if l := b.left.less[r.token()]; l != nil {
			if err := b.shed(l, staged[r.token()]); err != nil {
				return err
			}
			delete(staged, r.token())
			continue
		}
		if err := b.placed(r, &d, staged[r.token()]); err != nil {
			return err
		}
		delete(staged, r.token())
	}
	b.extra()
	b.staged(staged)
	b.builds()
	return nil
}

// there says whether a file of the batch is there.
func (b *batchLook) there(file string) (bool, error) {
	err := exists(b.path(b.name(file)))
	if err == nil || errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return err == nil, nil
	}
	return false, err
}

// take says whether dir/name was there before the log was read, or else is there
// now, and takes it from what no record accepts.
func (b *batchLook) take(dir, name string) (bool, error) {
	if b.kept[dir][name] {
		delete(b.kept[dir], name)
		return true, nil
	}
	return b.there(dir + "/" + name)
}

// placed looks for one result: in its place, or still staged, of which only the
// directory of the attempt is known so far.
func (b *batchLook) placed(r *result, d *damages, staged bool) error {
	from := "staging/" + string(r.token())
	waits := false
	r.whole = true
	parts := []struct{ staged, dir, name string }{
		{"/tree", r.dir(), r.name()}, {"/manifest.jsonl", "manifests", r.name() + ".jsonl"},
	}
	if r.small {
		parts = parts[:1]
	}
	for _, m := range parts {
		place := m.dir + "/" + m.name
		isPlaced, err := b.take(m.dir, m.name)
		isStaged := false
		if err == nil && (staged || !isPlaced) {
			isStaged, err = b.there(from + m.staged)
		}
		if err != nil {
			return b.unreadable(b.u, b.name(place), err, d.cure)
		}
		switch {
		case isStaged && isPlaced:
			r.whole = false
			d.add(check.Finding{Kind: check.Damaged, Path: b.name(place), Cure: "nothing: look which of them is whole",
				What: "it is there, and " + from + m.staged + " should become it"})
		case isStaged:
			r.whole, waits = false, true
		case !isPlaced:
			r.whole = false
			d.add(check.Finding{Kind: check.Damaged, Path: b.name(place), Cure: d.cure,
				What: fmt.Sprintf("the log accepts it of attempt %s, and it is nowhere", r.token())})
		}
	}
	if waits || r.whole && staged {
		b.unpublished(r, from)
	}
	return nil
}

// shed looks for what does not count any more of what an attempt has left; staged
// says that there is a directory of it in staging/.
func (b *batchLook) shed(l *leaver, staged bool) error {
	var there [3]bool
	for i, at := range []struct{ dir, name string }{{"attempts", l.name()}, {"manifests", l.name() + ".jsonl"}, {"attempts", job.OutputName(l.name())}} {
		var err error
		if there[i], err = b.take(at.dir, at.name); err != nil {
			return b.unreadable(b.u, b.name(at.dir+"/"+at.name), err, "nothing: it is of no use")
		}
	}
	f := check.Finding{Kind: check.Left, Path: b.name("attempts/" + l.name()), What: "it was left by an attempt that had to leave its node, and does not count any more",
		Cure: "keep what it printed, and move it to trash/"}
	switch {
	case there[0] || there[1]:
	case there[2] && l.nothing:
		f.Path, f.Cure = b.name("attempts/"+job.OutputName(l.name())), "move it to trash/"
	case staged:
		f.Path, f.Cure = b.name("staging/"+string(l.attempt)), "move it to trash/"
	default:
		return nil
	}
	if h := b.checker.head; h != nil {
		batch := &Batch{ID: b.id, dir: b.batchDir(b.id)}
		f.Mend = func() error {
			err := h.unstage(batch, l)
			if err == nil {
				_, err = h.Shed(batch, l.job, l.try, l.nothing)
			}
			return err
		}
	}
	b.u.Find(f)
	return nil
}

// unpublished finds a result that was committed and is not in its place.
func (b *batchLook) unpublished(r *result, from string) {
	f := check.Finding{Kind: check.Left, Path: b.name(from), What: "a result that was committed and is not in its place",
		Cure: "put it into " + r.dir() + "/" + r.name()}
	switch {
	case r.whole:
		f.What = "the empty directory of a result that is in its place"
	case !b.open:
		f.Kind = check.Damaged
		f.What += ", of a batch that is closed"
	}
	if b.checker.head != nil {
		batch := &Batch{ID: b.id, dir: b.batchDir(b.id)}
		res, h := *r, b.checker.head
		f.Mend = func() error {
			if res.small {
				h.noteSmall(batch, res.token())
			}
			return h.move(batch, res.token(), res.dir(), res.name())
		}
	}
	b.u.Find(f)
}

// extra finds what is in place and no record accepts. It is not judged beside a
// log of which not every record can be read.
func (b *batchLook) extra() {
	if b.badLog || b.noLog {
		return
	}
	for _, dir := range []string{"out", "attempts", "manifests"} {
		for _, name := range slices.Sorted(maps.Keys(b.kept[dir])) {
			b.u.Odd(b.name(dir+"/"+name), "no record of the log accepts it")
		}
	}
}

// staged looks at what is in staging/ and was not committed.
func (b *batchLook) staged(staged map[job.Token]bool) {
	if b.badLog || b.noLog {
		return
	}
	for _, e := range b.lists["staging"] {
		token := job.Token(e.Name())
		name := b.name("staging/" + e.Name())
		switch {
		case token.Check() != nil || !e.IsDir():
			b.u.Odd(name, "it is not the result of an attempt")
		case !staged[token]:
		case !b.begun.has(string(token)):
			b.u.Find(check.Finding{Kind: check.Left, Path: name, What: "the log does not know this attempt: it is of an older copy",
				Cure: "nothing: dsched keeps it"})
		case !b.open:
			b.u.Find(check.Finding{Kind: check.Left, Path: name, What: "the beginning of a result, of a batch that is closed",
				Cure: "nothing: it is of no use, and may be removed"})
		}
	}
}

func (b *batchLook) builds() {
	for _, e := range b.lists["build"] {
		name := b.name("build/" + e.Name())
		node, ok := strings.CutSuffix(e.Name(), ".log")
		switch {
		case ok && job.CheckName(node) == nil:
			b.wantFile(b.u, name, e, 0o640)
		case unfinished(b.u, name, e):
		default:
			b.u.Odd(name, "it is not what a build printed")
		}
	}
}

// intact is the jobs whose accepted results are whole, as far as was looked.
func (b *batchLook) intact() (names []string) {
	for i := range b.results {
		if r := &b.results[i]; r.try == 0 && r.whole {
			names = append(names, r.job)
		}
	}
	return names
}

// content compares the results that are in place with their manifests.
func (b *batchLook) content(ctx context.Context) error {
	if !b.run.Sums {
		return nil
	}
	d := damages{u: b.u, cure: "nothing: put it back from a copy, or submit the job again"}
	for i := range b.results {
		r := &b.results[i]
		if !r.whole {
			continue
		}
		if err := b.tree(ctx, r, &d); err != nil {
			return err
		}
	}
	return nil
}

// tree compares one result with its manifest.
func (b *batchLook) tree(ctx context.Context, r *result, d *damages) error {
	bad := func(file, what string) {
		r.whole = false
		d.add(check.Finding{Kind: check.Damaged, Path: b.name(file), What: what, Cure: d.cure})
	}
	m, why, err := b.manifest(r)
	if err != nil {
		return err
	}
	if why != "" && r.small {
		bad("log.jsonl", fmt.Sprintf("of %s: %s", r.name(), why))
		return nil
	}
	if why != "" {
		bad("manifests/"+r.name()+".jsonl", why)
		return nil
	}
	dir := r.dir() + "/" + r.name()
	root, err := os.OpenRoot(b.path(b.name(dir)))
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		r.whole = false
		return b.unreadable(b.u, b.name(dir), err, d.cure)
	}
	defer root.Close()
	want, wrong, err := pack.Verify(ctx, root, m)
	if err != nil {
		if ctx.Err() == nil && check.Broken(err) {
			bad(dir, "it cannot be read: "+err.Error())
			return nil
		}
		return err
	}
	b.u.Count(m.Bytes())
	b.u.Files += len(m)
	for _, r := range want.Ranges {
		for _, e := range m[r[0]:r[1]] {
			bad(dir+"/"+e.Path, "the manifest has it, and it is missing or cut short")
		}
	}
	for _, i := range wrong {
		bad(dir+"/"+m[i].Path, "it is not what the manifest says: it has rotted or was changed")
	}
	return b.beyond(root, m, dir, bad)
}

// manifest reads the manifest of a result, which must be that of its record.
func (b *batchLook) manifest(r *result) (m pack.Manifest, why string, err error) {
	if r.small {
		if b.inLog == nil {
			b.inLog = b.Results(b.id)
		}
		m, err := b.inLog.manifest(r.name())
		if err != nil && (errors.Is(err, pack.ErrFormat) || errors.Is(err, pack.ErrLimit)) {
			return nil, err.Error(), nil
		}
		if p := (*Problem)(nil); errors.As(err, &p) || errors.Is(err, fs.ErrNotExist) {
			return nil, "its manifest is behind a line that is damaged", nil
		}
		return m, "", err
	}
	f, err := check.Open(b.path(b.name("manifests/" + r.name() + ".jsonl")))
	if err != nil {
		if check.Broken(err) || errors.Is(err, fs.ErrNotExist) {
			return nil, "it cannot be read: " + check.Reason(err), nil
		}
		return nil, "", err
	}
	defer f.Close()
	m, err = pack.DecodeManifest(f, pack.DefaultLimits())
	switch {
	case err != nil && (check.Broken(err) || errors.Is(err, pack.ErrFormat) || errors.Is(err, pack.ErrLimit)):
		return nil, "it is not a manifest: " + err.Error(), nil
	case err != nil:
		return nil, "", err
	case m.Sum() != hex.EncodeToString(r.manifest[:]):
		return nil, "it is not the manifest that the log accepts", nil
	}
	return m, "", nil
}

// beyond finds what is in a result and not in its manifest.
func (b *batchLook) beyond(root *os.Root, m pack.Manifest, dir string, bad func(file, what string)) error {
	err := fs.WalkDir(root.FS(), ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if _, ok := m.Find(name); !ok && name != "." {
			bad(path.Join(dir, name), "it is not in the manifest: somebody put it there")
			if e.IsDir() {
				return fs.SkipDir
			}
		}
		return nil
	})
	if err != nil && (check.Broken(err) || errors.Is(err, fs.ErrNotExist)) {
		bad(dir, "it cannot be listed: "+err.Error())
		return nil
	}
	return err
}
