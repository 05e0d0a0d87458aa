package head

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"distribute/lib/cli"
	"distribute/lib/job"
	"distribute/lib/line"
	"distribute/lib/sched"
	"distribute/lib/unit"
	"distribute/lib/wire"
	"distribute/spool"
)

// printed sends what a job or its build printed: from its node while it runs,
// else from its result.
func (t *tool) printed(ctx context.Context, m *wire.Log) error {
	batch, name, try, err := job.ParseID(m.ID)
	if err != nil || name == "" {
		return &wire.Error{Ref: m.Ref, Status: cli.Usage, Text: fmt.Sprintf("%.300q is not the id of a job or an attempt", m.ID)}
	}
	if m.Rank < 0 {
		return &wire.Error{Ref: m.Ref, Status: cli.Usage, Text: fmt.Sprintf("no job has a rank %d", m.Rank)}
	}
	if m.From < 0 {
		return &wire.Error{Ref: m.Ref, Status: cli.Usage, Text: fmt.Sprintf("no output begins at byte %d", m.From)}
	}
	id := batch.Job(name)
	live, ok := t.live(id) // first, so that one that is over by now has its end in the row
	row, err := t.row(id)
	if err != nil {
		return err
	}
	if ok && (try == 0 || try == live.Try) && live.Node.Abroad() {
		return &wire.Error{Ref: m.Ref, Status: cli.NoSuch, Text: fmt.Sprintf(
			"the job is on %s: what it prints is here when d2slurm -r has brought it home", live.Node)}
	}
	if ok && (try == 0 || try == live.Try) {
		if ranks := max(1, live.Ranks); m.Rank >= ranks {
			return &wire.Error{Ref: m.Ref, Status: cli.NoSuch, Text: fmt.Sprintf("the job has no rank %d: it has %s, from 0", m.Rank, unit.Count(ranks, "rank"))}
		}
		prints := slices.Contains([]job.Phase{job.PhaseRunning, job.PhasePaused, job.PhaseStuck, job.PhaseReturning}, live.Phase)
		if s := t.session(live); s != nil && (prints || live.Phase == job.PhaseBuilding && m.Build) {
			return t.tailed(ctx, m, s, id, live)
		}
	}
	if m.Build {
		if m.From > 0 && try != row.Attempt {
			return &wire.Error{Ref: m.Ref, Status: cli.NoSuch, Text: fmt.Sprintf("the job %q was given to another node, and what the build prints there is another log", id)}
		}
		t.awaitLog(ctx, buildOf{batch, row.Node})
		f, err := t.built(m, row)
		if err != nil {
			return err
		}
		return t.sendFile(m, batch, &outputFile{File: f}, row.Attempt, "")
	}
	if try == 0 {
		try = row.Attempt
	}
	f, err := t.output(row, try, m.Rank)
	if err != nil {
		return err
	}
	return t.sendOutput(m, row, f, try)
}

// An outputFile is the file of what an attempt printed, which has finished.
type outputFile struct {
	*os.File
	damage error // it is shorter than its manifest says
}

// stillSees is called when an output is open: its batch may have been made
// private, or its name have passed to another's, since it was looked for.
func (t *tool) stillSees(m *wire.Log, batch job.BatchID) error {
	if t.seesID(batch) {
		return nil
	}
	return &wire.Error{Ref: m.Ref, Status: cli.NoSuch, Text: fmt.Sprintf("no job %q", m.ID)}
}

