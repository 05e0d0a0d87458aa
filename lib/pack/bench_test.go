package pack

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// memory is a Sink that only counts.
type memory struct{ n int64 }

func (s *memory) Put(_ int, _ Entry, _ int64, r io.Reader) error {
	if r == nil {
		return nil
	}
	n, err := io.Copy(io.Discard, r)
	s.n += n
	return err
}

// BenchmarkTinyTrees sends and receives, in memory, what a short job leaves:
// four small files.
func BenchmarkTinyTrees(b *testing.B) {
	content := bytes.Repeat([]byte("0.125,17.5\n"), 100)
	var m Manifest
	for i := range 4 {
		m = append(m, Entry{Path: fmt.Sprintf("out%d.csv", i), Type: File, Size: int64(len(content)),
			Mode: 0o644, Time: minTime, Sum: sumHex(content)})
	}
	open := func(int, Entry) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil }
	var buf bytes.Buffer
	b.ReportAllocs()
	for b.Loop() {
		buf.Reset()
		must(b, m.Encode(&buf))
		got, err := DecodeManifest(&buf, Limits{})
		must(b, err)
		buf.Reset()
		must(b, Send(&buf, m, Want{}, open))
		must(b, Receive(&buf, got, Want{}, new(memory)))
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "trees/s")
}

// BenchmarkTree sends 64 MiB in 64 files through a pipe into a new tree. Set
// PACK_BENCH_TREE to a directory to send that instead.
func BenchmarkTree(b *testing.B) {
	from := os.Getenv("PACK_BENCH_TREE")
	if from == "" {
		from = b.TempDir()
		for i := range 64 {
			writeFile(b, filepath.Join(from, fmt.Sprintf("f%d", i)), 1<<20, 0o644)
		}
	}
	root := openRoot(b, from)
	m, _, err := Scan(context.Background(), root, nil, Limits{})
	must(b, err)
	b.SetBytes(m.Bytes())
	for b.Loop() {
		r, w := io.Pipe()
		go func() { w.CloseWithError(Send(w, m, Want{}, opener(root))) }()
		to := b.TempDir()
		tree := NewTree(openRoot(b, to), Perm{})
		must(b, Receive(r, m, Want{}, tree))
		must(b, tree.Close())
		b.StopTimer()
		must(b, os.RemoveAll(to))
		b.StartTimer()
	}
}

func BenchmarkScan(b *testing.B) {
	dir := b.TempDir()
	for i := range 64 {
		writeFile(b, filepath.Join(dir, fmt.Sprintf("f%d", i)), 1<<20, 0o644)
	}
	b.SetBytes(64 << 20)
	for b.Loop() {
		scan(b, dir)
	}
}

func BenchmarkManifest(b *testing.B) {
	var m Manifest
	for i := range 10_000 {
		m = append(m, Entry{Path: fmt.Sprintf("out%05d.csv", i), Type: File, Size: int64(i), Mode: 0o644, Time: maxTime, Sum: sumHex(nil)})
	}
	var buf bytes.Buffer
	must(b, m.Encode(&buf))
	text := buf.Bytes()
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		_, err := DecodeManifest(bytes.NewReader(text), Limits{})
		must(b, err)
	}
}
