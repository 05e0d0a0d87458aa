package spool

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"distribute/lib/durable"
	"distribute/lib/job"
	"distribute/lib/line"
	"distribute/lib/pack"
)

// A Drop is the first line of a file in incoming/: a submission that was left
// while no dsched ran.
type Drop struct {
	Format     int         `json:"format"`
	Submission job.Token   `json:"submission"`
	Batch      job.BatchID `json:"batch"`
	Free       bool        `json:"free,omitempty"` // the next free name will do
	File       int64       `json:"file"`           // bytes of the batch file, which follows the line
	Jobs       int         `json:"jobs"`           // lines after the line of the spec
	UID        int         `json:"-"`              // who left it
}

// dropLine() is the form of the first line of a drop file.
var dropLine = sync.OnceValue(line.TableOf[Drop])

// endLen is the length of the last line of a drop file.
const endLen = len(`{"sha256":""}`) + 2*sha256.Size + 1

// Leave writes a submission into incoming/ with all of its inputs, durably, for
// the next dsched. It is for dsubmit, when no dsched runs. open opens an input
// by its sum; jobs yields each job once, and may be ranged over twice. The name
// of the file is d.Submission: leaving the same one twice leaves one. A batch of
// that name which is in the spool already is [ErrSame] or [ErrTaken]. Where there
// is no room, or less than Space.Reserve would be left, it is [ErrFull], and
// nothing is left. A private batch that the spool's user could not read if
// others could not is [ErrPrivate].
func (s *Spool) Leave(d Drop, file []byte, spec *job.Spec, jobs iter.Seq[*job.Job], open func(sum string) (io.ReadCloser, error)) error {
	if err := d.Submission.Check(); err != nil {
		return err
	}
	if err := s.leaveable(&d, spec, jobs); err != nil {
		return err
	}
	mode := fs.FileMode(0o640)
	if spec.Private {
		mode = 0o600
	}
	if spec.Private && s.uid != os.Getuid() && s.uid != 0 {
		return ErrPrivate
	}
	name := s.path("incoming", string(d.Submission))
	temp := s.path("incoming", "."+string(d.Submission)+".tmp~")
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, mode)
	if err != nil {
		return full(err)
	}
	defer f.Close()
	d.Format, d.File = Format, int64(len(file))
	err = errors.Join(f.Chmod(mode), syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB))
	if err == nil {
		err = leave(f, &d, file, spec, jobs, open)
	}
	if err == nil {
		err = s.spare()
	}
	if err == nil {
		err = durable.Step("drop.sync")
	}
	if err == nil {
		err = durable.Sync(f)
	}
	if err == nil {
		err = durable.Step("drop.rename")
	}
	if err == nil {
		err = durable.Publish(temp, name)
	}
	if errors.Is(err, fs.ErrExist) {
		err = sameEnd(temp, name)
	}
	if err != nil && exists(temp) == nil {
		err = errors.Join(err, os.Remove(temp))
	}
	if err != nil && !errors.Is(err, ErrSame) { // who has left the same may not have come so far yet
		return full(err)
	}
	if err := durable.Step("drop.name"); err != nil {
		return err
	}
	return durable.Syncfs(f)
}

// sameEnd is ErrSame if two drop files have the same sum in their last lines, and
// ErrTaken if somebody else has drawn the same id.
func sameEnd(temp, name string) error {
	var ends [2]string
	for i, path := range []string{temp, name} {
		f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			return err
		}
		text, err := io.ReadAll(io.NewSectionReader(f, max(0, info.Size()-int64(endLen)), int64(endLen)))
		if err != nil {
			return err
		}
		ends[i] = string(text)
	}
	if ends[0] == ends[1] {
		return ErrSame
	}
	return fmt.Errorf("%w: %q in incoming/ is another submission of that id (submit again)", ErrTaken, filepath.Base(name))
}

// full makes err an ErrFull if it is for want of space.
func full(err error) error {
	if !errors.Is(err, ErrFull) && durable.NoRoom(err) {
		return fmt.Errorf("%w: %w", ErrFull, err)
	}
	return err
}

// spare is ErrFull if less is free than has to be left to others.
func (s *Spool) spare() error {
	sp, err := s.Space()
	if err == nil && sp.Free < sp.Reserve() {
		err = fmt.Errorf("%w: it would leave less than the reserve of %d MiB", ErrFull, sp.Reserve()>>20)
	}
	return err
}

