package spool

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"distribute/lib/job"
	"distribute/lib/pack"
)

// largeText is the text of a large input.
func largeText(word string) string {
	return strings.Repeat(word+" ", largeInput/len(word)) + word
}

var errCutHere = errors.New("cut here")

// cutUpload submits a batch that reads one file, of which n bytes come.
func cutUpload(h *Head, uid int, content string, n int) error {
	s, err := h.Begin(job.NewToken(), "ns/cut", "bob", uid)
	if err != nil {
		return err
	}
	err = errors.Join(s.Spec(plain), s.AddJob(&job.Job{Name: "a", Run: []string{"x"}, Inputs: []job.Input{inputOf("f", content)}}), s.Resume())
	if _, turns := s.Lacks(); err == nil && len(turns) == 1 {
		from := turns[0].From
		err = s.put(sumOf(content), int64(len(content)), from,
			io.MultiReader(strings.NewReader(content[from:max(from, int64(n))]), iotest.ErrReader(errCutHere)))
	}
	if errors.Is(err, errCutHere) {
		err = nil
	}
	return errors.Join(err, s.Abort())
}

// asked submits a batch that reads one file, and tells from which byte on that is
// wanted, or -1 if it is there.
func asked(t *testing.T, h *Head, uid int, content string) int64 {
	t.Helper()
	s, err := h.Begin(job.NewToken(), "ns/asked", "bob", uid)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Abort()
	j := &job.Job{Name: "a", Run: []string{"x"}, Inputs: []job.Input{inputOf("f", content)}}
	if err := errors.Join(s.Spec(plain), s.AddJob(j), s.Resume()); err != nil {
		t.Fatal(err)
	}
	if _, turns := s.Lacks(); len(turns) == 1 {
		return turns[0].From
	}
	return -1
}

// The beginning of a large input is kept wherever it is cut, and goes on where
// it was; less than that is not.
func TestD88UploadCutAtEachKindOfByte(t *testing.T) {
	t.Parallel()
	content := largeText("x") + strings.Repeat("0123456789", 1<<17)
	for _, at := range []int{0, 1, largeInput - 1, largeInput, largeInput + 1, 4 << 18, 4<<18 + 1, len(content) - 1} {
		h := newHead(t)
		for range 2 { // the second time with nothing more
			if err := cutUpload(h, os.Getuid(), content, at); err != nil {
				t.Fatal(err)
			}
		}
		want := int64(at)
		if at < largeInput {
			want = 0
		}
		if got := asked(t, h, os.Getuid(), content); got != want {
			t.Errorf("cut at %d: it is wanted from %d", at, got)
		}
		b := submit(t, h, "ns/b", []string{"a"}, content)
		if j, err := b.Job(0); err != nil || readInput(t, b, j.Inputs[0]) != content {
			t.Errorf("cut at %d: it is not what was sent (%v)", at, err)
		}
		if left, err := h.uploaded(); len(left) > 0 || err != nil {
			t.Errorf("cut at %d: left: %v, %v", at, left, err)
		}
	}
}

// What one user has begun, or sent, another does not learn of.
func TestUploadOfAnother(t *testing.T) {
	h := newHead(t)
	ana, bob := os.Getuid()+1, os.Getuid()+2
	content := largeText("secret")
	if err := cutUpload(h, ana, content, largeInput+5); err != nil {
		t.Fatal(err)
	}
	for uid, want := range map[int]int64{ana: largeInput + 5, bob: 0, os.Getuid(): 0} {
		if got := asked(t, h, uid, content); got != want {
			t.Errorf("uid %d of %d: wanted from %d, not %d", uid, ana, got, want)
		}
	}
	s, err := h.Begin(job.NewToken(), "ns/b", "ana", ana)
	if err == nil {
		err = fillIn(s, plain, []string{"a"}, content)
	}
	if err == nil {
		_, err = s.Finish(false)
	}
	if err != nil {
		t.Fatal(err)
	}
	for uid, want := range map[int]int64{ana: -1, bob: 0, os.Getuid(): -1} {
		if got := asked(t, h, uid, content); got != want {
			t.Errorf("uid %d of %d: wanted from %d, not %d, of a blob", uid, ana, got, want)
		}
	}
}

// A beginning is of use to one submission at a time.
func TestUploadsSideBySide(t *testing.T) {
	h := newHead(t)
	content := largeText("x")
	if err := cutUpload(h, 7, content, largeInput); err != nil {
		t.Fatal(err)
	}
	first, err := h.Begin(job.NewToken(), "ns/a", "bob", 7)
	if err != nil {
		t.Fatal(err)
	}
	j := &job.Job{Name: "a", Run: []string{"x"}, Inputs: []job.Input{inputOf("f", content)}}
	if err := errors.Join(first.Spec(plain), first.AddJob(j), first.Resume()); err != nil {
		t.Fatal(err)
	}
	if got := asked(t, h, 7, content); got != 0 {
		t.Errorf("the second is asked from %d", got)
	}
	if n, err := h.DropUploads(1); n != 0 || err != nil {
		t.Errorf("%d bytes that are worked on are dropped (%v)", n, err)
	}
	if err := cutUpload(h, 7, content, largeInput+3); err != nil {
		t.Fatal(err)
	}
	if err := first.Abort(); err != nil {
		t.Fatal(err)
	}
	if got := asked(t, h, 7, content); got != largeInput+3 {
		t.Errorf("of two the other is kept: %d", got)
	}
	if left, _ := h.uploaded(); len(left) != 1 {
		t.Errorf("left: %v", left)
	}
}

