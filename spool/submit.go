package spool

import (
	"archive/tar"
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"distribute/lib/durable"
	"distribute/lib/job"
)

// A Submission is a batch on its way in. It is filled in this order: Spec, any
// number of AddJob, and BatchFile at any time; then Check may tell early that
// there is nothing to do, Lacks tells which inputs have to come, Put takes each,
// and Finish makes the batch. Every mistake is an error that is [ErrInput]; the
// first is enough to refuse it, and the others are found by going on. Abort
// removes what is there of it; so does the next start after a crash.
//
// It is for one goroutine at a time, and may live beside all other work of the
// Head.
type Submission struct {
	head  *Head
	dir   string
	id    job.BatchID
	first job.Record // the log's first line

	spec    *job.Spec
	common  places // of the batch's own inputs
	lines   *os.File
	out     *bufio.Writer
	text    []byte
	content hash.Hash
	index   *index

	requests job.Requests // of its jobs

	inputs map[[32]byte]*input
	order  []*input // as they were first named
	bytes  int64    // of all of them
	needs  bool     // some job needs others
	hold   bool     // its jobs are held from the beginning

	secrets job.Secrets // nil: no values have come

	tar    *os.File // files.tar, when there is something small
	tarEnd int64
	block  []byte          // room for one file of files.tar
	blobs  map[string]bool // directories below blobs/
	held   []key           // blobs that are not collected meanwhile
	sole   []key           // blobs that it has made
	full   bool            // it ends for want of room
	keeps  bool            // the beginnings of large inputs, if it is cut
	large  []*input        // those that have, or had, a beginning
	whole  []*arrival      // blobs that are not synced and have no name yet

	filling string // dir, as long as it is not to be collected
}

// input is one content that the batch's jobs read.
type input struct {
	sum  [32]byte
	size int64
	at   int64 // in files.tar; -1: a blob
	have bool

	begun *beginning // nil: nothing of it is there
}

// Begin starts a submission: id is what its writer drew, batch the name it
// asks for, owner and uid who asks, as was proven. It is safe for concurrent
// use.
func (h *Head) Begin(id job.Token, batch job.BatchID, owner string, uid int) (*Submission, error) {
	if err := id.Check(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInput, err)
	}
	if _, err := job.ParseBatchID(string(batch)); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInput, err)
	}
	if _, err := job.NameBatch("", string(batch)); err != nil && exists(h.batchDir(batch)) != nil {
		return nil, fmt.Errorf("%w: %w", ErrInput, err) // an older batch of such a name can be added to
	}
	s := &Submission{head: h, id: batch, content: sha256.New(), index: newIndex(0),
		inputs: make(map[[32]byte]*input), blobs: make(map[string]bool)}
	s.first = job.Record{Kind: job.KindBatch, Head: &job.Head{Format: Format, Submission: id, Owner: owner, UID: uid}}
	space := h.path("batches", batch.Namespace())
	if err := h.namespace(space); err != nil {
		return nil, s.ofPlace(err)
	}
	if err := durable.Step("submit.begin"); err != nil {
		return nil, err
	}
	s.dir = filepath.Join(space, ".new-"+string(job.NewToken()))
	s.filling = s.dir
	h.kept.fill(s.filling)
	if err := os.Mkdir(s.dir, 0o700); err != nil { // until it is known whether it is private
		h.kept.filled(s.filling)
		return nil, s.ofPlace(err)
	}
	if err := s.open(); err != nil {
		return nil, errors.Join(s.ofPlace(err), s.Abort())
	}
	return s, nil
}

// ofPlace is ofNamespace of an error in the directory of the submission's namespace.
func (s *Submission) ofPlace(err error) error { return ofNamespace(s.id, err) }

// ofNamespace is classed of an error in the directory of the namespace of a batch. One of a path
// there, as where somebody has put a file in its place, moved it away or made it unreadable, keeps
// the batches of that namespace from being made, and no others.
func ofNamespace(id job.BatchID, err error) error {
	if errors.Is(err, fs.ErrNotExist) || OfPath(err) {
		return fmt.Errorf("nothing can be made in the directory of the namespace %q: %w", id.Namespace(), err)
	}
	return classed(err)
}

func (s *Submission) open() (err error) {
	for _, d := range []string{"staging", "out", "manifests", "attempts", "build"} {
		if err := os.Mkdir(filepath.Join(s.dir, d), 0o750); err != nil {
			return err
		}
	}
	s.lines, err = os.OpenFile(filepath.Join(s.dir, "jobs.jsonl"), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o640)
	s.out = bufio.NewWriterSize(s.lines, 64<<10)
	return err
}

