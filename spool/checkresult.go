package spool

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"

	"distribute/lib/check"
	"distribute/lib/durable"
	"distribute/lib/job"
	"distribute/lib/pack"
)

// A result is what a record says is kept of an attempt.
type result struct {
	attempt  job.Key
	manifest [32]byte
	job      string
	try      int  // 0: it is the job's, in out/
	small    bool // its manifest is in its record
	whole    bool
}

func (r *result) token() job.Token { return job.Token(hex.EncodeToString(r.attempt[:])) }

// place is its directory in the batch, and its name there.
func (r *result) place() (dir, name string) { return resultPlace(r.job, r.try, r.try == 0) }

// addResult takes in what a record says is kept of its attempt.
func (b *batchCheck) addResult(rec *job.Record) error {
	r := result{job: rec.Job, small: rec.List != nil}
	var ok bool
	if r.attempt, ok = rec.Attempt.Key(); !ok {
		return fmt.Errorf("%.40q is no attempt", rec.Attempt)
	}
	sum, err := hex.DecodeString(rec.Manifest)
	if err != nil || len(sum) != 32 {
		return fmt.Errorf("%.70q is not the sum of a manifest", rec.Manifest)
	}
	copy(r.manifest[:], sum)
	if err := job.CheckName(rec.Job); err != nil {
		return err
	}
	if rec.Kind != job.KindDone {
		if r.try = rec.Try; r.try < 1 {
			return fmt.Errorf("%d is not the number of an attempt", rec.Try)
		}
	}
	b.results = append(b.results, r)
	return nil
}

// settleResults keeps of each attempt what its last record says, in the order of the jobs.
func (b *batchCheck) settleResults() {
	slices.Reverse(b.results)
	slices.SortStableFunc(b.results, func(x, y result) int { return bytes.Compare(x.attempt[:], y.attempt[:]) })
	b.results = slices.CompactFunc(b.results, func(x, y result) bool { return x.attempt == y.attempt })
	slices.SortFunc(b.results, func(x, y result) int { return cmp.Or(strings.Compare(x.job, y.job), x.try-y.try) })
}

// resultCure is what can be done about a result that is not whole.
const resultCure = "nothing: put it back from a copy, or submit the job again"

// checkResults compares what the log accepts with what is in out/, attempts/, manifests/
// and staging/.
func (b *batchCheck) checkResults(ctx context.Context) error {
	if b.other {
		b.results = nil
		return b.tree.CheckList(ctx, b.u, inBatch+"build", b.name("build"), b.lists["build"])
	}
	b.settleResults()
	staged := make(map[job.Token]bool)
	for _, e := range b.lists["staging"] {
		staged[job.Token(e.Name())] = true
	}
	d := damages{u: b.u, cure: resultCure}
	for i := range b.results {
		r := &b.results[i]
		b.u.Results++
		var err error
		if l := b.less[r.token()]; l != nil {
			err = b.checkShed(l, staged[r.token()])
		} else {
			err = b.checkPlaced(r, &d, staged[r.token()])
		}
		if err != nil {
			return err
		}
		delete(staged, r.token())
	}
	if !b.badLog && !b.renamed { // else not every record is known
		b.checkUnknown(staged)
	}
	return b.tree.CheckList(ctx, b.u, inBatch+"build", b.name("build"), b.lists["build"])
}

// isThere says whether a file of the batch is there.
func (b *batchCheck) isThere(file string) (bool, error) {
	err := exists(b.path(b.name(file)))
	if err == nil || errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return err == nil, nil
	}
	return false, err
}

// isKept says whether dir/name was there before the log was read, or else is there
// now. What it was asked about is not found as what no record accepts.
func (b *batchCheck) isKept(dir, name string) (bool, error) {
	if b.kept[dir][name] {
		delete(b.kept[dir], name)
		return true, nil
	}
	return b.isThere(dir + "/" + name)
}

