package desk

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"distribute/lib/durable"
	"distribute/lib/job"
	"distribute/lib/proc"
)

// A Build is what is known of one batch here, and the directory of what it builds, which other
// batches that build the same have too.
type Build struct {
	Batch job.BatchID
	User  string // who builds it; empty: the daemon's user
	Sum   string // SHA-256 of the spec
	Spec  job.Spec
	Does  string // what [Build.Identity] was when it came here; empty: it builds nothing, or the release before made it
	Again int    // when its user said last that it is to be built anew; 0: never
	Dir   string

	note string // the directory of its record; that of what is built if it is Dir
}

// buildNote is what is to be built.
type buildNote struct {
	Batch job.BatchID     `json:"batch"`
	User  string          `json:"user,omitempty"`
	Sum   string          `json:"sum"`
	Does  string          `json:"does,omitempty"`
	Again int             `json:"again,omitempty"`
	In    string          `json:"in,omitempty"` // the directory in builds/ of what it builds, this one if the note is of that; absent: it builds nothing, or the release before made it
	Spec  json.RawMessage `json:"spec"`
}

// dir is the name of the directory that has the note, unless that is In.
func (n *buildNote) dir() string {
	return buildKey(n.Batch, n.User, n.Sum)
}

// Image is the image in which the batch's jobs run, nothing if they need none.
func (b *Build) Image() []job.Input {
	if b.Spec.Image == nil {
		return nil
	}
	return []job.Input{*b.Spec.Image}
}

// Tree is the directory that the build runs in.
func (b *Build) Tree() string { return filepath.Join(b.Dir, "tree") }

// Output is the file with what the build printed.
func (b *Build) Output() string { return filepath.Join(b.Dir, "output") }

// Tmp is the directory that the build has as its TMPDIR, by the name that [ShortTmp] returns.
func (b *Build) Tmp() string { return filepath.Join(b.Dir, "tmp") }

// Identity is the same for two batches only if their builds do the same: the same program with
// the same words and variables, from inputs of the same content, mode and time at the same places,
// for the same user, of the same submitter and in the same namespace, on a machine with the same
// capabilities, by a daemon with the same variables env for its jobs. It is a SHA-256 in hexadecimal.
func (b *Build) Identity(submitter string, capabilities, env []string) string {
	type input struct {
		Path, Sum string
		Mode      uint32
		Time      int64
	}
	what := struct {
		Namespace, User, Submitter, Kind string
		Build, Env, Capabilities, Node   []string
		Inputs                           []input
	}{b.Batch.Namespace(), b.User, submitter, b.Spec.Kind, b.Spec.Build, b.Spec.Env, capabilities, env, nil}
	for _, in := range b.Spec.Inputs {
		what.Inputs = append(what.Inputs, input{in.Path, in.Sum, in.Mode, in.ModTime().UnixNano()})
	}
	raw, err := json.Marshal(what)
	if err != nil {
		panic(err) // nothing of it cannot be written
	}
	return sumOf(raw)
}

// buildKey names a batch by all that decides it.
func buildKey(batch job.BatchID, user, sum string) string {
	what := string(batch) + "\n" + sum
	if user != "" {
		what += "\n" + user
	}
	return sumOf([]byte(what))
}

// sumOf is the SHA-256 of a text in hexadecimal.
func sumOf(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// BatchDir is the directory of what is known of a batch; see [Build.Note].
func (d *Desk) BatchDir(batch job.BatchID, user, sum string) string {
	return d.path("builds", buildKey(batch, user, sum))
}

// BuildDir is the directory of builds/ with a name.
func (d *Desk) BuildDir(name string) string { return d.path("builds", name) }

// Name is the name of its directory in builds/.
func (b *Build) Name() string { return filepath.Base(b.Dir) }

// Note is the directory in which it is kept what the batch is.
func (b *Build) Note() string { return b.note }

// Build is what is known of a batch that the user builds, or if none is named the
// daemon's user; fs.ErrNotExist if its spec was not fetched.
func (d *Desk) Build(batch job.BatchID, user, sum string) (*Build, error) {
	dir := d.BatchDir(batch, user, sum)
	d.mu.Lock()
	b := d.specs[dir]
	d.mu.Unlock()
	if b != nil {
		return b, nil
	}
	b, err := readBuild(dir)
	if err == nil {
		d.mu.Lock()
		d.specs[dir] = b
		d.mu.Unlock()
	}
	return b, err
}

// forget has a build's record read again.
func (d *Desk) forget(dir string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.specs, dir)
}

