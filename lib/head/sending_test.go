package head

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"distribute/lib/cli"
	"distribute/lib/job"
	"distribute/lib/pack"
	"distribute/lib/wire"
	"distribute/spool"
)

// lacking submits a batch of one job that reads content, up to what the head
// lacks.
func (s *site) lacking(ref job.Token, content string) (*wire.Conn, wire.Message) {
	s.t.Helper()
	sum := sha256.Sum256([]byte(content))
	j := job.Job{Name: "j", Run: []string{"true"},
		Inputs: []job.Input{{Path: "f", Size: int64(len(content)), Mode: 0o644, Sum: hex.EncodeToString(sum[:])}}}
	c := s.tool()
	s.send(c, &wire.Submit{Ref: ref, Batch: "ns/b", Jobs: 1})
	s.transfer(c, &wire.Send{X: 1, Of: wire.OfBatch}, "")
	s.transfer(c, &wire.Send{X: 2, Of: wire.OfSpec}, `{"kind":"command","resources":{"cpus":1}}`)
	s.transfer(c, &wire.Send{X: 3, Of: wire.OfJobs}, string(append(job.AppendJob(nil, &j), '\n')))
	m, err := c.Recv()
	if err != nil {
		s.t.Fatal(err)
	}
	return c, m
}

// inputs is the frame in which content goes to the head from a byte on.
func inputs(t *testing.T, content string, from int64) []byte {
	t.Helper()
	sum := sha256.Sum256([]byte(content))
	var b bytes.Buffer
	err := pack.SendStored(&b, pack.Blobs(map[string]int64{hex.EncodeToString(sum[:]): int64(len(content))}), pack.Want{From: from},
		func(int, pack.Entry) (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(content)), nil })
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// begin sends the first n bytes of a frame and waits until the head has written
// a good part of them.
func (s *site) begin(c *wire.Conn, frame []byte) {
	s.t.Helper()
	s.send(c, &wire.Send{X: 4, Of: wire.OfInputs})
	for len(frame) > 0 {
		n := min(len(frame), wire.MaxFrame)
		s.send(c, &wire.Data{X: 4, N: n, Payload: frame[:n]})
		frame = frame[n:]
	}
	await(s.t, func() bool {
		names, _ := filepath.Glob(filepath.Join(s.dir, "uploads/*/*.*"))
		info, err := os.Stat(strings.Join(names, ""))
		return err == nil && info.Size() >= 1<<20
	})
}

// nobodySends says that no submission is under way.
func (s *site) nobodySends() bool {
	s.h.tools.sending.mu.Lock()
	defer s.h.tools.sending.mu.Unlock()
	return len(s.h.tools.sending.of) == 0
}