// checkPlaced looks for one result: in its place, or still staged, of which only the
// directory of the attempt is known so far.
func (b *batchCheck) checkPlaced(r *result, d *damages, staged bool) error {
	from := "staging/" + string(r.token())
	dir, name := r.place()
	waits := false
	r.whole = true
	parts := []struct{ staged, dir, name string }{
		{"/tree", dir, name}, {"/manifest.jsonl", "manifests", name + ".jsonl"},
	}
	if r.small {
		parts = parts[:1]
	}
	for _, m := range parts {
		place := b.name(m.dir + "/" + m.name)
		isPlaced, err := b.isKept(m.dir, m.name)
		isStaged := false
		if err == nil && (staged || !isPlaced) {
			isStaged, err = b.isThere(from + m.staged)
		}
		if err != nil {
			return b.unreadable(b.u, place, err, d.cure)
		}
		r.whole = r.whole && isPlaced && !isStaged
		switch {
		case isStaged && isPlaced:
			d.add(check.Finding{Kind: check.Damaged, Path: place, What: "it is there, and " + from + m.staged + " should become it",
				Cure: "nothing: look which of them is whole"})
		case isStaged:
			waits = true
		case !isPlaced:
			d.damaged(place, fmt.Sprintf("the log accepts it of attempt %s, and it is nowhere", r.token()))
		}
	}
	if !waits && !(r.whole && staged) {
		return nil
	}
	f := b.u.Report(check.Left, b.name(from), "a result that was committed and is not in its place", "put it into "+dir+"/"+name)
	switch {
	case r.whole:
		f.What = "the empty directory of a result that is in its place"
	case !b.open:
		f.Kind = check.Damaged
		f.What += ", of a batch that is closed"
	}
	if h := b.checker.head; h != nil && !b.renamed {
		token, small := r.token(), r.small
		f.Mend = func() error {
			if small {
				h.noteSmall(b.Batch, token)
			}
			return h.move(b.Batch, token, dir, name)
		}
	}
	return nil
}

// checkShed looks for what does not count any more of what an attempt has left; staged
// says that there is a directory of it in staging/.
func (b *batchCheck) checkShed(l *leaver, staged bool) error {
	name, printed := l.name(), job.OutputName(l.name())
	var there [3]bool
	for i, at := range []struct{ dir, name string }{{"attempts", name}, {"manifests", name + ".jsonl"}, {"attempts", printed}} {
		var err error
		if there[i], err = b.isKept(at.dir, at.name); err != nil {
			return b.unreadable(b.u, b.name(at.dir+"/"+at.name), err, "nothing: it is of no use")
		}
	}
	at, cure := "attempts/"+name, "keep what it printed, and move it to trash/"
	switch {
	case there[0] || there[1]:
	case there[2] && l.Nothing:
		at, cure = "attempts/"+printed, "move it to trash/"
	case staged:
		at, cure = "staging/"+string(l.Attempt), "move it to trash/"
	default:
		return nil
	}
	f := b.u.Report(check.Left, b.name(at), "it was left by an attempt that had to leave its node, and does not count any more", cure)
	if h := b.checker.head; h != nil && !b.renamed {
		f.Mend = func() error {
			err := h.unstage(b.Batch, l)
			if err == nil {
				_, err = h.Shed(b.Batch, l.job, l.Try, l.Nothing)
			}
			return err
		}
	}
	return nil
}

