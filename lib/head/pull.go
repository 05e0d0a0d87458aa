package head

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"syscall"
	"time"

	"distribute/lib/cli"
	"distribute/lib/job"
	"distribute/lib/pack"
	"distribute/lib/sched"
	"distribute/lib/wire"
	"distribute/spool"
)

const (
	maxPulling  = 512 << 20 // bytes of manifests of results that are pulled at once; in memory they have up to three times that
	largeToPull = 256 << 10 // bytes of a manifest that counts for that
)

// pull sends the result of a job, or what an attempt left; or what the job is.
func (t *tool) pull(m *wire.Pull) error {
	if m.Of != "" {
		return t.pullWork(m)
	}
	batch, name, try, err := job.ParseID(m.ID)
	if err != nil || name == "" {
		return &wire.Error{Ref: m.Ref, Status: cli.Usage, Text: fmt.Sprintf("%.300q is not the id of a job or an attempt", m.ID)}
	}
	if n := t.resultsIn(batch).ManifestSize(name, try); n >= largeToPull {
		return t.whenRoom(t.tools.pulling, n, func() error { return t.pullResult(m, batch, name, try) })
	}
	return t.pullResult(m, batch, name, try)
}

// resultsIn returns the results of a batch, with what was read of them for earlier requests.
func (t *tool) resultsIn(batch job.BatchID) *spool.Results {
	if t.results == nil || t.resultsOf != batch {
		t.results, t.resultsOf = t.spool.Results(batch), batch
	}
	return t.results
}

// pullResult sends what is kept of a job of the batch whose results are at hand.
func (t *tool) pullResult(m *wire.Pull, batch job.BatchID, name string, try int) error {
	manifest, root, err := t.results.Open(name, try)
	if errors.Is(err, fs.ErrNotExist) && t.comes(batch.Job(name), try) && t.settled(func() {}) {
		manifest, root, err = t.results.Open(name, try)
	}
	if err == nil {
		defer root.Close()
	}
	switch {
	case errors.Is(err, fs.ErrNotExist), !t.seesID(batch): // looked at when it is open: its name may pass to another's
		return &wire.Error{Ref: m.Ref, Status: cli.NoSuch, Text: fmt.Sprintf("there is no result of %q", m.ID)}
	case err != nil:
		return err
	}
	s := t.send(wire.OfManifest)
	s.Ref = m.Ref
	if err := t.transfer(s, func(w io.Writer) error { return manifest.Encode(w) }); err != nil {
		return onlyStream(err)
	}
	for told, first := false, true; ; first = false {
		t.c.ReadWithin(toolWithin)
		pick, err := wire.Expect[*wire.Pick](t.c)
		if err != nil || pick.None {
			return err
		}
		if !first && !t.isStill(root, batch, name, try) { // it was deleted meanwhile, and none of its files can be opened
			return &wire.Error{Ref: m.Ref, Status: cli.NoSuch, Text: fmt.Sprintf("there is no result of %q any more", m.ID)}
		}
		err = t.sendPicked(m, pick, manifest, root)
		if asRefusal(err) != nil && !told { // and not that the tool has gone
			told = true
			t.log.Error("cannot send all of a result", "job", m.ID, "first", err)
		}
		if err = onlyStream(err); err != nil || !pick.More {
			return err
		}
	}
}

// comes reports whether a result of a job is on its way to its place, and does not wait for room on
// the disk there. Others that pull are answered at once, whatever the disk does.
func (t *tool) comes(id job.ID, try int) (so bool) {
	t.do(func() {
		k := &t.ticks
		n, open := t.byID[id.Batch()]
		if !open || k.full || time.Since(k.fullAt) < 2*tickEvery {
			return
		}
		i, found := t.batches[n].Index(id.Name())
		its := func(a sched.Action) bool {
			p, ok := a.(sched.Publish)
			return ok && p.Ref == sched.Ref{Batch: n, Job: uint32(i)} && (p.Try == try || p.Out && try == 0)
		}
		so = found && slices.ContainsFunc(k.actions, its)
		for _, on := range slices.Concat([]*tick{k.committing}, k.waiting, k.placing) {
			so = so || found && on != nil && slices.ContainsFunc(on.actions, its)
		}
	})
	return so
}

