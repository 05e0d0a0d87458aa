package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"distribute/lib/cli"
	"distribute/lib/job"
	"distribute/lib/sched"
	"distribute/lib/wire"
)

// printed sends what a job or its build printed: from its node while it runs,
// else from its result.
func (t *tool) printed(ctx context.Context, m *wire.Log) error {
	batch, name, try, err := job.ParseID(m.ID)
	if err != nil || name == "" {
		return &wire.Error{Ref: m.Ref, Status: cli.Usage, Text: fmt.Sprintf("%.300q is not the id of a job or an attempt", m.ID)}
	}
	id := batch.Job(name)
	live, ok := t.live(id) // first, so that one that is over by now has its end in the row
	row, err := t.row(id)
	if err != nil {
		return err
	}
	if ok && (try == 0 || try == live.Try) {
		if s := t.session(live); s != nil && (live.Phase == wire.Running || live.Phase == wire.Stuck || live.Phase == wire.Returning || live.Phase == wire.Building && m.Build) {
			return t.tailed(ctx, m, s, id, live)
		}
	}
	if m.Build {
		t.awaitLog(ctx, buildOf{batch, row.Node})
		return t.built(m, row)
	}
	if try == 0 && row.State != job.Done {
		try = row.Attempt
	}
	f, err := t.output(row, try)
	if err != nil {
		return err
	}
	defer f.Close()
	return t.sendFile(m, f)
}

// row is the row of one job.
func (t *tool) row(id job.ID) (*job.Row, error) {
	q, err := t.parse([]string{string(id)}, true)
	if err != nil {
		return nil, err
	}
	var snap *snapshot
	t.do(func() { snap = t.snapshot() })
	var row *job.Row
	err = t.rows(snap, q, func(r *job.Row) error {
		if r.ID == id {
			keep := *r
			row = &keep
		}
		return nil
	})
	if err == nil && row == nil {
		err = &wire.Error{Status: cli.NoSuch, Text: fmt.Sprintf("no job %q", id)}
	}
	return row, err
}

// live is the attempt of a job that a node has now.
func (h *head) live(id job.ID) (a sched.Attempt, ok bool) {
	h.do(func() {
		n, open := h.byID[id.Batch()]
		if !open {
			return
		}
		if i, found := h.batches[n].Index(id.Name()); found {
			a, ok = h.machine.Current(sched.Ref{Batch: n, Job: uint32(i)})
		}
	})
	return a, ok
}

// session is the session of the node that has an attempt.
func (h *head) session(a sched.Attempt) (s *session) {
	h.do(func() { s = h.sessions[h.byNode[a.Node]] })
	return s
}

// tailed sends what the node sends of an attempt's output. What that does not
// have any more is here.
func (t *tool) tailed(ctx context.Context, m *wire.Log, s *session, id job.ID, a sched.Attempt) error {
	from := int64(0)
	if m.Lines > 0 {
		from = -tailBytes
	}
	frames, end := s.tail(a.Token, m.Build, from, m.Follow, maxTails)
	if frames == nil {
		return &wire.Error{Ref: m.Ref, Status: cli.Later, Text: fmt.Sprintf(
			"%d logs are followed on node %s already, which is the limit", maxTails, s.name)}
	}
	ctx, stop := t.whileThere(ctx)
	defer stop()
	send := t.send(wire.OfLog)
	send.Ref = m.Ref
	err := t.c.SendTransfer(send, func(w io.Writer) error {
		out, skip := w.(*wire.Writer), 0
		if from < 0 {
			skip = m.Lines
		}
		for {
			cut := end
			context.AfterFunc(ctx, func() { cut() })
			n, err := copyFrames(out, frames, skip)
			why := end()
			switch {
			case err != nil || why == nil:
				return t.unlessGone(ctx, err)
			case why == errNotThere && !m.Build && (from >= 0 || n == 0):
				return t.sendRest(out, id, a.Try, from+n, skip)
			case why == errNotThere, from < 0: // and where it was only the node knows
				return why
			}
			from += n
			frames, end = s.tail(a.Token, m.Build, from, m.Follow, maxTails)
			if frames == nil {
				return errSlow
			}
		}
	})
	end()
	return errors.Join(err, errHungUp)
}

