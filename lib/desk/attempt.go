package desk

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"distribute/lib/durable"
	"distribute/lib/job"
	"distribute/lib/line"
	"distribute/lib/pack"
	"distribute/lib/proc"
)

// A Note is what is known of an attempt before it runs.
type Note struct {
	Boot  string      `json:"boot"`  // id of the boot in which it was given
	Order int         `json:"order"` // grows from one to the next that is given
	Token job.Token   `json:"attempt"`
	Job   job.ID      `json:"job"`
	Try   int         `json:"try"`
	CPUs  int         `json:"cpus"`
	GPUs  []int       `json:"gpus,omitempty"`  // indexes of those that the head gave it
	Also  []job.Visit `json:"also,omitempty"`  // what the head gave it of other nodes of the machine
	User  string      `json:"user,omitempty"`  // who has submitted it, as the head has proven
	Spec  string      `json:"spec"`            // SHA-256 of the batch's spec
	Work  *job.Job    `json:"work,omitempty"`  // absent while it is still to be fetched
	Time  *int64      `json:"time,omitempty"`  // seconds that it may run, where that is not what the job says; 0: no limit
	Never bool        `json:"never,omitempty"` // its batch says retry: never

	Saved job.Token `json:"saved,omitempty"` // the attempt with whose saved files it goes on
	Anew  int       `json:"anew,omitempty"`  // when its batch was to be built anew; 0: never
}

// Check reports why a note is not one: its ids become names of files.
func (n *Note) Check() error {
	if err := n.Token.Check(); err != nil {
		return err
	}
	batch, name, try, err := job.ParseID(string(n.Job))
	switch {
	case err != nil:
		return err
	case batch == "" || name == "" || try != 0:
		return fmt.Errorf("%.300q is not the id of a job", string(n.Job))
	case slices.ContainsFunc(n.Also, func(v job.Visit) bool { return v.Ranks < 1 || v.Ranks > job.MaxRanks }):
		return errors.New("no rank is on one of its nodes")
	case n.Saved != "" && n.Saved.Check() != nil:
		return n.Saved.Check()
	case n.Work != nil && n.Work.Name != name:
		return fmt.Errorf("the work of %q is that of %.120q", string(n.Job), n.Work.Name)
	case n.Work != nil && job.CheckEnv(n.Work.Env) != nil:
		return job.CheckEnv(n.Work.Env)
	case n.Work != nil && job.CheckOutputs(job.Command, n.Work.Outputs) != nil:
		return job.CheckOutputs(job.Command, n.Work.Outputs)
	}
	return checkSum(n.Spec)
}

// A record is one line of the record of an attempt or a build ([proc.RecordFile]). One member is
// set, but that a list goes with a result.
type record struct {
	Given     *Note       `json:"given,omitempty"`
	Build     *buildNote  `json:"build,omitempty"`
	Job       *job.Job    `json:"job,omitempty"` // of a note that came without it
	Started   *Started    `json:"started,omitempty"`
	Unstarted bool        `json:"unstarted,omitempty"` // that was taken back
	Ending    string      `json:"ending,omitempty"`    // why it is about to be ended
	Full      bool        `json:"full,omitempty"`      // the disk was full while it ran
	Result    *job.Result `json:"result,omitempty"`
	List      line.Raw    `json:"list,omitempty"` // its manifest, if that has few entries

	proc.Line
}

// told is what a record says of an attempt or a build, but for what [proc.Run] has.
type told struct {
	given   *Note
	build   *buildNote
	started *Started
	ending  string
	full    bool
	result  *job.Result
	list    line.Raw
}

// fold takes a line of the record in.
func (t *told) fold(r *record) {
	switch {
	case r.Given != nil:
		t.given = r.Given
	case r.Build != nil:
		t.build = r.Build
	case r.Job != nil && t.given != nil:
		t.given.Work = r.Job
	case r.Started != nil:
		t.started = r.Started
	case r.Unstarted:
		t.started = nil
	case r.Ending != "":
		t.ending = r.Ending
	case r.Full:
		t.full = true
	case r.Result != nil:
		t.result, t.list = r.Result, r.List
	}
}