// leaveable compares a submission with a batch of its name.
func (s *Spool) leaveable(d *Drop, spec *job.Spec, jobs iter.Seq[*job.Job]) error {
	if d.Free || errors.Is(exists(s.batchDir(d.Batch)), fs.ErrNotExist) {
		return nil
	}
	content := sha256.New()
	text := appendSpec(nil, spec)
	content.Write(text)
	for j := range jobs {
		text = appendContent(text[:0], j)
		content.Write(text)
	}
	mine := &job.Head{Submission: d.Submission, UID: os.Getuid(), Content: hex.EncodeToString(content.Sum(nil))}
	if gone, err := s.going(d.Batch); gone || err != nil && !errors.Is(err, fs.ErrPermission) {
		return err
	}
	_, err := s.compare(d.Batch, mine, false)
	return err
}

func leave(f *os.File, d *Drop, file []byte, spec *job.Spec, jobs iter.Seq[*job.Job], open func(string) (io.ReadCloser, error)) error {
	if err := durable.Step("drop.write"); err != nil {
		return err
	}
	sum := sha256.New()
	w := bufio.NewWriterSize(io.MultiWriter(f, sum), 256<<10)
	w.Write(append(dropLine().Append(nil, d), "}\n"...)) // w keeps its first error
	w.Write(file)
	w.Write(append(job.SpecLine().Append(nil, spec), "}\n"...))
	contents := contents{}
	contents.add(spec.Inputs)
	if spec.Image != nil {
		contents.add([]job.Input{*spec.Image})
	}
	n := 0
	var text []byte
	var requests job.Requests
	for j := range jobs {
		if err := requests.Add(spec, j); err != nil {
			return fmt.Errorf("%w: %w", ErrInput, err)
		}
		contents.add(j.Inputs)
		text = append(job.AppendJob(text[:0], j), '\n')
		w.Write(text)
		n++
	}
	if n != d.Jobs {
		return fmt.Errorf("%d jobs were announced and %d came", d.Jobs, n)
	}
	if m := pack.Blobs(contents); len(m) > 0 {
		err := pack.Send(w, m, pack.Want{}, func(_ int, e pack.Entry) (io.ReadCloser, error) { return open(e.Sum) })
		if err != nil {
			return err
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(f, "{\"sha256\":\"%x\"}\n", sum.Sum(nil))
	return err
}

// contents is the sizes of inputs by their sums.
type contents map[string]int64

func (c contents) add(inputs []job.Input) {
	for i := range inputs {
		c[inputs[i].Sum] = inputs[i].Size
	}
}

// Take reads the file name of incoming/ into a Submission, ready for Finish.
// owner tells the name of a user. An error that is [ErrInput] means that the
// file is refused for good (Reject); any other, that it may be tried again. The
// file is read once: what is checked is what is taken, whatever its owner does
// to it meanwhile. room is asked before anything is written, for the bytes and
// the number of the files that are about to be: once for what is asked for, and
// once for the inputs. Its error ends Take. It is safe for concurrent use.
func (h *Head) Take(name string, owner func(uid int) (string, error), room func(bytes int64, files int) error) (*Submission, *Drop, error) {
	f, size, uid, err := h.openIncoming(name)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	if size < int64(endLen) {
		return nil, nil, fmt.Errorf("%w: it is too short", ErrInput)
	}
	if size > MaxDrop {
		return nil, nil, fmt.Errorf("%w: it has %d bytes, and %d is the limit", ErrInput, size, int64(MaxDrop))
	}
	sum := sha256.New()
	lines := line.NewReader(bufio.NewReaderSize(io.TeeReader(io.LimitReader(f, size-int64(endLen)), sum), 256<<10), MaxLine)
	d, err := readDrop(lines)
	if err != nil {
		return nil, nil, refuse(err)
	}
	d.UID = uid
	user, err := owner(uid)
	if err != nil {
		return nil, d, err
	}
	if err := room(size, 0); err != nil {
		return nil, d, err
	}
	s, err := h.Begin(d.Submission, d.Batch, user, uid)
	if err != nil {
		return nil, d, err
	}
	if err = s.take(lines, d, room); err == nil {
		err = sameSum(f, lines.Buffered(), sum)
	}
	if err != nil {
		return nil, d, errors.Join(refuse(err), s.Abort())
	}
	return s, d, nil
}

// openIncoming opens a file of incoming/ if it is a regular one that nobody
// else has by another name.
func (h *Head) openIncoming(name string) (f *os.File, size int64, uid int, err error) {
	if name != "" && strings.ContainsRune(name, '/') {
		return nil, 0, 0, fmt.Errorf("%w: %q is not a name", ErrInput, name)
	}
	f, err = os.OpenFile(h.path("incoming", name), os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, syscall.ELOOP) || errors.Is(err, syscall.ENXIO) {
		return nil, 0, 0, fmt.Errorf("%w: it is not a regular file", ErrInput)
	}
	if errors.Is(err, fs.ErrPermission) && !h.groupReads(name) {
		return nil, 0, 0, fmt.Errorf("%w: its mode does not let the user of dsched read it", ErrInput)
	}
	if err != nil {
		return nil, 0, 0, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, 0, 0, errors.Join(err, f.Close())
	}
	st := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.Mode().IsRegular():
		err = fmt.Errorf("%w: it is not a regular file", ErrInput)
	case st.Nlink != 1:
		err = fmt.Errorf("%w: it has %d names, so it may be another's file", ErrInput, st.Nlink)
	}
	if err != nil {
		return nil, 0, 0, errors.Join(err, f.Close())
	}
	return f, info.Size(), int(st.Uid), nil
}

// groupReads reports whether the group of incoming/ may read a file there: a dsched that was
// started without that group cannot, and the next one can.
func (h *Head) groupReads(name string) bool {
	file, err := os.Lstat(h.path("incoming", name))
	dir, dirErr := os.Lstat(h.path("incoming"))
	return err == nil && dirErr == nil && file.Mode().IsRegular() && file.Mode()&0o040 != 0 &&
		file.Sys().(*syscall.Stat_t).Gid == dir.Sys().(*syscall.Stat_t).Gid
}

// refuse makes err an ErrInput unless it is one of this machine's: what is
// refused is not tried again.
func refuse(err error) error {
	var path *fs.PathError
	var errno syscall.Errno
	err = full(err)
	if errors.Is(err, ErrInput) || errors.Is(err, ErrFull) || errors.Is(err, ErrBroken) || errors.As(err, &path) || errors.As(err, &errno) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrInput, err)
}