// row is the row of one job, with its earlier attempts, without its parameters.
func (t *tool) row(id job.ID) (*job.Row, error) {
	batch := id.Batch()
	none := &wire.Error{Status: cli.NoSuch, Text: fmt.Sprintf("no job %q", id)}
	infos, problems, err := t.store.Batch(batch)
	switch {
	case err != nil:
		return nil, err
	case len(problems) > 0 && t.seesID(batch):
		return nil, errDamaged(batch)
	case len(infos) == 0 || !t.sees(batch, &infos[0].Head):
		none.Text += ": there is no such batch"
		return nil, none
	}
	var snap *snapshot
	t.do(func() { snap = t.snapshotOf(id) })
	if snap == nil {
		return nil, &wire.Error{Status: cli.Later, Text: "dsched is ending"}
	}
	upto, open := snap.open[batch]
	if !open {
		if upto, err = t.spool.LogSize(batch); err != nil {
			upto = -1 // reading it tells why
		}
	}
	table, err := t.table(&infos[0], upto)
	var bad *spool.Problem
	switch {
	case errors.Is(err, fs.ErrNotExist): // it was deleted meanwhile
		return nil, none
	case errors.As(err, &bad):
		t.log.Error("cannot read a batch", "problem", bad.Error())
		return nil, errDamaged(batch)
	case err != nil:
		return nil, err
	case !table.Of(&infos[0]): // another one, perhaps a private one, has got the name meanwhile
		return nil, none
	}
	row, number, ok := table.Row(id.Name())
	if !ok {
		return nil, none
	}
	var waits why
	if row.State == job.Queued {
		waits = t.stuck(batch)
	}
	snap.tell(row, number, waits)
	return row, nil
}

// table returns the rows of a batch up to a byte of its log: those that are kept, or else it
// reads them.
func (t *tool) table(i *spool.Info, upto int64) (table *spool.Table, err error) {
	kept := &t.tools.table
	if table = kept.get(i, upto); table != nil {
		return table, nil
	}
	err = t.whenRoom(t.tools.reading, int64(i.Head.Jobs), func() error {
		table, err = kept.read(i.ID, upto)
		return err
	})
	if err == nil {
		kept.put(table)
	}
	return table, err
}

// live is the attempt of a job that a node has now.
func (h *Head) live(id job.ID) (a sched.Attempt, ok bool) {
	h.do(func() { a, ok = h.attemptOf(id) })
	return a, ok
}

// attemptOf is live, for the state's goroutine.
func (h *Head) attemptOf(id job.ID) (a sched.Attempt, ok bool) {
	n, open := h.byID[id.Batch()]
	if !open {
		return a, false
	}
	i, found := h.batches[n].Index(id.Name())
	if !found {
		return a, false
	}
	ref := sched.Ref{Batch: n, Job: uint32(i)}
	if a, ok = h.machine.Current(ref); !ok {
		a, ok = h.machine.Stopping(ref)
	}
	return a, ok
}

// session is the session of the node that has an attempt.
func (h *Head) session(a sched.Attempt) (s *session) {
	h.do(func() { s = h.nodes.sessions[h.nodes.byName[a.Node]] })
	return s
}

// tailed sends what the node sends of an attempt's output. What that does not
// have any more is here.
func (t *tool) tailed(ctx context.Context, m *wire.Log, s *session, id job.ID, a sched.Attempt) error {
	ask := wire.Tail{Attempt: a.Token, Build: m.Build, Rank: m.Rank, From: m.From, Lines: m.Lines, Follow: m.Follow}
	log, end := s.tail(ask, maxTails, t.peer.UID)
	if log == nil {
		return &wire.Error{Ref: m.Ref, Status: cli.Later, Text: fmt.Sprintf(
			"%d logs are followed on node %s already, which is the limit, and nobody follows many more than you", maxTails, s.name)}
	}
	ctx, stop := t.whileThere(ctx)
	defer stop()
	if m.Lines > 0 {
		select {
		case <-log.begun:
		case <-ctx.Done():
		}
		from, ok := s.start(log)
		var why error
		if !ok {
			why = end()
		}
		switch {
		case why == errNotThere && !m.Build:
			return t.lastWord(t.cameHome(m, id, a.Try))
		case why == errYielded:
			return t.lastWord(&wire.Error{Ref: m.Ref, Status: cli.Later, Text: why.Error()})
		case why == errAway:
			return t.lastWord(&wire.Error{Ref: m.Ref, Status: cli.NoSuch, Text: why.Error()})
		}
		ask.From, ask.Lines = from, 0
	}
	if err := t.stillSees(m, id.Batch()); err != nil {
		end()
		return t.lastWord(err)
	}
	send := t.sendLog(m, ask.From, a.Try)
	err := t.transfer(send, func(w io.Writer) error {
		out := w.(*wire.Writer)
		for {
			cut := end
			uncut := context.AfterFunc(ctx, func() { cut() })
			n, err := copyFrames(out, log.frames)
			uncut()
			ask.From += n
			why := end()
			switch {
			case err != nil || why == nil || ctx.Err() != nil:
				send.Cut = s.cut(log)
				return t.unlessGone(ctx, err)
			case why == errNotThere && !m.Build:
				send.Cut, err = t.sendRest(out, id, a.Try, m.Rank, ask.From)
				return err
			case why == errNotThere || why == errAway || why == errYielded:
				return why
			}
			if log, end = s.tail(ask, maxTails, t.peer.UID); log == nil {
				return errSlow
			}
		}
	})
	end()
	return errors.Join(err, errHungUp)
}