// readTold folds the record in a directory; fs.ErrNotExist if there is none. What is no line
// is passed over: its writer was killed, or the disk was full.
func readTold(dir string) (*told, error) {
	b, err := proc.ReadRecord(dir)
	if err != nil {
		return nil, err
	}
	t := &told{}
	foldLines(b, t.fold, nil)
	return t, nil
}

// foldLines gives each line of a record, and tells bad, if that is not nil, of what is none.
func foldLines(text []byte, fold func(*record), bad func(number int, err error)) {
	number := 0
	for l := range bytes.Lines(text) {
		number++
		var r record
		err := json.Unmarshal(l, &r)
		if err == nil && l[len(l)-1] != '\n' {
			err = errors.New("it has no end")
		}
		if err == nil {
			fold(&r)
		} else if bad != nil {
			bad(number, err)
		}
	}
}

// An Attempt is the directory of one attempt.
type Attempt struct {
	Note
	Dir string

	mu   sync.Mutex
	told told // what its record says
}

// Names of what is in an attempt's directory, beside [proc.RecordFile].
const (
	manifestFile = "manifest.jsonl"
	beforeFile   = "before.jsonl"
	savedDir     = "saved"
	imageDir     = "image"
	imageFile    = "image.sif" // in imageDir; in an attempt of the release before beside it
	builtFile    = "built"     // of a build
)

// manyEntries is from how many entries on a manifest has a file of its own.
const manyEntries = 65

// WorkDir is the directory that the job runs in.
func (a *Attempt) WorkDir() string { return filepath.Join(a.Dir, "work") }

// Tmp is the directory that the job has as its TMPDIR, by the name that [ShortTmp] returns.
func (a *Attempt) Tmp() string { return filepath.Join(a.Dir, "tmp") }

// Image is the image in which the job runs, if it needs one. All may read the file, and
// only the job's user goes through its directory.
func (a *Attempt) Image() string { return filepath.Join(a.Dir, imageDir, imageFile) }

// Output is the file with what the job printed.
func (a *Attempt) Output() string { return filepath.Join(a.Dir, outputFile) }

// RankOutput is the file with what a rank of the job printed: the first one into that of
// the attempt.
func (a *Attempt) RankOutput(rank int) string {
	if rank == 0 {
		return a.Output()
	}
	return a.Output() + "." + strconv.Itoa(rank)
}

const outputFile = "output"

// ofRank says whether a file in the directory of an attempt is what a rank of the job has
// printed, but for the first.
func ofRank(name string) bool {
	k, cut := strings.CutPrefix(name, outputFile+".")
	n, err := strconv.Atoi(k)
	return cut && err == nil && n > 0 && n < job.MaxRanks && k == strconv.Itoa(n)
}

// Extra is the directory of files that come home beside those of the job.
func (a *Attempt) Extra() string { return filepath.Join(a.Dir, "extra") }

// SavedDir is the directory into which saved files come, before they are moved
// into that of the job.
func (a *Attempt) SavedDir() string { return filepath.Join(a.Dir, savedDir) }

// Begin notes attempts. Those that are never to be started twice are on the disk then, which
// costs little more for many than for one; of the others a power cut may leave nothing, and
// the head, which finds them missing in the list of the node, starts their jobs again.
// The result has an error for each that could not be noted; one that was noted
// before is returned as it is, with fs.ErrExist.
func (d *Desk) Begin(notes []Note) ([]*Attempt, []error) {
	d.Stock()
	as, errs := make([]*Attempt, len(notes)), make([]error, len(notes))
	var files []*os.File
	var of []int
	for i := range notes {
		n := notes[i]
		n.Boot = d.boot
		if errs[i] = n.Check(); errs[i] != nil {
			continue
		}
		as[i] = &Attempt{Note: n, Dir: d.path("attempts", string(n.Token))}
		opened, err := as[i].note(n.Never)
		for _, f := range opened {
			files, of = append(files, f), append(of, i)
		}
		errs[i] = err
	}
	if len(files) > 0 {
		if dir, err := os.Open(d.path("attempts")); err == nil {
			files, of = append(files, dir), append(of, -1)
		}
	}
	for k, err := range durable.SyncAll(files) {
		if i := of[k]; err != nil && i >= 0 {
			errs[i] = err
		} else if err != nil {
			for i := range errs {
				if errs[i] == nil {
					errs[i] = err
				}
			}
		}
	}
	for _, f := range files {
		f.Close()
	}
	for i, err := range errs {
		if err != nil && as[i] != nil && !errors.Is(err, fs.ErrExist) {
			d.discard(as[i].Dir)
		}
	}
	return as, errs
}