// BatchFile keeps the submitted file, byte for byte. It is a record: nobody
// reads it again.
func (s *Submission) BatchFile(r io.Reader) error {
	f, err := os.OpenFile(filepath.Join(s.dir, "batch.yaml"), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o640)
	if err != nil {
		return classed(err)
	}
	to := &faulted{w: f}
	n, err := io.Copy(to, io.LimitReader(r, MaxFile+1))
	if err == nil && n > MaxFile {
		err = fmt.Errorf("%w: a batch file of more than %d bytes, which is the limit", ErrInput, MaxFile)
	}
	if cerr := f.Close(); err == nil && cerr != nil {
		return classed(cerr)
	}
	if to.err != nil {
		return classed(to.err)
	}
	return err
}

// faulted tells an error of the disk from one of who sends.
type faulted struct {
	w   io.Writer
	err error
}

func (f *faulted) Write(b []byte) (n int, err error) {
	n, f.err = f.w.Write(b)
	return n, f.err
}

// Spec says what the jobs have in common. It comes before the first job.
func (s *Submission) Spec(spec job.Spec) error {
	if s.spec != nil || s.index.len() > 0 {
		return fmt.Errorf("%w: its specification comes twice or late", ErrInput)
	}
	if err := checkSpec(&spec); err != nil {
		return fmt.Errorf("%w: %w", ErrInput, err)
	}
	if err := s.common.add(spec.Inputs); err != nil {
		return fmt.Errorf("%w: %w", ErrInput, err)
	}
	s.text = appendSpec(s.text[:0], &spec)
	s.content.Write(s.text)
	spec.Inputs = append([]job.Input(nil), spec.Inputs...)
	if err := s.place(spec.Inputs); err != nil {
		return err
	}
	if spec.Image != nil {
		image := []job.Input{*spec.Image}
		if err := s.place(image); err != nil {
			return err
		}
		spec.Image = &image[0]
	}
	s.spec = &spec
	return nil
}

// appendSpec appends the line of a spec that counts as content.
func appendSpec(dst []byte, spec *job.Spec) []byte {
	bare := *spec
	bare.Inputs = without(spec.Inputs)
	if spec.Image != nil {
		bare.Image = &without([]job.Input{*spec.Image})[0]
	}
	return append(job.SpecLine().Append(dst, &bare), "}\n"...)
}

// without returns the inputs without their times, as a touched file has the same content, and
// without the places that a sender may have given.
func without(in []job.Input) []job.Input {
	out := append([]job.Input(nil), in...)
	for i := range out {
		out[i].MTime, out[i].At = nil, nil
	}
	return out
}

// appendContent appends the line of a job that counts as content.
func appendContent(dst []byte, j *job.Job) []byte {
	bare := *j
	bare.Inputs = without(j.Inputs)
	return append(job.JobLine().Append(dst, &bare), "}\n"...)
}

// AddJob adds the next job. It writes j.Inputs' places. It costs some 3 µs.
func (s *Submission) AddJob(j *job.Job) error {
	switch {
	case s.spec == nil:
		return fmt.Errorf("%w: a job comes before the specification", ErrInput)
	case s.index.len() >= MaxJobs:
		return fmt.Errorf("%w: it has more than %d jobs, which is the limit (make several batches of it)", ErrInput, MaxJobs)
	}
	if err := checkJob(s.spec, &s.common, j); err != nil {
		return fmt.Errorf("%w: job %d, %.100q: %w", ErrInput, s.index.len()+1, j.Name, err)
	}
	if err := s.requests.Add(s.spec, j); err != nil {
		return fmt.Errorf("%w: %w", ErrInput, err)
	}
	s.text = appendContent(s.text[:0], j)
	s.content.Write(s.text)
	if err := s.place(j.Inputs); err != nil {
		return err
	}
	s.text = appendJobLine(s.text[:0], j)
	switch {
	case len(s.text) > MaxLine:
		return fmt.Errorf("%w: job %.100q is %d bytes long, and %d is the limit", ErrInput, j.Name, len(s.text), MaxLine)
	case s.index.end+int64(len(s.text)) > MaxText:
		return fmt.Errorf("%w: its jobs are more than %d bytes long, which is the limit (make several batches of it)", ErrInput, int64(MaxText))
	}
	if !s.index.add([]byte(j.Name), len(s.text)) {
		return fmt.Errorf("%w: two jobs are named %.100q", ErrInput, j.Name)
	}
	s.needs = s.needs || len(j.Needs) > 0
	if _, err := s.out.Write(s.text); err != nil {
		return classed(err)
	}
	return nil
}

