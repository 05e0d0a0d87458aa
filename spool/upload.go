package spool

import (
	"cmp"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"distribute/lib/durable"
	"distribute/lib/job"
	"distribute/lib/pack"
)

const (
	// largeInput is the size from which on the beginning of an input outlives
	// the submission that was cut, in bytes. Less is sent again as quickly.
	largeInput = 1 << 20
	// uploadAge is how long such a beginning waits for the rest.
	uploadAge = 24 * time.Hour
	// maxBegun is how many of them one submission takes up: each has a file open
	// and room to read. A cut one leaves one; who has left more sends them again.
	maxBegun = 64
)

// uploads is the directory of what a user has sent: files SUM.TOKEN, each the
// beginning of a large input, and empty ones SUM, each for a blob of which the
// user, who is not the spool's own, has sent every byte.
func (s *Spool) uploads(uid int, more ...string) string {
	return s.path(append([]string{"uploads", strconv.Itoa(uid)}, more...)...)
}

// A beginning is a large input on its way in: a file of uploads/ that nobody
// else works on.
type beginning struct {
	name string
	file *os.File
	fill *pack.Filler
	at   int64 // how far it is filled
}

// Resume takes up what submissions of the same user that were cut have left of
// large inputs, and has what is left of this one kept in its turn. It is called
// after the last job, before Lacks, and costs reading and hashing what is there.
func (s *Submission) Resume() error {
	s.keeps = true
	dir := s.head.uploads(s.first.Head.UID)
	list, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return classed(err)
	}
	for _, e := range list {
		sum, _, part := strings.Cut(e.Name(), ".")
		if !part || !isSum(sum) {
			continue
		}
		var key key
		if _, err := hex.Decode(key[:], []byte(sum)); err != nil {
			return err
		}
		in := s.inputs[key]
		if in != nil && !in.have && in.size >= largeInput && (in.begun != nil || len(s.large) < maxBegun) {
			if err := s.takeUp(in, filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	for _, in := range s.large {
		if b := in.begun; b != nil && b.fill.Prefix(b.at) != nil {
			in.begun = nil // what cannot be read is sent again
			if err := s.head.letGo(b, false); err != nil {
				return err
			}
		}
	}
	return nil
}

// takeUp makes a file of uploads/ the beginning of an input, unless somebody
// works on it, or there is a longer one: of two the shorter goes.
func (s *Submission) takeUp(in *input, name string) error {
	b, err := s.openUpload(name, 0)
	if b == nil || err != nil {
		return err
	}
	if b.at = min(b.at, in.size-1); in.begun != nil && in.begun.at >= b.at {
		return s.head.letGo(b, false)
	}
	if in.begun == nil {
		s.large = append(s.large, in)
	} else {
		err = s.head.letGo(in.begun, false)
	}
	in.begun = b
	return err
}

// openUpload opens a file of uploads/ that nobody works on. Without an error and
// without a beginning there is none.
func (s *Submission) openUpload(name string, flag int) (*beginning, error) {
	if !s.head.kept.take(name) {
		return nil, nil
	}
	f, err := os.OpenFile(name, os.O_RDWR|flag, 0o600)
	if err != nil {
		s.head.kept.filled(name)
		return nil, classed(gone(err))
	}
	info, err := f.Stat()
	if err != nil {
		s.head.kept.filled(name)
		return nil, classed(errors.Join(err, f.Close()))
	}
	return &beginning{name: name, file: f, fill: pack.NewFiller(f), at: info.Size()}, nil
}

// letGo ends work on a beginning. Without keep it is removed.
func (h *Head) letGo(b *beginning, keep bool) error {
	b.fill.Release()
	err := b.file.Close()
	if !keep {
		err = errors.Join(err, removeStep("upload.drop", b.name))
	}
	h.kept.filled(b.name)
	return classed(err)
}

// letGoAll ends work on what the submission has begun and not finished.
func (s *Submission) letGoAll() (err error) {
	for _, in := range s.large {
		if b := in.begun; b != nil {
			in.begun = nil
			err = errors.Join(err, s.head.letGo(b, s.keeps && !s.full && b.at >= largeInput))
		}
	}
	return err
}

// putLarge is putBlob for an input whose beginning is kept when what comes is
// cut. If a beginning was taken up and the whole has another sum, it is
// dropped, without an error: the input is lacking then from its first byte.
func (s *Submission) putLarge(in *input, sum string, r io.Reader) error {
	if in.begun == nil {
		if err := s.begin(in, sum); err != nil {
			return err
		}
	}
	b := in.begun
	from := b.at
	err := b.put(in, sum, r)
	if err == nil && b.fill.Sum() != sum {
		in.begun = nil
		if err := s.head.letGo(b, false); err != nil || from > 0 {
			return err
		}
		return differs(sum)
	}
	if err != nil {
		return err
	}
	return s.arrive(&arrival{in: in, sum: sum, temp: b.name, file: b.file, begun: b})
}

// begin makes the file of a large input.
func (s *Submission) begin(in *input, sum string) (err error) {
	if err := durable.Step("upload.begin"); err != nil {
		return err
	}
	dir := s.head.uploads(s.first.Head.UID)
	if err := s.head.mkUploads(dir); err != nil {
		return classed(err)
	}
	s.large = append(s.large, in)
	in.begun, err = s.openUpload(filepath.Join(dir, sum+"."+string(job.NewToken())), os.O_CREATE|os.O_EXCL)
	return err
}

// mkUploads makes a user's directory in uploads/, which a spool need not have.
func (s *Spool) mkUploads(dir string) error {
	for _, d := range []string{s.path("uploads"), dir} {
		if err := os.Mkdir(d, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

// put appends what comes of the input.
func (b *beginning) put(in *input, sum string, r io.Reader) (err error) {
	b.at, err = b.fill.Append(b.at, io.LimitReader(r, in.size-b.at))
	switch {
	case b.fill.Disk() != nil:
		return classed(b.fill.Disk())
	case err == nil && b.at < in.size:
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return short(sum, err)
	}
	return ended(r, sum)
}

// sent notes that the user has sent all of a blob, who need not send it again
// then. Of the spool's own user that is not asked.
func (s *Submission) sent(sum string) error {
	uid := s.first.Head.UID
	if s.head.reads(uid) {
		return nil
	}
	if err := durable.Step("upload.sent"); err != nil {
		return err
	}
	dir := s.head.uploads(uid)
	err := s.head.mkUploads(dir)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, sum), nil, 0o600)
	}
	return classed(err)
}

// hasSent says whether the user has sent all of a blob within the last week, or
// used it since.
func (s *Submission) hasSent(sum string) (bool, error) {
	now := s.head.now()
	err := os.Chtimes(s.head.uploads(s.first.Head.UID, sum), now, now)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, classed(err)
}

// reads says that a user may read all blobs: whose the spool is, and root.
func (s *Spool) reads(uid int) bool { return uid == s.uid || uid == 0 }

// An upload is a file of uploads/.
type upload struct {
	path string
	fs.FileInfo
}

// uploaded lists the files of uploads/, the oldest first.
func (h *Head) uploaded() ([]upload, error) {
	names, err := fs.Glob(os.DirFS(h.dir), "uploads/*/*")
	var all []upload
	for _, name := range names {
		info, serr := os.Lstat(h.path(name))
		if serr == nil && info.Mode().IsRegular() {
			all = append(all, upload{h.path(name), info})
		} else {
			err = errors.Join(err, gone(serr))
		}
	}
	slices.SortFunc(all, func(a, b upload) int { return cmp.Compare(a.ModTime().UnixNano(), b.ModTime().UnixNano()) })
	return all, err
}

// begun says that a file of uploads/ is the beginning of an input.
func (u *upload) begun() bool { return strings.Contains(u.Name(), ".") }

// dropUpload removes a file of uploads/ unless somebody works on it.
func (h *Head) dropUpload(step string, u *upload) (dropped bool, err error) {
	if !h.kept.take(u.path) {
		return false, nil
	}
	defer h.kept.filled(u.path)
	return true, removeStep(step, u.path)
}

// DropUploads removes beginnings of inputs that nobody works on, the oldest
// first, until they had so many bytes, and returns how many they had. It is for
// when the disk needs the room. It is safe for concurrent use.
func (h *Head) DropUploads(bytes int64) (dropped int64, err error) {
	all, err := h.uploaded()
	for i := range all {
		if dropped >= bytes {
			break
		}
		if !all[i].begun() {
			continue
		}
		gone, derr := h.dropUpload("upload.drop", &all[i])
		if err = errors.Join(err, derr); gone && derr == nil {
			dropped += all[i].Size()
		}
	}
	return dropped, err
}

// collectUploads removes what is old in uploads/.
func (h *Head) collectUploads(c *Collected, now time.Time) error {
	all, err := h.uploaded()
	for i := range all {
		age := blobAge
		if all[i].begun() {
			age = uploadAge
		}
		if !old(all[i].FileInfo, now, age) {
			continue
		}
		gone, derr := h.dropUpload("collect.upload", &all[i])
		if err = errors.Join(err, derr); gone && derr == nil {
			c.Temps++
			c.Bytes += all[i].Size()
		}
	}
	return err
}

// from is the byte from which on an input is lacking.
func (in *input) from() int64 {
	if in.begun == nil {
		return 0
	}
	return in.begun.at
}