// lastWord tells why a request cannot be honoured, if so, on a stream that is of
// no more use then.
func (t *tool) lastWord(err error) error {
	if refusal := asRefusal(err); refusal != nil {
		err = t.c.Send(refusal)
	}
	return errors.Join(err, errHungUp)
}

// sendLog begins the answer that has what an attempt printed from a byte on.
func (t *tool) sendLog(m *wire.Log, from int64, try int) *wire.Send {
	s := t.send(wire.OfLog)
	s.Ref, s.From, s.Try = m.Ref, from, try
	return s
}

// cameHome sends what an attempt printed, from the file that came home.
func (t *tool) cameHome(m *wire.Log, id job.ID, try int) error {
	row, err := t.row(id)
	if err != nil {
		return err
	}
	f, err := t.output(row, try, m.Rank)
	if err != nil {
		return err
	}
	return t.sendOutput(m, row, f, try)
}

// sendRest goes on at a byte with what an attempt printed, from the file that
// came home. It returns why that lacks its end, or "".
func (t *tool) sendRest(w io.Writer, id job.ID, try, rank int, from int64) (cut string, err error) {
	row, err := t.row(id)
	if err != nil {
		return "", err
	}
	f, err := t.output(row, try, rank)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if _, err := f.Seek(from, io.SeekStart); err != nil {
		return "", err
	}
	_, err = io.Copy(w, f)
	return whyCut(row, try, f.File), cmp.Or(err, f.damage)
}

// copyFrames sends frames on as they come, and says how many bytes.
func copyFrames(out *wire.Writer, frames <-chan []byte) (n int64, err error) {
	for p := range frames {
		n += int64(len(p))
		if _, err := out.Write(p); err != nil {
			return n, err
		}
		if err := out.Flush(); err != nil {
			return n, err
		}
	}
	return n, nil
}

// output opens the file of what an attempt that is over printed, or a rank of it.
func (t *tool) output(r *job.Row, try, rank int) (*outputFile, error) {
	id := r.ID.Try(try)
	if try == 0 || r.State == job.Done && r.Attempt == try { // its result is the job's
		id, try = string(r.ID), 0
	}
	root, err := t.spool.OpenTree(r.ID.Batch(), r.Job, try)
	if errors.Is(err, fs.ErrNotExist) && r.State.Over() && t.comes(r.ID, try) && t.settled(func() {}) {
		root, err = t.spool.OpenTree(r.ID.Batch(), r.Job, try)
	}
	if errors.Is(err, fs.ErrNotExist) && try > 0 { // or it is all that is kept
		if f, err := t.spool.Printed(r.ID, try); !errors.Is(err, fs.ErrNotExist) {
			return &outputFile{File: f}, err
		}
	}
	switch {
	case errors.Is(err, fs.ErrNotExist) && r.State == job.Running && try == r.Attempt:
		return nil, &wire.Error{Status: cli.NoSuch, Text: fmt.Sprintf("nothing is printed yet: the job is %s on %s", r.Phase, r.Node)}
	case errors.Is(err, fs.ErrNotExist):
		return nil, &wire.Error{Status: cli.NoSuch, Text: fmt.Sprintf("nothing that %q printed is here: the job is %s", id, r.State)}
	}
	if err != nil {
		return nil, err
	}
	defer root.Close()
	whole := func(f *os.File, file string) *outputFile {
		return &outputFile{f, t.shortened(f, root, r.ID.Batch(), r.Job, try, file)}
	}
	if rank > 0 {
		f, err := openRegular(root, job.RankOutputName(r.Job, 0)) // else a file of that name is the job's own
		if err == nil {
			f.Close()
			f, err = openRegular(root, job.RankOutputName(r.Job, rank))
		}
		if errors.Is(err, fs.ErrNotExist) {
			err = &wire.Error{Status: cli.NoSuch, Text: fmt.Sprintf("nothing that a rank %d of %q printed is here", rank, id)}
		}
		if err != nil {
			return nil, err
		}
		return whole(f, job.RankOutputName(r.Job, rank)), nil
	}
	f, err := openRegular(root, job.OutputName(r.Job))
	if err == nil {
		return whole(f, job.OutputName(r.Job)), nil
	}
	if errors.Is(err, fs.ErrNotExist) && try > 0 { // it has just been moved out of there
		f, err = t.spool.Printed(r.ID, try)
	}
	if errors.Is(err, fs.ErrNotExist) {
		text := fmt.Sprintf("nothing that %q printed is here", id)
		if unbuilt(r) && try == r.Attempt {
			text = fmt.Sprintf("%q did not run: %s", id, r.Reason)
		}
		return nil, &wire.Error{Status: cli.NoSuch, Text: text}
	}
	return &outputFile{File: f}, err
}

