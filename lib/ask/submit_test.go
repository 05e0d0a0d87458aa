package ask

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"distribute/lib/cli"
	"distribute/lib/job"
	"distribute/lib/pack"
	"distribute/lib/wire"
)

// An input that becomes shorter or longer while it is sent is named, and the submission is
// refused as one of a file that changes in another way.
func TestInputChangesItsSize(t *testing.T) {
	text := make([]byte, 16<<20)
	rand.NewChaCha8([32]byte{}).Read(text) // which no compression makes shorter
	for _, end := range []int64{15 << 20, 17 << 20} {
		path := filepath.Join(t.TempDir(), "huge.dat")
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		f, src, err := job.OpenSource(path)
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
		src.Sum = strings.Repeat("5", 64)
		near, far := net.Pipe()
		head := wire.New(far)
		read := make(chan error, 1)
		go func() {
			send, err := wire.Expect[*wire.Send](head)
			if err != nil {
				read <- err
				return
			}
			in := head.RecvTransfer(send)
			_, err = io.ReadFull(in, make([]byte, 1))
			if err = errors.Join(err, os.Truncate(path, end)); err == nil {
				err = wire.Drain(in)
			}
			read <- err
		}()
		s := &submission{c: &cli.Cmd{Name: "dtest", Stderr: io.Discard, Getenv: os.Getenv}, h: &Head{Conn: wire.New(near), Addr: "tcp://head:1"},
			b: &job.Batch{Sources: map[string]job.Source{src.Sum: src}}}
		err = s.sendInputs("", pack.Want{})
		if !errors.Is(err, job.ErrChanged) || !strings.Contains(err.Error(), `huge.dat" changed`) || !errors.As(err, new(*inputError)) || cli.Status(err) != cli.Input {
			t.Errorf("with %d bytes: %v", end, err)
		}
		if err := <-read; !errors.Is(err, wire.ErrGaveUp) {
			t.Errorf("the head gets %v", err)
		}
		near.Close()
	}
}

// A head of release 0.1.0 would leave mpi out, and have each rank started by itself. What a cluster
// has run comes home there, too.
func TestRanksByMPI(t *testing.T) {
	asks := job.Resources{CPUs: 1, Ranks: 2, MPI: true}
	for name, b := range map[string]*job.Batch{"batch": {Spec: job.Spec{Resources: asks}}, "job": {Jobs: []job.Job{{Name: "a"}, {Name: "b", Resources: &asks}}}} {
		for _, c := range []struct{ takes, cluster bool }{{false, false}, {false, true}, {true, false}} {
			near, far := net.Pipe()
			sent := make(chan error, 1)
			go func() {
				_, err := wire.Expect[*wire.Submit](wire.New(far))
				far.Close()
				sent <- err
			}()
			h := &Head{Conn: wire.New(near), Addr: "/srv/spool", OnCluster: c.cluster, mpi: c.takes}
			_, _, err := h.Submit(t.Context(), &cli.Cmd{Name: "dtest", Stderr: io.Discard, Getenv: os.Getenv}, b, wire.Submit{})
			near.Close()
			refused := err != nil && strings.Contains(err.Error(), `the head at "/srv/spool" is of an earlier release`)
			if got, want := <-sent, !c.takes && !c.cluster; refused != want || (got != nil) != want {
				t.Errorf("mpi of the %s, which the head takes, or a cluster runs: %v: %v, and it gets %v", name, c, err, got)
			}
		}
	}
}

// A head of an earlier release gets no batch with secrets: it would keep no values, and its nodes
// run the jobs without them.
func TestSecretsNeedTheHead(t *testing.T) {
	b := &job.Batch{Spec: job.Spec{Secrets: []string{"KEY"}}, Secrets: job.Secrets{"KEY=hidden-1"}}
	near, far := net.Pipe()
	defer far.Close()
	defer near.Close()
	h := &Head{Conn: wire.New(near), Addr: "/srv/spool"}
	_, _, err := h.Submit(t.Context(), &cli.Cmd{Name: "dtest", Stderr: io.Discard, Getenv: os.Getenv}, b, wire.Submit{})
	if err == nil || cli.Status(err) != cli.Input || !strings.Contains(err.Error(), `the head at "/srv/spool" is of an earlier release, which keeps no secrets`) {
		t.Error(err)
	}
}