func readDrop(lines *line.Reader) (*Drop, error) {
	text, err := lines.Next()
	if err != nil {
		return nil, fmt.Errorf("its first line: %w", err)
	}
	d := new(Drop)
	if err := line.Unmarshal(text, d); err != nil {
		return nil, fmt.Errorf("its first line: %w", err)
	}
	switch {
	case d.Format != Format:
		return nil, fmt.Errorf("its format is %d, this program knows %d", d.Format, Format)
	case d.File < 0 || d.File > MaxFile:
		return nil, fmt.Errorf("a batch file of %d bytes, and %d is the limit", d.File, MaxFile)
	case d.Jobs < 1 || d.Jobs > MaxJobs:
		return nil, fmt.Errorf("it has %d jobs; a batch has at least 1, and %d is the limit", d.Jobs, MaxJobs)
	}
	return d, nil
}

// take reads the batch file, the spec, the jobs and the inputs.
func (s *Submission) take(lines *line.Reader, d *Drop, room func(bytes int64, files int) error) error {
	file := &io.LimitedReader{R: lines.Buffered(), N: d.File}
	if err := s.BatchFile(file); err != nil {
		return err
	}
	if file.N > 0 {
		return io.ErrUnexpectedEOF
	}
	text, err := lines.Next()
	if err != nil {
		return fmt.Errorf("the line of what the jobs have in common: %w", noEnd(err))
	}
	var spec job.Spec
	if err := line.Unmarshal(text, &spec); err != nil {
		return err
	}
	if err := s.Spec(spec); err != nil {
		return err
	}
	for i := range d.Jobs {
		text, err := lines.Next()
		if err != nil {
			return fmt.Errorf("the line of job %d: %w", i+1, noEnd(err))
		}
		var j job.Job
		if err := job.ReadJob(text, &j); err != nil {
			return fmt.Errorf("the line of job %d: %w", i+1, err)
		}
		if err := s.AddJob(&j); err != nil {
			return err
		}
	}
	m, _ := s.Lacks()
	if len(m) == 0 {
		return nil
	}
	if err := room(m.Bytes(), len(m)); err != nil {
		return err
	}
	if err := pack.Receive(lines.Buffered(), m, pack.Want{}, s.Sink()); err != nil {
		return err
	}
	return s.nameArrivals()
}

// noEnd is err, where io.EOF would mean that all is well.
func noEnd(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// sameSum reads what is left of a drop file, of which there should be nothing,
// and compares the sum of it all with the last line.
func sameSum(f *os.File, rest io.Reader, sum hash.Hash) error {
	if n, err := io.Copy(io.Discard, rest); err != nil || n > 0 {
		return errors.Join(err, fmt.Errorf("%d bytes more than it should have", n))
	}
	end := make([]byte, endLen)
	if _, err := io.ReadFull(f, end); err != nil {
		return noEnd(err)
	}
	if want := fmt.Sprintf("{\"sha256\":\"%s\"}\n", hex.EncodeToString(sum.Sum(nil))); string(end) != want {
		return errors.New("its last line is not the sum of the others: it was cut or changed")
	}
	return nil
}