// isStill reports whether root is the result that a job has now.
func (t *tool) isStill(root *os.Root, batch job.BatchID, name string, try int) bool {
	now, err := t.spool.OpenTree(batch, name, try)
	if err != nil {
		return false
	}
	defer now.Close()
	was, werr := root.Stat(".")
	is, err := now.Stat(".")
	return werr == nil && err == nil && os.SameFile(was, is)
}

// sendPicked sends the wanted entries of a result.
func (t *tool) sendPicked(m *wire.Pull, pick *wire.Pick, manifest pack.Manifest, root *os.Root) error {
	s := t.send(wire.OfTree)
	s.Ref = m.Ref
	return t.transfer(s, func(w io.Writer) error {
		return pack.Sender(t.peer.Local)(w, manifest, pack.Want(pick.Want), func(_ int, e pack.Entry) (io.ReadCloser, error) {
			f, err := openRegular(root, e.Path)
			return unhashed{f}, err
		})
	})
}

// pullWork sends what a job is, or reads, which is for its node and for who runs it
// elsewhere.
func (t *tool) pullWork(m *wire.Pull) error {
	batch, name, _, err := job.ParseID(m.ID)
	switch {
	case err != nil || name == "":
		return &wire.Error{Ref: m.Ref, Status: cli.Usage, Text: fmt.Sprintf("%.300q is not the id of a job or an attempt", m.ID)}
	case !slices.Contains([]string{wire.OfSpec, wire.OfJob, wire.OfInputs}, m.Of):
		return &wire.Error{Ref: m.Ref, Status: cli.Usage, Text: fmt.Sprintf("nothing is known of %.20q", m.Of)}
	}
	if t.jobs == nil || t.jobs.ID != batch {
		t.forgetJobs()
		t.jobs, err = t.spool.Jobs(batch)
	}
	none := &wire.Error{Ref: m.Ref, Status: cli.NoSuch, Text: fmt.Sprintf("no job %q", m.ID)}
	if !t.seesID(batch) { // looked at when it is open: its name may pass to another's
		t.forgetJobs()
		return none
	}
	if err != nil {
		return err
	}
	i, there, err := t.jobs.Find(name)
	if err != nil {
		return err
	}
	if !there {
		return none
	}
	w := &work{batch: t.jobs}
	if w.job, err = t.jobs.Job(i); err != nil {
		return err
	}
	spec := t.jobs.Head.Spec
	if !t.do(func() { t.applySets(t.jobs, i, &spec, &w.job) }) {
		return errEndingNow
	}
	if w.spec, err = json.Marshal(&spec); err != nil {
		return err
	}
	if m.Of == wire.OfInputs {
		if err := w.kept(m.Sums); err != nil {
			return &wire.Error{Ref: m.Ref, Status: cli.IO, Text: fmt.Sprintf("%s: %v", m.ID, err)}
		}
	}
	s := t.send(m.Of)
	s.Ref = m.Ref
	err = t.Head.send(w, t.c, s, &wire.Fetch{Of: m.Of, Sums: m.Sums}, t.peer.Local, t.log)
	if own := (*wire.Error)(nil); errors.As(err, &own) { // before the transfer
		own.Ref = m.Ref
		return own
	}
	return err
}

// kept says which of the inputs that have these sums is no more on the head.
func (w *work) kept(sums []string) error {
	_, inputs, err := w.inputs(sums)
	if err != nil {
		return nil // which is told when they are to be sent
	}
	for _, sum := range sums {
		r, _, err := w.batch.OpenInput(inputs[sum])
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("its input %q is kept no more", inputs[sum].Path)
		}
		if err == nil {
			r.Close()
		}
	}
	return nil
}

// forgetJobs closes what was opened for that.
func (t *tool) forgetJobs() {
	if t.jobs != nil {
		t.jobs.Close()
	}
	t.jobs = nil
}

// onlyStream leaves of an error of sending what broke the stream; what else it
// was, the receiver has been told by the end of the transfer.
func onlyStream(err error) error {
	if asRefusal(err) == nil {
		return err
	}
	return nil
}

// openRegular opens a file of a result, which nothing of ours makes anything
// else than a regular file. It waits for no FIFO.
func openRegular(root *os.Root, path string) (*os.File, error) {
	f, err := root.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(fmt.Errorf("%q is not a regular file", path), err, f.Close())
	}
	return f, nil
}