func readBuild(dir string) (*Build, error) {
	t, err := readTold(dir)
	if err != nil {
		return nil, err
	}
	b := &Build{Dir: dir, note: dir}
	if err = errors.New("its first line does not say what is built"); t.build != nil {
		err = json.Unmarshal(t.build.Spec, &b.Spec)
	}
	if err == nil && t.build.In != "" {
		b.Dir = filepath.Join(filepath.Dir(dir), t.build.In)
		err = checkSum(t.build.In)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, proc.RecordFile), err)
	}
	b.Batch, b.User, b.Sum, b.Does, b.Again = t.build.Batch, t.build.User, t.build.Sum, t.build.Does, t.build.Again
	return b, nil
}

// NewBuild is what is known of a batch by its spec, whose SHA-256 must be sum. Nothing is kept yet.
func (d *Desk) NewBuild(batch job.BatchID, user, sum string, spec []byte) (*Build, error) {
	if sumOf(spec) != sum {
		return nil, fmt.Errorf("the spec of %s is not the one that was announced", batch)
	}
	dir := d.BatchDir(batch, user, sum)
	b := &Build{Batch: batch, User: user, Sum: sum, Dir: dir, note: dir}
	if err := json.Unmarshal(spec, &b.Spec); err != nil {
		return nil, fmt.Errorf("the spec of %s: %w", batch, err)
	}
	if err := errors.Join(checkInputs(b.Spec.Inputs), checkInputs(b.Image()), job.CheckMounts(b.Spec.Mounts), job.CheckEnv(b.Spec.Env), job.CheckSecretNames(b.Spec.Secrets, b.Spec.Env), job.CheckOutputs(b.Spec.Kind, b.Spec.Outputs)); err != nil {
		return nil, fmt.Errorf("the spec of %s: %w", batch, err)
	}
	return b, nil
}

// Built is the directory for what a batch builds of that identity. There is another for each time
// at which a batch is to build it anew.
func (b *Build) Built(does string, again int) string {
	what := "built\n" + does
	if again > 0 {
		what += fmt.Sprintf("\n%s\n%d", b.Batch, again)
	}
	return filepath.Join(filepath.Dir(b.note), sumOf([]byte(what)))
}

// Share says in which directory is what the batch builds.
func (b *Build) Share(does string, again int, dir string) { b.Does, b.Again, b.Dir = does, again, dir }

// IsBatch says whether its record is that of a batch, and not only of what one has built.
func (b *Build) IsBatch() bool { return b.Does == "" || b.note != b.Dir }

// IsBuilt says whether its record is that of what is built. The release before had one for both.
func (b *Build) IsBuilt() bool { return b.note == b.Dir && len(b.Spec.Build) > 0 }

// SetBuild keeps a batch's spec, as [Desk.NewBuild] got it, durably.
func (d *Desk) SetBuild(b *Build, spec []byte) error {
	d.forget(b.note)
	return writeBuild(b.note, b.toNote(spec))
}

// BeginBuild makes the directory of what a batch builds, if it has none of its own and there is none.
func (d *Desk) BeginBuild(b *Build) error {
	if b.note == b.Dir {
		return nil
	}
	if _, err := readBuild(b.Dir); err == nil {
		return nil
	}
	spec, err := json.Marshal(b.Spec)
	if err != nil {
		return err
	}
	return writeBuild(b.Dir, b.toNote(spec))
}

func (b *Build) toNote(spec []byte) *buildNote {
	n := &buildNote{b.Batch, b.User, b.Sum, b.Does, b.Again, "", spec}
	if b.Does != "" {
		n.In = b.Name()
	}
	return n
}

// writeBuild makes the directory of a note of a build, if it is not there, and writes the note.
func writeBuild(dir string, n *buildNote) error {
	raw, err := json.Marshal(record{Build: n})
	if err != nil {
		return err
	}
	if err = os.Mkdir(dir, 0o700); errors.Is(err, fs.ErrExist) {
		err = Uncover(dir, "tree", "tmp")
	}
	if err != nil {
		return err
	}
	if err := durable.WriteFile(filepath.Join(dir, proc.RecordFile), append(raw, '\n'), 0o600); err != nil {
		os.Remove(dir) // if it is empty
		return err
	}
	return nil
}