// note makes the directory and its record and returns what has to be synced.
func (a *Attempt) note(durably bool) ([]*os.File, error) {
	if err := os.Mkdir(a.Dir, 0o700); err != nil {
		return nil, err
	}
	b, err := json.Marshal(record{Given: &a.Note})
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(a.Dir, proc.RecordFile), os.O_RDWR|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	if _, err := f.Write(append(b, '\n')); err != nil || !durably {
		return nil, errors.Join(err, f.Close())
	}
	dir, err := os.Open(a.Dir)
	if err != nil {
		return []*os.File{f}, err
	}
	return []*os.File{f, dir}, nil
}

// Attempts is every attempt in the directory, nil only if that cannot be listed. Those that
// were not noted whole are removed, as are those that their jobs have renamed or left without
// a record, and what is not a directory; those whose note cannot be understood are left and
// told in the error, each by an [UnreadableError]; so are those whose record is no file. Where
// the directory has not the name of an attempt it is moved to found/.
func (d *Desk) Attempts() ([]*Attempt, error) {
	entries, err := os.ReadDir(d.path("attempts"))
	if err != nil {
		return nil, err
	}
	as, errs := []*Attempt{}, []error{d.uncoverRecords("attempts")}
	for _, e := range entries {
		dir := d.path("attempts", e.Name())
		if !e.IsDir() { // a job has put it there
			errs = append(errs, d.discard(dir))
			continue
		}
		errs = append(errs, reopenRecord(dir))
		record := filepath.Join(dir, proc.RecordFile)
		t, err := readTold(dir)
		if err == nil && t.given == nil && !readable(dir) || errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, d.discard(dir))
			continue
		}
		a := &Attempt{Dir: dir}
		switch {
		case err != nil:
		case t.given == nil:
			err = errors.New("its first line is damaged")
		default:
			a.Note, a.told = *t.given, *t
			err = a.Check()
		}
		if err == nil && string(a.Token) != e.Name() {
			errs = append(errs, d.discard(dir)) // its job has given it that name
			continue
		}
		if err != nil {
			err = fmt.Errorf("%s: %w", record, err)
			if token := job.Token(e.Name()); token.Check() == nil {
				errs = append(errs, &UnreadableError{token, err})
			} else { // of which the head knows nothing
				_, aside := d.SetUnreadableAside(token)
				errs = append(errs, err, aside)
			}
			continue
		}
		as = append(as, a)
	}
	return as, errors.Join(errs...)
}

// readable says whether the record in a directory has a whole line.
func readable(dir string) bool {
	b, err := proc.ReadRecord(dir)
	return err != nil || bytes.IndexByte(b, '\n') >= 0
}

// Settle makes durable which attempts there are, and the notes of those that are not
// over: a daemon that was killed may have noted some or removed others, and not come so
// far. The head forgets what is not in the list of this one, so that a power cut must not
// bring it back. It costs one round of syncs for all.
func (d *Desk) Settle(as []*Attempt) error {
	files := []*os.File{}
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	for _, a := range as {
		if a.told.result != nil || !d.ThisBoot(a) {
			continue
		}
		f, err := durable.Open(filepath.Join(a.Dir, proc.RecordFile), os.O_RDONLY, 0)
		if err != nil {
			return err
		}
		files = append(files, f)
		dir, err := os.Open(a.Dir)
		if err != nil {
			return err
		}
		files = append(files, dir)
	}
	return errors.Join(append(durable.SyncAll(files), d.SyncAttempts())...)
}

// SetWork keeps the job of an attempt whose note came without it, durably.
func (a *Attempt) SetWork(j *job.Job) error {
	n := a.Note
	n.Work = j
	if err := n.Check(); err != nil {
		return err
	}
	if err := a.add(record{Job: j}, true); err != nil {
		return err
	}
	a.Work = j // the rest may be read meanwhile
	return nil
}

// add appends a line to the record, and takes it in.
func (a *Attempt) add(r record, sync bool) error {
	if err := appendRecord(a.Dir, r, sync); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.told.fold(&r)
	return nil
}

