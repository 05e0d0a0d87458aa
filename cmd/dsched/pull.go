package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"distribute/lib/cli"
	"distribute/lib/job"
	"distribute/lib/pack"
	"distribute/lib/wire"
)

// pull sends the result of a job, or what an attempt left.
func (t *tool) pull(m *wire.Pull) error {
	batch, name, try, err := job.ParseID(m.ID)
	if err != nil || name == "" {
		return &wire.Error{Ref: m.Ref, Status: cli.Usage, Text: fmt.Sprintf("%.300q is not the id of a job or an attempt", m.ID)}
	}
	manifest, root, err := t.spool.Result(batch.Job(name), try)
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
	if err := t.c.SendTransfer(s, func(w io.Writer) error { return manifest.Encode(w) }); err != nil {
		return err
	}
	t.c.ReadWithin(toolWithin)
	pick, err := wire.Expect[*wire.Pick](t.c)
	if err != nil || pick.None {
		return err
	}
	s = t.send(wire.OfTree)
	s.Ref = m.Ref
	err = t.c.SendTransfer(s, func(w io.Writer) error {
		return pack.Sender(t.peer.Local)(w, manifest, pack.Want(pick.Want), func(_ int, e pack.Entry) (io.ReadCloser, error) {
			f, err := openRegular(root, e.Path)
			return unhashed{f}, err
		})
	})
	if asRefusal(err) != nil { // and not that the tool has gone
		t.log.Error("a result cannot be sent", "job", m.ID, "why", err)
	}
	return onlyStream(err)
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
// else than a regular file.
func openRegular(root *os.Root, path string) (*os.File, error) {
	f, err := root.Open(path)
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(fmt.Errorf("%q is not a regular file", path), err, f.Close())
	}
	return f, nil
}