// Jobs is how many jobs it has so far.
func (s *Submission) Jobs() int { return s.index.len() }

// place notes the contents of inputs and decides where each lies: the small
// ones in files.tar, one after another as they were first named.
func (s *Submission) place(inputs []job.Input) error {
	for i := range inputs {
		in := &inputs[i]
		var sum [32]byte
		if _, err := hex.Decode(sum[:], []byte(in.Sum)); err != nil {
			return fmt.Errorf("%w: %w", ErrInput, err)
		}
		known := s.inputs[sum]
		if known == nil {
			if len(s.order) >= MaxInputs {
				return fmt.Errorf("%w: it has more than %d input files, which is the limit", ErrInput, MaxInputs)
			}
			if in.Size > MaxBytes-s.bytes {
				return fmt.Errorf("%w: its input files have more than %d bytes, which is the limit", ErrInput, int64(MaxBytes))
			}
			s.bytes += in.Size
			known = &input{sum: sum, size: in.Size, at: -1}
			if in.Size < job.SmallFile {
				known.at = s.tarEnd + tarBlock
				s.tarEnd = known.at + (in.Size+tarBlock-1)/tarBlock*tarBlock
			} else {
				s.head.kept.hold(sum) // before it is looked for
				s.held = append(s.held, sum)
				if err := s.look(known, in.Sum); err != nil {
					return err
				}
			}
			s.inputs[sum] = known
			s.order = append(s.order, known)
		}
		if known.size != in.Size {
			return fmt.Errorf("%w: %.200q has %d bytes here and %d elsewhere, with one sum", ErrInput, in.Path, in.Size, known.size)
		}
		in.At = nil
		if known.at >= 0 {
			in.At = &known.at
		}
	}
	return nil
}

// look finds out whether a blob is there that the asker may use. A hash is no
// key to another's file: who is not the spool's owner has to have sent it once.
func (s *Submission) look(in *input, sum string) error {
	s.blobs[s.head.path("blobs", sum[:2])] = true
	if !s.head.reads(s.first.Head.UID) {
		if sent, err := s.hasSent(sum); !sent {
			return err
		}
	}
	info, err := os.Lstat(s.head.path("blobs", sum[:2], sum))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return classed(err)
	}
	in.have = info.Mode().IsRegular() && info.Size() == in.size
	if in.have && info.Mode().Perm() != 0o600 { // an earlier version let the group read it
		return classed(os.Chmod(s.head.path("blobs", sum[:2], sum), 0o600))
	}
	return nil
}

const tarBlock = 512

// Put takes the content of one input, which must be the size and have the sum
// that were said. What is there already is read and checked all the same.
func (s *Submission) Put(sum string, size int64, r io.Reader) error { return s.put(sum, size, 0, r) }

func (s *Submission) put(sum string, size, from int64, r io.Reader) error {
	var key [32]byte
	if !isSum(sum) {
		return fmt.Errorf("%w: %.80q is not a sum", ErrInput, sum)
	}
	if _, err := hex.Decode(key[:], []byte(sum)); err != nil {
		return fmt.Errorf("%w: %w", ErrInput, err)
	}
	in := s.inputs[key]
	switch {
	case in == nil || in.size != size:
		return fmt.Errorf("%w: no job reads a file of %d bytes with the sum %s", ErrInput, size, sum)
	case from != in.from():
		return fmt.Errorf("%w: the file with the sum %s comes from byte %d, where byte %d belongs", ErrInput, sum, from, in.from())
	}
	put := s.putBlob
	if in.at >= 0 {
		put = s.putSmall
	}
	err := put(in, sum, r)
	s.full = errors.Is(err, ErrFull)
	return err
}

func (s *Submission) putSmall(in *input, sum string, r io.Reader) error {
	whole := int((in.size+2*tarBlock-1)/tarBlock) * tarBlock
	if cap(s.block) < whole {
		s.block = make([]byte, whole, max(whole, 8<<10))
	}
	b := s.block[:whole]
	clear(b[tarBlock+int(in.size):])
	if _, err := io.ReadFull(r, b[tarBlock:tarBlock+in.size]); err != nil {
		return short(sum, err)
	}
	if err := ended(r, sum); err != nil {
		return err
	}
	if sha256.Sum256(b[tarBlock:tarBlock+in.size]) != in.sum {
		return differs(sum)
	}
	if err := tarHeader(b[:tarBlock], sum, in.size); err != nil {
		return err
	}
	if s.tar == nil {
		var err error
		s.tar, err = os.OpenFile(filepath.Join(s.dir, "files.tar"), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o640)
		if err != nil {
			return classed(err)
		}
	}
	if _, err := s.tar.WriteAt(b, in.at-tarBlock); err != nil {
		return classed(err)
	}
	in.have = true
	return nil
}