// appendRecord appends a line to the record in a directory.
func appendRecord(dir string, r record, sync bool) error {
	if err := proc.Append(dir, r); err != nil || !sync {
		return err
	}
	return durable.SyncFile(filepath.Join(dir, proc.RecordFile))
}

// Started is what is kept of an attempt or a build from the moment that it may
// run.
type Started struct {
	Kind   string       `json:"kind"`             // of the batch
	Token  job.Token    `json:"token,omitempty"`  // of a build's run
	As     *Owner       `json:"as,omitempty"`     // who it runs as; nil: the daemon's user
	Cgroup string       `json:"cgroup,omitempty"` // below which its tree is
	Saved  int64        `json:"saved,omitempty"`  // bytes of disk that what was saved takes
	CPUs   []int        `json:"cpus,omitempty"`   // numbers of those that it runs on; none: any
	GPUs   []int        `json:"gpus,omitempty"`   // indexes of those that it has
	Part   job.GPUs     `json:"part,omitempty"`   // of the only one of these; 0: all
	Memory int64        `json:"memory,omitempty"` // bytes of the node's memory that are counted for it
	Grows  bool         `json:"grows,omitempty"`  // it may have more, while there is
	Time   int64        `json:"time,omitempty"`   // seconds that it may run; 0: no limit
	Ranks  int          `json:"ranks,omitempty"`  // so many processes of its command run side by side; 0: one, which is no rank
	MPI    int          `json:"mpi,omitempty"`    // so many ranks, which its one process starts, mpirun
	Port   int          `json:"port,omitempty"`   // at which ranks can meet
	Also   []Portion    `json:"also,omitempty"`   // what it has of other nodes of the machine
	Shared []job.Input  `json:"shared,omitempty"` // inputs that lie in the cache only
	At     []SharedFile `json:"at,omitempty"`     // as they were
	Base   int64        `json:"base,omitempty"`   // bytes of disk that were there before; 0: as many as its small inputs, what was built and what was saved have

	SavedFiles int64 `json:"saved_files,omitempty"` // inodes that what was saved takes

	Build   string   `json:"build,omitempty"`   // the directory in builds/ of what its batch built; absent: nothing, or an earlier release did not note it
	Outputs []string `json:"outputs,omitempty"` // what comes home of it; none: everything
	Printed *int64   `json:"printed,omitempty"` // bytes that it may print; 0: no limit; nil: an earlier release did not note it
}

// A Portion is what an attempt has, on another node than its own, for some of its ranks.
type Portion struct {
	job.Portion
	CPUs   int   `json:"cpus"`             // so many
	On     []int `json:"on,omitempty"`     // the numbers of these; none: any
	GPUs   []int `json:"gpus,omitempty"`   // the indexes of those that it has
	Memory int64 `json:"memory,omitempty"` // bytes of the node's memory that are counted for it
}

// SetStarted keeps s. From then on the attempt is not prepared again.
func (a *Attempt) SetStarted(s *Started) error { return a.add(record{Started: s}, false) }

// SetLimit keeps, durably, how many seconds it may run that runs already; 0 is no
// limit. A limit is not made shorter by it.
func (a *Attempt) SetLimit(seconds int64) error {
	return a.add(record{Line: proc.Line{Limit: &seconds}}, true)
}

// SetEnding keeps why an attempt that runs is about to be ended for want of memory, for
// the daemon that comes next in this boot: it is not durable.
func (a *Attempt) SetEnding(why string) error { return a.add(record{Ending: why}, false) }

// Ending is what SetEnding kept, without which it is empty.
func (a *Attempt) Ending() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.told.ending
}

// SetFull keeps that the disk was full while the attempt ran, for the daemon that comes next in
// this boot. It needs no room where the last block of the record has some, as most have, and
// the ballast is not given up for it: what still runs would fill that too.
func (a *Attempt) SetFull() error { return a.add(record{Full: true}, false) }

// MetFull reports whether SetFull was called.
func (a *Attempt) MetFull() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.told.full
}

// Unstart takes SetStarted back: nothing of the attempt ran.
func (a *Attempt) Unstart() error { return a.add(record{Unstarted: true}, false) }

// Started is what SetStarted kept; nil if the attempt cannot have run. It is not to be
// changed.
func (a *Attempt) Started() *Started {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.told.started
}

