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

// A Build is the directory of what is known of one batch here, and of what it
// built.
type Build struct {
	Batch job.BatchID
	User  string // who builds it; empty: the daemon's user
	Sum   string // SHA-256 of the spec
	Spec  job.Spec
	Dir   string
}

// buildNote is what is to be built.
type buildNote struct {
	Batch job.BatchID     `json:"batch"`
	User  string          `json:"user,omitempty"`
	Sum   string          `json:"sum"`
	Spec  json.RawMessage `json:"spec"`
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

// buildKey names a build by all that decides it.
func buildKey(batch job.BatchID, user, sum string) string {
	what := string(batch) + "\n" + sum
	if user != "" {
		what += "\n" + user
	}
	key := sha256.Sum256([]byte(what))
	return hex.EncodeToString(key[:])
}

func (d *Desk) buildDir(batch job.BatchID, user, sum string) string {
	return d.path("builds", buildKey(batch, user, sum))
}

// Build is what is known of a batch that the user builds, or if none is named the
// daemon's user; fs.ErrNotExist if its spec was not fetched.
func (d *Desk) Build(batch job.BatchID, user, sum string) (*Build, error) {
	dir := d.buildDir(batch, user, sum)
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
	b := &Build{Dir: dir}
	if err = errors.New("its first line does not say what is built"); t.build != nil {
		err = json.Unmarshal(t.build.Spec, &b.Spec)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, proc.RecordFile), err)
	}
	b.Batch, b.User, b.Sum = t.build.Batch, t.build.User, t.build.Sum
	return b, nil
}

// SetBuild keeps a batch's spec, whose SHA-256 must be sum, durably.
func (d *Desk) SetBuild(batch job.BatchID, user, sum string, spec []byte) (*Build, error) {
	if got := sha256.Sum256(spec); hex.EncodeToString(got[:]) != sum {
		return nil, fmt.Errorf("the spec of %s is not the one that was announced", batch)
	}
	b := &Build{Batch: batch, User: user, Sum: sum, Dir: d.buildDir(batch, user, sum)}
	d.forget(b.Dir)
	if err := json.Unmarshal(spec, &b.Spec); err != nil {
		return nil, fmt.Errorf("the spec of %s: %w", batch, err)
	}
	if err := errors.Join(checkInputs(b.Spec.Inputs), checkInputs(b.Image()), job.CheckMounts(b.Spec.Mounts), job.CheckEnv(b.Spec.Env), job.CheckOutputs(b.Spec.Kind, b.Spec.Outputs)); err != nil {
		return nil, fmt.Errorf("the spec of %s: %w", batch, err)
	}
	raw, err := json.Marshal(record{Build: &buildNote{batch, user, sum, spec}})
	if err != nil {
		return nil, err
	}
	if err = os.Mkdir(b.Dir, 0o700); errors.Is(err, fs.ErrExist) {
		err = Uncover(b.Dir, "tree", "tmp")
	}
	if err != nil {
		return nil, err
	}
	if err := durable.WriteFile(filepath.Join(b.Dir, proc.RecordFile), append(raw, '\n'), 0o600); err != nil {
		os.Remove(b.Dir) // if it is empty
		return nil, err
	}
	return b, nil
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

// DiscardBuild forgets all that is known of a batch, at once; rest removes what
// it built, which can take a while.
func (d *Desk) DiscardBuild(b *Build) (rest func() error, err error) {
	d.forget(b.Dir)
	return d.trash(b.Dir)
}
