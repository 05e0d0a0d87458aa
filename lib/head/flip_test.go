package head

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash/crc32"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"distribute/lib/durable"
	"distribute/lib/job"
	"distribute/lib/pack"
	"distribute/lib/wire"
	"distribute/spool"
)

// flipped sends a transfer of which one bit is turned round on the way.
func (d *desk) flipped(send *wire.Send, text []byte, at int) {
	d.t.Helper()
	whole := sha256.Sum256(text)
	sum := whole[:]
	if send.Of == wire.OfTree {
		sum = binary.BigEndian.AppendUint32(nil, crc32.Checksum(text, crc32.MakeTable(crc32.Castagnoli)))
	}
	bad := bytes.Clone(text)
	bad[at] ^= 4
	d.send(d.up, send, &wire.Data{X: send.X, N: len(bad), Payload: bad},
		&wire.End{X: send.X, Bytes: int64(len(text)), Sum: hex.EncodeToString(sum)})
}

// A bit that is flipped on the way, wherever in a manifest or a tree, is no
// fault of the result: it is asked for again.
func TestD89FlippedAnywhere(t *testing.T) {
	s, d, start := givenJob(t)
	m, open := result("hello\n")
	var manifest, tree bytes.Buffer
	if err := m.Encode(&manifest); err != nil {
		t.Fatal(err)
	}
	if err := pack.Send(&tree, m, pack.Want{}, open); err != nil {
		t.Fatal(err)
	}
	r := ended(start.Attempt, 0, m).Result
	s.send(d.c, &wire.Phase{Attempt: start.Attempt, Phase: job.PhaseRunning}, &wire.Ended{Attempt: start.Attempt, Result: r})
	again := func() *wire.Grant {
		d.up.ReadWithin(time.Minute)
		d.up.Recv() // the head ends the stream
		d.c.Close()
		d = s.desk("ws1", "boot1", listed(start, job.PhaseReturning, &r))
		return d.granted()
	}
	g := d.granted()
	for at := 0; at < manifest.Len(); at += 11 {
		d.flipped(&wire.Send{X: 1, Of: wire.OfManifest, Attempt: g.Attempt}, manifest.Bytes(), at)
		g = again()
	}
	for at := 0; at < tree.Len(); at += 7 {
		if g.Manifest {
			d.transfer(d.up, &wire.Send{X: 1, Of: wire.OfManifest, Attempt: g.Attempt}, manifest.String())
		}
		d.flipped(&wire.Send{X: 2, Of: wire.OfTree, Attempt: g.Attempt}, tree.Bytes(), at)
		g = again()
	}
	if row := s.state("ns/b/j"); row.State != job.Running {
		t.Fatalf("the job is %+v", row)
	}
	d.give(g, "hello\n")
	s.becomes("ns/b/j", job.Done)
}

// panics lets the next step of a name panic, once it is stored in what it
// returns.
func panics(t *testing.T) *atomic.Value {
	var at atomic.Value
	at.Store("")
	t.Cleanup(durable.Observe(&durable.Observer{Step: func(name string) error {
		if at.CompareAndSwap(name, "") {
			panic(name)
		}
		return nil
	}, Sync: func(f *os.File, _ bool) error { return f.Sync() }}))
	return &at
}

// A panic while a result is received or made durable costs it its turn, and
// nothing else: it keeps no room, and dsched goes on.
func TestN69PanicWithAResult(t *testing.T) {
	at := panics(t)
	s, d, start := givenJob(t)
	m, _ := result("hello\n")
	s.send(d.c, &wire.Phase{Attempt: start.Attempt, Phase: job.PhaseRunning}, ended(start.Attempt, 0, m))
	for _, step := range []string{"stage.tree", "seal.sync"} {
		g := d.granted()
		at.Store(step)
		d.give(g, "hello\n")
		await(t, func() bool { return at.Load() == "" && s.nothingPromised() })
		s.pass(time.Minute, d)
	}
	s.becomes("ns/b/j", job.Done) // all of it is here
}

// A panic while a file of incoming/ is read leaves it there, and dsched goes on.
func TestN69PanicWithIncoming(t *testing.T) {
	at, h := panics(t), newState(t)
	h.background(t)
	d := spool.Drop{Submission: job.NewToken(), Batch: "ns/b", Jobs: 1}
	jobs := slices.Values([]*job.Job{{Name: "j", Run: []string{"true"}}})
	err := h.spool.Leave(d, nil, &job.Spec{Kind: job.Command}, jobs, nil)
	if err != nil {
		t.Fatal(err)
	}
	at.Store("submit.begin")
	if err := h.takeOne(string(d.Submission), h.log); err == nil || at.Load() != "" {
		t.Fatalf("there was no panic: %v", err)
	}
	if !(&site{h: h}).nothingPromised() || len(h.tools.users) > 0 {
		t.Error("it keeps something")
	}
	if err := h.takeOne(string(d.Submission), h.log); err != nil {
		t.Error(err)
	}
	h.do(func() {
		if len(h.batches) != 1 {
			t.Errorf("%d batches", len(h.batches))
		}
	})
}