// checkUnknown finds what is in place and no record accepts, and what is in staging/ and
// was not committed.
func (b *batchCheck) checkUnknown(staged map[job.Token]bool) {
	for _, dir := range []string{"out", "attempts", "manifests"} {
		for _, name := range slices.Sorted(maps.Keys(b.kept[dir])) {
			b.u.Odd(b.name(dir+"/"+name), "no record of the log accepts it")
		}
	}
	for _, e := range b.lists["staging"] {
		token, name := job.Token(e.Name()), b.name("staging/"+e.Name())
		key, ok := token.Key()
		_, started := b.history.Started[key]
		switch {
		case !ok || !e.IsDir():
			b.u.Odd(name, "it is not the result of an attempt")
		case !staged[token]:
		case !started:
			b.u.Report(check.Left, name, "the log does not know this attempt: it is of an older copy", "nothing: dsched keeps it")
		case !b.open:
			b.u.Report(check.Left, name, "the beginning of a result, of a batch that is closed", "nothing: it is of no use, and may be removed")
		}
	}
}

// checkContents compares the results that are in place with their manifests.
func (b *batchCheck) checkContents(ctx context.Context) error {
	if !b.run.Sums {
		return nil
	}
	d := damages{u: b.u, cure: resultCure}
	for i := range b.results {
		if r := &b.results[i]; r.whole {
			if err := b.checkTree(ctx, r, &d); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkTree compares one result with its manifest.
func (b *batchCheck) checkTree(ctx context.Context, r *result, d *damages) error {
	bad := func(file, what string) {
		r.whole = false
		d.damaged(b.name(file), what)
	}
	dir, name := r.place()
	m, why, err := b.readManifest(r, name)
	if err != nil {
		return err
	}
	if why != "" && r.small {
		bad("log.jsonl", fmt.Sprintf("of %s: %s", name, why))
		return nil
	}
	if why != "" {
		bad("manifests/"+name+".jsonl", why)
		return nil
	}
	dir += "/" + name
	if info, err := os.Lstat(b.path(b.name(dir))); err == nil && !info.IsDir() {
		bad(dir, "it is not a directory")
		return nil
	}
	root, err := os.OpenRoot(b.path(b.name(dir)) + "/.")
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if check.Unreadable(err, b.path(b.name(dir))) {
			bad(dir, "it cannot be read: "+check.Reason(err))
			return nil
		}
		return err
	}
	defer root.Close()
	unread := func(err error) error {
		if err != nil && ctx.Err() == nil && check.Unreadable(err, b.path(b.name(dir))) {
			bad(dir, "it cannot be read: "+err.Error())
			return nil
		}
		return err
	}
	want, wrong, err := pack.Verify(ctx, root, m)
	if err != nil {
		return unread(err)
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
	return unread(findBeside(root, m, dir, bad))
}

// readManifest reads the manifest of a result, which must be that of its record.
func (b *batchCheck) readManifest(r *result, name string) (m pack.Manifest, why string, err error) {
	if r.small {
		if b.inLog == nil {
			b.inLog = b.checker.Results(b.Batch.ID)
		}
		m, err := b.inLog.manifest(name)
		if err != nil && (errors.Is(err, pack.ErrFormat) || errors.Is(err, pack.ErrLimit)) {
			return nil, err.Error(), nil
		}
		if p := (*Problem)(nil); errors.As(err, &p) || errors.Is(err, fs.ErrNotExist) {
			return nil, "its manifest is behind a line that is damaged", nil
		}
		return m, "", err
	}
	file := b.path(b.name("manifests/" + name + ".jsonl"))
	f, err := check.Open(file)
	if err != nil {
		if check.Unreadable(err, file) || errors.Is(err, fs.ErrNotExist) {
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

// findBeside finds what is in a result and not in its manifest.
func findBeside(root *os.Root, m pack.Manifest, dir string, bad func(file, what string)) error {
	err := durable.Walk(root, func(e durable.Entry, err error) error {
		if err != nil {
			return err
		}
		if _, ok := m.Find(e.Path); !ok && e.Path != "." {
			bad(path.Join(dir, e.Path), "it is not in the manifest: somebody put it there")
			return fs.SkipDir
		}
		return nil
	}, nil)
	if err != nil && (check.Broken(err) || errors.Is(err, fs.ErrNotExist)) {
		bad(dir, "it cannot be listed: "+err.Error())
		return nil
	}
	return err
}