// Settle makes all that is left of an attempt that is over durable.
func (a *Attempt) Settle() error {
	if info, err := os.Lstat(a.Dir); err != nil || !info.IsDir() { // SyncTree would wait for a FIFO
		return cmp.Or(err, error(&fs.PathError{Op: "sync", Path: a.Dir, Err: syscall.ENOTDIR}))
	}
	if err := durable.SyncTree(a.Dir); err != nil {
		return err
	}
	return durable.SyncDir(filepath.Dir(a.Dir))
}

// SetResult keeps how the attempt ended, with the manifest of what it left, which
// may be nil. Worth says that it is worth being made durable, with all that the
// attempt left; what is not is lost with a power cut, and run again.
func (a *Attempt) SetResult(r *job.Result, m pack.Manifest, worth bool) error {
	rec := record{Result: r}
	switch {
	case m == nil:
	case len(m) < manyEntries:
		rec.List = m.List()
	default:
		if err := a.writeManifest(m); err != nil {
			return err
		}
	}
	if err := durable.Step("attempt.result"); err != nil {
		return err
	}
	if worth {
		if err := a.Settle(); err != nil {
			return err
		}
	}
	return a.add(rec, worth)
}

func (a *Attempt) writeManifest(m pack.Manifest) error {
	f, err := durable.Open(filepath.Join(a.Dir, manifestFile), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(m.Encode(f), f.Close())
}

// Result is what SetResult kept; nil if the attempt is not over.
func (a *Attempt) Result() *job.Result {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.told.result
}

// rawLetters replaces the letters that dnoded of an earlier release escaped in a record.
var rawLetters = strings.NewReplacer(`\\`, `\\`, `\u003c`, "<", `\u003e`, ">", `\u0026`, "&", `\u2028`, "\u2028", `\u2029`, "\u2029")

// parseList returns the manifest of a record, which has these letters as they are.
func parseList(list line.Raw) (pack.Manifest, error) {
	return pack.ParseList([]byte(rawLetters.Replace(string(list))), pack.Limits{})
}

// Manifest is the manifest that SetResult kept.
func (a *Attempt) Manifest() (pack.Manifest, error) {
	a.mu.Lock()
	list := a.told.list
	a.mu.Unlock()
	if list != nil {
		return parseList(list)
	}
	f, err := durable.Open(filepath.Join(a.Dir, manifestFile), os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return pack.DecodeManifest(f, pack.Limits{})
}

// Sweep removes everything of an attempt that was not started but its note, so
// that it can be prepared from the beginning.
func (a *Attempt) Sweep() error {
	list, err := os.ReadDir(a.Dir)
	if err != nil {
		return err
	}
	for _, e := range list {
		n := e.Name()
		if !ofRank(n) && !slices.Contains([]string{"work", "tmp", "extra", outputFile, beforeFile, savedDir, imageDir, imageFile}, n) {
			continue
		}
		if err := RemoveAll(filepath.Join(a.Dir, n)); err != nil {
			return err
		}
	}
	return nil
}

// Spent removes what nobody needs of an attempt once it is over.
func (a *Attempt) Spent() {
	if os.Remove(a.Tmp()) != nil {
		RemoveAll(a.Tmp())
	}
	dropShort(a.Dir)
}

// Discard removes the attempt.
func (d *Desk) Discard(a *Attempt) error { return d.discard(a.Dir) }

// SyncAttempts makes durable which attempts there are: one that was discarded
// may be back after a power cut before that.
func (d *Desk) SyncAttempts() error { return durable.SyncDir(d.path("attempts")) }

// Sync makes all that is in the directory durable, and all else that is on its
// file system with it.
func (d *Desk) Sync() error {
	f, err := os.Open(d.dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return durable.Syncfs(f)
}

// ThisBoot says whether the attempt was given in this boot of the machine.
func (d *Desk) ThisBoot(a *Attempt) bool { return a.Boot == d.boot }

// writeNew makes name hold data, in one step but not durably.
func writeNew(name string, data []byte) error {
	tmp := name + ".new"
	if err := writeFile(tmp, data); err != nil {
		return err
	}
	return os.Rename(tmp, name)
}

// writeFile writes data into the regular file of that name.
func writeFile(name string, data []byte) error {
	f, err := durable.Open(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}