// unbuilt reports whether a job failed as its batch could not be built.
func unbuilt(r *job.Row) bool {
	return strings.HasPrefix(r.Reason, sched.ReasonBuild) || strings.HasPrefix(r.Reason, sched.ReasonBox)
}

// shortened returns an error if a file of a result, whose directory is root, is shorter than the
// manifest says. Of what has no manifest that can be read it says nothing.
func (t *tool) shortened(f *os.File, root *os.Root, batch job.BatchID, name string, try int, file string) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	size, err := t.resultsIn(batch).FileSize(name, try, file)
	if err != nil || info.Size() >= size || !t.isStill(root, batch, name, try) {
		return nil
	}
	return fmt.Errorf("the file is damaged on the head: %d of its %d bytes are left (dfsck -s shows that there)", info.Size(), size)
}

// built opens what the batch's build printed on the node of the job's attempt.
func (t *tool) built(m *wire.Log, r *job.Row) (*os.File, error) {
	var f *os.File
	err := fs.ErrNotExist
	if unbuilt(r) && (!t.comes(r.ID, r.Attempt) || t.settled(func() {})) { // it has come with the attempt, and says why, as a copy made before may not
		if root, rerr := t.spool.OpenTree(r.ID.Batch(), r.Job, r.Attempt); rerr == nil {
			defer root.Close()
			f, err = openRegular(root, job.BuildOutput)
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		f, err = t.spool.OpenBuildLog(r.ID.Batch(), r.Node)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &wire.Error{Ref: m.Ref, Status: cli.NoSuch, Text: fmt.Sprintf("nothing that a build of %s printed on %q is here", r.ID.Batch(), r.Node)}
	}
	return f, err
}

// sendOutput is sendFile, of an attempt that has finished.
func (t *tool) sendOutput(m *wire.Log, r *job.Row, f *outputFile, try int) error {
	return t.sendFile(m, r.ID.Batch(), f, try, whyCut(r, try, f.File))
}

// whyCut returns why the output of an attempt that has finished lacks its end, or "".
func whyCut(r *job.Row, try int, f *os.File) string {
	info, err := f.Stat()
	if err != nil {
		return ""
	}
	for _, a := range r.Attempts() {
		if a.Attempt == try {
			return job.WhyCut(a.Reason, info.Size())
		}
	}
	return ""
}

// sendFile sends what an attempt of the batch printed from a file, which it
// closes, or its last lines. With cut the file lacks the end, for that reason.
func (t *tool) sendFile(m *wire.Log, batch job.BatchID, f *outputFile, try int, cut string) (err error) {
	defer f.Close()
	if err := t.stillSees(m, batch); err != nil {
		return err
	}
	from := m.From
	if m.Lines > 0 {
		if from, err = line.Last(f.File, m.Lines); err != nil {
			return err
		}
	}
	if _, err := f.Seek(from, io.SeekStart); err != nil {
		return err
	}
	send := t.sendLog(m, from, try)
	send.Cut = cut
	return onlyStream(t.transfer(send, func(w io.Writer) error {
		_, err := io.Copy(w, f)
		return cmp.Or(err, f.damage)
	}))
}