// sendRest goes on with what an attempt printed, from the file that came home: at
// a byte, or with the last lines if lines is not 0.
func (t *tool) sendRest(w io.Writer, id job.ID, try int, from int64, lines int) error {
	row, err := t.row(id)
	if err != nil {
		return err
	}
	if row.State == job.Done && row.Attempt == try {
		try = 0
	}
	f, err := t.output(row, try)
	if err != nil {
		return err
	}
	defer f.Close()
	if lines == 0 {
		if _, err := f.Seek(from, io.SeekStart); err != nil {
			return err
		}
	}
	return copyFile(w, f, lines)
}

// copyFrames sends frames on as they come, and says how many bytes. Of the first
// it sends the last lines only, if lines is not 0.
func copyFrames(out *wire.Writer, frames <-chan []byte, lines int) (n int64, err error) {
	for p := range frames {
		n += int64(len(p))
		if lines > 0 {
			p, lines = lastLines(p, lines), 0
		}
		if _, err := out.Write(p); err != nil {
			return n, err
		}
		if err := out.Flush(); err != nil {
			return n, err
		}
	}
	return n, nil
}

// tailBytes is how far back the last lines of an output are looked for.
const tailBytes = 64 << 10

// lastLines is the end of b that has n lines.
func lastLines(b []byte, n int) []byte {
	i := len(bytes.TrimSuffix(b, []byte("\n")))
	for ; n > 0 && i >= 0; n-- {
		i = bytes.LastIndexByte(b[:i], '\n')
	}
	return b[i+1:]
}

// output opens the file of what a job that is over printed.
func (t *tool) output(r *job.Row, try int) (*os.File, error) {
	id := string(r.ID)
	if try > 0 {
		id = r.ID.Try(try)
	}
	_, root, err := t.spool.Result(r.ID, try)
	if errors.Is(err, fs.ErrNotExist) && r.State.Over() && t.settled(func() {}) { // it may just be put in its place
		_, root, err = t.spool.Result(r.ID, try)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist) && r.State == job.Running:
		return nil, &wire.Error{Status: cli.NoSuch, Text: fmt.Sprintf("nothing is printed yet: the job is %s on %s", r.Phase, r.Node)}
	case errors.Is(err, fs.ErrNotExist):
		return nil, &wire.Error{Status: cli.NoSuch, Text: fmt.Sprintf("nothing that %q printed is here: the job is %s", id, r.State)}
	}
	if err != nil {
		return nil, err
	}
	defer root.Close()
	f, err := openRegular(root, r.Job+"_output.txt")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &wire.Error{Status: cli.NoSuch, Text: fmt.Sprintf("nothing that %q printed is here", id)}
	}
	return f, err
}

// built sends what the batch's build printed on the node of the job's attempt.
func (t *tool) built(m *wire.Log, r *job.Row) error {
	f, err := t.spool.OpenBuildLog(r.ID.Batch(), r.Node)
	if errors.Is(err, fs.ErrNotExist) {
		return &wire.Error{Ref: m.Ref, Status: cli.NoSuch, Text: fmt.Sprintf("no build of %s has printed anything on %q", r.ID.Batch(), r.Node)}
	}
	if err != nil {
		return err
	}
	defer f.Close()
	return t.sendFile(m, f)
}

// sendFile sends a file, or its last lines.
func (t *tool) sendFile(m *wire.Log, f *os.File) error {
	s := t.send(wire.OfLog)
	s.Ref = m.Ref
	return onlyStream(t.c.SendTransfer(s, func(w io.Writer) error { return copyFile(w, f, m.Lines) }))
}

// copyFile sends a file from where it is, or its last lines if lines is not 0.
func copyFile(w io.Writer, f *os.File, lines int) error {
	if lines > 0 {
		size, err := f.Seek(0, io.SeekEnd)
		if err != nil {
			return err
		}
		at := max(size-tailBytes, 0)
		head, err := io.ReadAll(io.NewSectionReader(f, at, size-at))
		if err != nil {
			return err
		}
		if _, err := w.Write(lastLines(head, lines)); err != nil {
			return err
		}
	}
	_, err := io.Copy(w, f)
	return err
}