// Builds is every batch that something is known of, nil only if they cannot be listed. What is
// damaged is removed: it is fetched and built again. What cannot be is left and told in the
// error.
func (d *Desk) Builds() ([]*Build, error) {
	entries, err := os.ReadDir(d.path("builds"))
	if err != nil {
		return nil, err
	}
	bs, errs := []*Build{}, []error{d.uncoverRecords("builds")}
	for _, e := range entries {
		if e.IsDir() {
			errs = append(errs, reopenRecord(d.path("builds", e.Name())))
		}
		b, err := readBuild(d.path("builds", e.Name()))
		if err != nil {
			errs = append(errs, d.discard(d.path("builds", e.Name())))
			continue
		}
		bs = append(bs, b)
	}
	return bs, errors.Join(errs...)
}

// Ready says whether the batch has been built in this boot or needs no build.
// What was built in an earlier one may have been cut short by the power.
func (d *Desk) Ready(b *Build) bool {
	if len(b.Spec.Build) == 0 {
		return true
	}
	boot, err := durable.ReadFile(filepath.Join(b.Dir, builtFile), maxBoot)
	if err != nil || string(boot) != d.boot {
		return false
	}
	info, err := os.Lstat(b.Tree()) // a job may have removed or replaced it
	return err == nil && info.IsDir()
}

// SetReady keeps that the batch has been built.
func (d *Desk) SetReady(b *Build) error {
	return writeNew(filepath.Join(b.Dir, builtFile), []byte(d.boot))
}

// SetStarted keeps what a build is started with.
func (b *Build) SetStarted(s *Started) error { return appendRecord(b.Dir, record{Started: s}, false) }

// Started is what SetStarted kept; nil if the build was not started.
func (b *Build) Started() (*Started, error) {
	t, err := readTold(b.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // BeginBuild has not come
	}
	if err != nil {
		return nil, err
	}
	return t.started, nil
}

// Spent removes what nobody needs of a build once it has run.
func (b *Build) Spent() {
	RemoveAll(b.Tmp())
	dropShort(b.Dir)
}

// Unbuild removes what a build left, so that it can be built from the beginning.
func (b *Build) Unbuild() error {
	for _, n := range []string{builtFile, "output", "tmp", "tree", copyFile, beforeFile} {
		if err := RemoveAll(filepath.Join(b.Dir, n)); err != nil {
			return err
		}
	}
	return b.Unstart()
}

// SetAside takes what a build left, and its TMPDIR, out of the way, where it cannot be removed.
func (d *Desk) SetAside(b *Build) error { return errors.Join(d.discard(b.Tree()), d.discard(b.Tmp())) }

// Unready takes SetReady and SetStarted back: the batch is built again for the next attempt.
// What the build left stays until then.
func (b *Build) Unready() error {
	if err := os.Remove(filepath.Join(b.Dir, builtFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return b.Unstart()
}

// Unstart takes SetStarted back.
func (b *Build) Unstart() error { return appendRecord(b.Dir, record{Unstarted: true}, false) }

// stale is a file of what is built of which a batch has said that it is to be built anew: no
// further batch takes it.
const staleFile = "stale"

// SetStale keeps that, and IsStale says so.
func (b *Build) SetStale() error { return writeNew(filepath.Join(b.Dir, staleFile), nil) }

// IsStale says whether SetStale was called.
func (b *Build) IsStale() bool {
	_, err := os.Lstat(filepath.Join(b.Dir, staleFile))
	return err == nil
}

// ForgetBatch forgets a batch, but not what it has built; rest removes what is left of it.
func (d *Desk) ForgetBatch(b *Build) (rest func() error, err error) {
	if b.IsBuilt() {
		return func() error { return nil }, nil
	}
	d.forget(b.note)
	return d.trash(b.note)
}

// DiscardBuild removes what was built, at once out of sight; rest removes it, which can take a
// while.
func (d *Desk) DiscardBuild(b *Build) (rest func() error, err error) {
	d.forget(b.Dir)
	return d.trash(b.Dir)
}