// A tool that comes back with its submission before the head knows that its
// stream is lost goes on there; the old stream ends.
func TestD88SubmissionOnAnotherStream(t *testing.T) {
	s := newSite(t)
	content, ref := strings.Repeat("0123456789abcdef", 3<<16), job.NewToken()
	stalled, _ := s.lacking(ref, content)
	s.begin(stalled, inputs(t, content, 0)[:2<<20])
	c, m := s.lacking(ref, content)
	lack, ok := m.(*wire.Lack)
	if !ok || lack.Want.From < 1<<20 {
		t.Fatalf("got %+v", m)
	}
	if _, err := stalled.Recv(); err == nil {
		t.Error("the old stream goes on")
	}
	err := c.SendTransfer(&wire.Send{X: 4, Of: wire.OfInputs}, func(w io.Writer) error {
		_, err := w.Write(inputs(t, content, lack.Want.From))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	expect[*wire.Accepted](t, c)
	if _, m := s.lacking(ref, content); !m.(*wire.Accepted).Same {
		t.Errorf("the same once more: %+v", m)
	}
}

// An input that is lost on the head is one answer to the node that fetches it: what it
// fetches then it gets.
func TestLostInputIsOneAnswer(t *testing.T) {
	s := newSite(t)
	content := strings.Repeat("0123456789abcdef", 3<<16)
	c, _ := s.lacking(job.NewToken(), content)
	s.transfer(c, &wire.Send{X: 4, Of: wire.OfInputs}, string(inputs(t, content, 0)))
	expect[*wire.Accepted](t, c)
	sum := sha256.Sum256([]byte(content))
	name := hex.EncodeToString(sum[:])
	if err := os.Remove(filepath.Join(s.dir, "blobs", name[:2], name)); err != nil {
		t.Fatal(err)
	}
	d := s.desk("ws1", "boot1")
	start := expect[*wire.Start](t, d.c)
	s.send(d.down, &wire.Fetch{Attempt: start.Attempt, Of: wire.OfInputs, Sums: []string{name}})
	if e := expect[*wire.Error](t, d.down); e.Status != cli.NoSuch || !strings.Contains(e.Text, "is missing on the head") {
		t.Errorf("the input: %v", e)
	}
	for range 2 * nodeLines { // nor does it fill the log
		s.send(d.down, &wire.Fetch{Attempt: start.Attempt, Of: wire.OfInputs, Sums: []string{name}})
		if e := expect[*wire.Error](t, d.down); e.Status != cli.NoSuch {
			t.Errorf("the input once more: %v", e)
		}
	}
	if n := strings.Count(s.log.String(), "is missing on the head"); n == 0 || n > nodeLines {
		t.Errorf("%d lines of it are in the log", n)
	}
	s.send(d.down, &wire.Fetch{Attempt: start.Attempt, Of: wire.OfInputs, Sums: []string{name}, From: 1 << 50})
	if e := expect[*wire.Error](t, d.down); e.Status != cli.Usage {
		t.Errorf("what is behind its end: %v", e)
	}
	s.send(d.down, &wire.Fetch{Attempt: start.Attempt, Of: wire.OfSpec})
	m, err := d.down.Recv()
	if send, ok := m.(*wire.Send); !ok || send.Of != wire.OfSpec {
		t.Errorf("the next answer is %+v, %v", m, err)
	}
}

// What was begun and is not what it should be is asked for anew, on the same
// stream.
func TestD88BeginningThatDoesNotFit(t *testing.T) {
	s := newSite(t)
	content := strings.Repeat("0123456789abcdef", 3<<16)
	c, _ := s.lacking(job.NewToken(), content)
	s.begin(c, inputs(t, content, 0)[:2<<20])
	c.Close()
	names, _ := filepath.Glob(filepath.Join(s.dir, "uploads/*/*.*"))
	await(s.t, func() bool {
		f, err := os.OpenFile(names[0], os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		_, err = f.WriteAt([]byte("wrong"), 4711)
		return err == nil && s.nobodySends()
	})
	c, m := s.lacking(job.NewToken(), content)
	for _, begun := range []bool{true, false} {
		lack, ok := m.(*wire.Lack)
		if !ok || lack.None || lack.Want.From > 0 != begun {
			t.Fatalf("got %+v", m)
		}
		s.transfer(c, &wire.Send{X: 4, Of: wire.OfInputs}, string(inputs(t, content, lack.Want.From)))
		var err error
		if m, err = c.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	if _, ok := m.(*wire.Accepted); !ok {
		t.Errorf("got %+v", m)
	}
}

// Beginnings of inputs give way to what has to be taken now, and are no reason
// to refuse it.
func TestD94BeginningsGiveWay(t *testing.T) {
	s := newSite(t)
	content := strings.Repeat("0123456789abcdef", 3<<16)
	c, _ := s.lacking(job.NewToken(), content)
	s.begin(c, inputs(t, content, 0)[:2<<20])
	c.Close()
	await(s.t, s.nobodySends)
	for _, room := range []bool{true, false} {
		s.h.transfers.room.mu.Lock()
		s.h.transfers.room.space = func() (spool.Space, error) {
			sp := spool.Space{Free: 4 << 20, Files: -1}
			if names, _ := filepath.Glob(filepath.Join(s.dir, "uploads/*/*")); len(names) > 0 || !room {
				sp.Free = 1 << 20
			}
			return sp, nil
		}
		s.h.transfers.room.reserve.Store(0)
		s.h.transfers.room.mu.Unlock()
		_, m := s.lacking(job.NewToken(), strings.ToUpper(content))
		switch m := m.(type) {
		case *wire.Lack:
			if !room {
				t.Errorf("without room: %+v", m)
			}
		case *wire.Error:
			if room || m.Status != cli.Later {
				t.Errorf("room: %v: %+v", room, m)
			}
		}
	}
	if names, _ := filepath.Glob(filepath.Join(s.dir, "uploads/*/*")); len(names) > 0 {
		t.Errorf("left: %q", names)
	}
}