// tarHeader writes the header of one file of files.tar.
func tarHeader(b []byte, sum string, size int64) error {
	var buf bytes.Buffer
	err := tar.NewWriter(&buf).WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: sum, Size: size, Mode: 0o640,
		ModTime: time.Unix(0, 0), Format: tar.FormatUSTAR})
	if err != nil || buf.Len() != len(b) {
		return fmt.Errorf("a header of %d bytes for files.tar: %w", buf.Len(), err)
	}
	copy(b, buf.Bytes())
	return nil
}

func (s *Submission) putBlob(in *input, sum string, r io.Reader) error {
	dir := s.head.path("blobs", sum[:2])
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return classed(err)
	}
	if err := durable.Step("submit.blob"); err != nil {
		return err
	}
	put := s.putTemp
	if s.keeps && in.size >= largeInput {
		put = s.putLarge
	}
	return put(in, sum, r)
}

// putTemp is putBlob for an input of which nothing is kept if it does not come
// whole.
func (s *Submission) putTemp(in *input, sum string, r io.Reader) error {
	temp := filepath.Join(s.head.path("blobs", sum[:2]), "."+sum+"."+string(job.NewToken())+".tmp~")
	s.head.kept.fill(temp)
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		s.head.kept.filled(temp)
		return classed(err)
	}
	a := &arrival{in: in, sum: sum, temp: temp, file: f}
	if err := fillBlob(f, in, sum, r); err != nil {
		return errors.Join(err, s.drop(a))
	}
	return s.arrive(a)
}

// name gives a blob its name.
func (s *Submission) name(sum key, temp, name string) error {
	sole, err := s.head.kept.make(sum, name, func() error { return os.Rename(temp, name) })
	if err != nil {
		return classed(err)
	}
	if sole {
		s.sole = append(s.sole, sum)
	}
	return nil
}

// unname removes the blobs that the submission has made and nobody else counts
// on, if it ends because there is no room: they would take it until they are
// collected. Else they stay, so that the next try need not send them.
func (s *Submission) unname() (err error) {
	for _, sum := range s.sole {
		var remove func() error
		if s.full {
			text := hex.EncodeToString(sum[:])
			remove = func() error { return os.Remove(s.head.path("blobs", text[:2], text)) }
		}
		err = errors.Join(err, s.head.kept.unmake(sum, remove))
	}
	s.sole = nil
	return err
}

func fillBlob(f *os.File, in *input, sum string, r io.Reader) error {
	h := sha256.New()
	to := &faulted{w: f}
	n, err := io.Copy(io.MultiWriter(to, h), io.LimitReader(r, in.size))
	switch {
	case to.err != nil:
		return classed(to.err)
	case err == nil && n < in.size:
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return short(sum, err)
	}
	if err := ended(r, sum); err != nil {
		return err
	}
	if [32]byte(h.Sum(nil)) != in.sum {
		return differs(sum)
	}
	return nil
}

func short(sum string, err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return fmt.Errorf("%w: the file with the sum %s came short (did it change while it was read?)", ErrInput, sum)
	}
	return err
}

func differs(sum string) error {
	return fmt.Errorf("%w: what came as %s has another sum (did it change while it was read?)", ErrInput, sum)
}

// ended makes sure that nothing follows.
func ended(r io.Reader, sum string) error {
	var one [1]byte
	if n, err := io.ReadFull(r, one[:]); n > 0 {
		return fmt.Errorf("%w: the file with the sum %s is longer than was said", ErrInput, sum)
	} else if err != io.EOF {
		return err
	}
	return nil
}

// Abort removes a submission that does not come to its end, with its blobs and
// what it has begun if it ends for want of room. After Finish it does nothing.
func (s *Submission) Abort() error {
	var errs []error
	for _, f := range []*os.File{s.lines, s.tar} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	s.lines, s.tar = nil, nil
	if s.dir != "" {
		errs = append(errs, os.RemoveAll(s.dir))
		s.dir = ""
	}
	if s.full {
		errs = append(errs, s.dropArrivals())
	}
	errs = append(errs, s.nameArrivals(), s.unname(), s.letGoAll())
	s.head.kept.filled(s.filling)
	s.head.kept.release(s.held...)
	s.held = nil
	return errors.Join(errs...)
}