// What is begun goes after a day, at once if its room is needed, and if there
// was none for it.
func TestUploadsAreBounded(t *testing.T) {
	h := newHead(t)
	content := largeText("x")
	begin := func() {
		t.Helper()
		if err := cutUpload(h, 7, content, largeInput); err != nil {
			t.Fatal(err)
		}
	}
	begin()
	later(h, uploadAge-time.Hour)
	if c, err := h.Collect(context.Background(), 0); c.Temps != 0 || err != nil {
		t.Errorf("before its time: %+v, %v", c, err)
	}
	later(h, 2*time.Hour)
	if c, err := h.Collect(context.Background(), 0); c.Temps != 1 || err != nil {
		t.Errorf("after its time: %+v, %v", c, err)
	}
	begin()
	if n, err := h.DropUploads(1); n != largeInput || err != nil {
		t.Errorf("%d bytes are dropped, %v", n, err)
	}
	if got := asked(t, h, 7, content); got != 0 {
		t.Errorf("it is wanted from %d", got)
	}
	s, err := h.Begin(job.NewToken(), "ns/b", "bob", 7)
	if err == nil {
		err = fillIn(s, plain, []string{"a"}, content)
	}
	if err != nil {
		t.Fatal(err)
	}
	b, err := s.Finish(false)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	for _, look := range []struct {
		after time.Duration
		there bool
	}{{blobAge - 26*time.Hour, true}, {2 * time.Hour, false}} { // 25 hours have gone by
		later(h, look.after)
		collect(t, h, 0)
		if there := exists(h.uploads(7, sumOf(content))) == nil; there != look.there {
			t.Errorf("%v later it is known that he has sent it: %v", look.after, there)
		}
	}
}

// A disk that gets full in the middle of a large input keeps nothing of it.
func TestS04NoBeginningIsLeft(t *testing.T) {
	dir := filepath.Join(smallDisk(t, "40m"), "spool")
	if err := Init(dir, Private); err != nil {
		t.Fatal(err)
	}
	h, _, _ := loadHead(t, dir)
	content := strings.Repeat("0123456789abcdef", 4<<20)
	if err := cutUpload(h, os.Getuid(), content, len(content)); !errors.Is(err, ErrFull) {
		t.Errorf("64 MiB on a disk of 40: %v", err)
	}
	if left, err := h.uploaded(); len(left) > 0 || err != nil {
		t.Errorf("left: %v, %v", left, err)
	}
	submit(t, h, "ns/b", []string{"a"}, largeText("x"))
}

// I16: who has left thousands of beginnings does not have all of them open at
// once. Of two of one input the longer goes on.
func TestI16ManyBeginnings(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	const uid = 7
	dir := h.uploads(uid)
	if err := h.mkUploads(dir); err != nil {
		t.Fatal(err)
	}
	s, err := h.Begin(job.NewToken(), "ns/many", "bob", uid)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Abort()
	j := &job.Job{Name: "a", Run: []string{"x"}}
	for i := range maxBegun + 9 {
		content := largeText(fmt.Sprint("w", i))
		j.Inputs = append(j.Inputs, inputOf(fmt.Sprint(i), content))
		for _, token := range []string{"a", "b"} {
			if err := os.WriteFile(filepath.Join(dir, sumOf(content)+"."+token), []byte(content[:len(token)+i]), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := errors.Join(s.Spec(plain), s.AddJob(j), s.Resume()); err != nil {
		t.Fatal(err)
	}
	if n := len(s.large); n != maxBegun {
		t.Errorf("%d are open", n)
	}
}

func TestD88TwoBeginningsOfOneInput(t *testing.T) {
	h := newHead(t)
	const uid = 7
	content := largeText("x") + "and its end"
	dir := h.uploads(uid)
	if err := h.mkUploads(dir); err != nil {
		t.Fatal(err)
	}
	for token, n := range map[string]int{"a": largeInput, "b": largeInput + 9} {
		if err := os.WriteFile(filepath.Join(dir, sumOf(content)+"."+token), []byte(content[:n]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s, err := h.Begin(job.NewToken(), "ns/b", "bob", uid)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Abort()
	j := &job.Job{Name: "a", Run: []string{"x"}, Inputs: []job.Input{inputOf("f", content)}}
	if err := errors.Join(s.Spec(plain), s.AddJob(j), s.Resume()); err != nil {
		t.Fatal(err)
	}
	if err := s.put(sumOf(content), int64(len(content)), largeInput+9, strings.NewReader(content[largeInput+9:])); err != nil {
		t.Fatal(err)
	}
	if _, turns := s.Lacks(); len(turns) > 0 {
		t.Errorf("it is wanted again: %v", turns)
	}
}

// Inputs of which every other one is on the head come in several turns, each of which a message
// can name.
func TestLacksInTurns(t *testing.T) {
	s := &Submission{}
	for i := range 4*pack.MaxRanges + 2 {
		in := &input{size: 1, at: -1, have: i%2 == 0}
		binary.BigEndian.PutUint32(in.sum[:], uint32(i))
		s.order = append(s.order, in)
	}
	m, turns := s.Lacks()
	var lacking []int
	for _, want := range turns {
		if n := len(want.Ranges); n > pack.MaxRanges || want.Check(m) != nil {
			t.Errorf("a turn of %d ranges: %v", n, want.Check(m))
		}
		for _, r := range want.Ranges {
			lacking = append(lacking, r[0])
		}
	}
	if len(lacking) != len(m)/2 || !slices.IsSorted(lacking) {
		t.Errorf("%d of %d inputs are lacking", len(lacking), len(m))
	}
	for _, i := range lacking {
		if s.order[i].have {
			t.Fatalf("input %d is lacking, and is there", i)
		}
	}
}
