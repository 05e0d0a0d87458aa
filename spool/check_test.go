package spool

import (
	"bytes"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"distribute/lib/check"
	"distribute/lib/check/harm"
	"distribute/lib/job"
	"distribute/lib/suite"
)

// checkSpool is what Check tells of a spool on which no head runs.
func checkSpool(t testing.TB, dir string, mend bool) (found []*check.Finding) {
	t.Helper()
	r := &check.Run{Dir: dir, Sums: true, Mend: mend, Key: check.PEM, Tell: func(f *check.Finding) error {
		found = append(found, f)
		if mend {
			s, err := Open(dir)
			if err != nil {
				return err
			}
			if live, err := s.Live(); err != nil || !live {
				t.Errorf("a head can start while it mends: %v", err)
			}
		}
		return nil
	}}
	if err := Check(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	return found
}

// lines are findings as they are printed.
var lines = harm.Lines

// fullSpool is a spool, closed, with something of everything: a batch with
// inputs, a done, a failed and a queued job, and a result that is on its way in.
// token is of the attempt of job a, whose result is accepted.
func fullSpool(t testing.TB) (dir string, token job.Token) {
	t.Helper()
	h := newHead(t)
	b := submit(t, h, "ns/b", []string{"a", "b", "c", "d"}, crashContents...)
	var starts []job.Record
	for _, name := range []string{"a", "b", "c"} {
		starts = append(starts, start(name, 1))
	}
	commit(t, h, b, starts...)
	for i, place := range []func() error{
		func() error { return h.Publish(b, "a", starts[0].Attempt) },
		func() error { return h.Aside(b, "b", 1, starts[1].Attempt) },
	} {
		m, err := bring(h, b, starts[i].Attempt, "of "+starts[i].Job)
		if err != nil {
			t.Fatal(err)
		}
		kind := job.KindDone
		if i == 1 {
			kind = job.KindFailed
		}
		commit(t, h, b, endOf(kind, starts[i], m))
		if err := errors.Join(place(), h.SyncPublished()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := bring(h, b, starts[2].Attempt, "of c"); err != nil {
		t.Fatal(err)
	}
	h.AppendHead(&job.Record{Kind: job.KindNode, Node: "ws1", State: string(job.NewToken())})
	if err := errors.Join(h.NodeSeen("ws1", "hello"), h.Commit(), b.Close(), h.Close()); err != nil {
		t.Fatal(err)
	}
	return h.Dir(), starts[0].Attempt
}

// variedSpool makes a spool with batches in all states: that of fullSpool; one that is over
// and whose inputs were collected; one with small results; one that was opened again; one
// that nobody began; and one in a directory that is private.
func variedSpool(t testing.TB) string {
	dir, _ := fullSpool(t)
	h, open, _ := loadHead(t, dir)
	run := func(id job.BatchID, kinds ...job.Kind) *Batch {
		names := []string{"a", "b", "c"}[:len(kinds)]
		b := submit(t, h, id, names, string(id)+" small", strings.Repeat(string(id)[3:5], job.SmallFile))
		for i, name := range names {
			if kinds[i] == "" {
				continue
			}
			s := start(name, 1)
			commit(t, h, b, s)
			m, err := bring(h, b, s.Attempt, string(id)+" of "+name)
			if err != nil {
				t.Fatal(err)
			}
			commit(t, h, b, endOf(kinds[i], s, m))
			if kinds[i] == job.KindDone {
				err = h.Publish(b, name, s.Attempt)
			} else {
				err = h.Aside(b, name, 1, s.Attempt)
			}
			if err := errors.Join(err, h.SyncPublished()); err != nil {
				t.Fatal(err)
			}
		}
		return b
	}
	over := run("ns/over", job.KindDone, job.KindFailed)
	again := run("ns/again", job.KindDone, job.KindFailed)
	for _, b := range []*Batch{over, again} {
		h.CloseBatch(b)
		if err := h.Commit(); err != nil {
			t.Fatal(err)
		}
	}
	sealsSmall = true
	run("ns/tiny", job.KindDone, job.KindFailed, "")
	sealsSmall = false
	commit(t, h, again, job.Record{Kind: job.KindRetry, Job: "b", By: "ana"})
	run("no/waits", "", "")
	private := run("no/private", job.KindDone, "")
	h.AppendHead(&job.Record{Kind: job.KindDrained, Node: "ws2", By: "ana"})
	log, whole, err := h.BuildLog(private, "ws1")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(err, log.Close(), whole(), os.WriteFile(h.KeyFile(), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY"}), 0o600), h.Commit(), os.Remove(blobOf(dir, "over")), os.Truncate(filepath.Join(dir, "ballast"), 4096), os.Chmod(private.dir, 0o700),
		os.WriteFile(filepath.Join(dir, "keys/nodes"), []byte("ws1 -\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, b := range open {
		b.Close()
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

// blobOf is the path of the blob that a batch of variedSpool reads.
func blobOf(dir, batch string) string {
	sum := sumOf(strings.Repeat(batch[:2], job.SmallFile))
	return filepath.Join(dir, "blobs", sum[:2], sum)
}

// copyTree copies a spool, so that each case damages its own.
func copyTree(t testing.TB, dir string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "spool")
	if out, err := exec.Command("cp", "-a", dir, to).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return to
}

func TestCheckWhole(t *testing.T) {
	dir, _ := fullSpool(t)
	if found := checkSpool(t, dir, false); len(found) > 0 {
		t.Errorf("a whole spool has\n%s", lines(found))
	}
	if found := checkSpool(t, newClosed(t), false); len(found) > 0 {
		t.Errorf("a new spool has\n%s", lines(found))
	}
}

func newClosed(t testing.TB) string {
	h := newHead(t)
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	return h.Dir()
}

// A wound is a way to harm a spool, what Check says of it, and what is found
// after it was mended.
type wound struct {
	what  string
	harm  func(t *testing.T, at func(string) string)
	want  string // matches all that is told
	after string // and after it was mended; empty: the spool is whole then
}

func overwrite(file, from, to string) func(*testing.T, func(string) string) {
	return func(t *testing.T, at func(string) string) {
		text, err := os.ReadFile(at(file))
		if err != nil {
			t.Fatal(err)
		}
		changed := strings.Replace(string(text), from, to, 1)
		if changed == string(text) {
			t.Fatalf("%s has no %q", file, from)
		}
		if err := os.WriteFile(at(file), []byte(changed), 0o640); err != nil {
			t.Fatal(err)
		}
	}
}

func appendTo(file, text string) func(*testing.T, func(string) string) {
	return func(t *testing.T, at func(string) string) {
		f, err := os.OpenFile(at(file), os.O_WRONLY|os.O_APPEND, 0)
		if err == nil {
			_, err = f.WriteString(text)
		}
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

func makeFile(file string) func(*testing.T, func(string) string) {
	return func(t *testing.T, at func(string) string) {
		if err := errors.Join(os.MkdirAll(filepath.Dir(at(file)), 0o750), os.WriteFile(at(file), []byte("mine"), 0o640)); err != nil {
			t.Fatal(err)
		}
	}
}

func remove(file string) func(*testing.T, func(string) string) {
	return func(t *testing.T, at func(string) string) {
		if err := os.RemoveAll(at(file)); err != nil {
			t.Fatal(err)
		}
	}
}

// blobName is the blob of fullSpool.
var blobName = "blobs/" + sumOf(crashContents[1])[:2] + "/" + sumOf(crashContents[1])

const batchLog, batchJobs = "batches/ns/b/log.jsonl", "batches/ns/b/jobs.jsonl"

var wounds = []wound{
	{"J21 torn", appendTo(batchLog, `{"seq":99,"t`),
		`^torn\tbatches/ns/b/log.jsonl\tline 7 \(byte \d+\): the last line is unfinished: 12 bytes .*\tcut it off and keep it beside, as .*\n$`, ""},
	{"J22 zeros", appendTo(batchLog, strings.Repeat("\x00", 4096)),
		`^torn\tbatches/ns/b/log.jsonl\tline 7 .*: 4096 bytes`, ""},
	{"mistakes in the list of nodes", func(t *testing.T, at func(string) string) {
		text := "# ours\nws1 SHA256:x\nws2 -\nws2 -\n" + strings.Repeat("ws3\n", 20)
		if err := os.WriteFile(at("keys/nodes"), []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
	}, `(?s)^strange\tkeys/nodes\tits mode is 0640, more than 0600\tset its mode to 0600\n` +
		`damaged\tkeys/nodes\tline 2 \(byte 7\): "SHA256:x" is no fingerprint.*\tnothing: correct the line.*` +
		`damaged\tkeys/nodes\tline 4 \(byte 26\): ws2 stands in line 3 already\t.*\t14 more of that\tnothing: `, "^damaged\tkeys/nodes\t"},
	{"torn head.jsonl", appendTo("head.jsonl", `{"seq":99,"t`), `^torn\thead.jsonl\tline 3 `, ""},
	{"J23 a bit in the log", overwrite(batchLog, `"job":"b"`, `"job":"c"`),
		`^damaged\tbatches/ns/b/log.jsonl\tline 3 \(byte \d+\): the checksum is .*; the last good record before it is \d+; ` +
			`2 records before it and 3 behind it are whole; accepted by whole records and in out/: a\tnothing: `, "^damaged\tbatches/ns/b/log.jsonl\t"},
	{"J24 a bad line before good ones", overwrite(batchLog, "}\n{", "}\n\x00\x00\n{"), `^damaged\tbatches/ns/b/log.jsonl\tline 2 `, "^damaged"},
	{"J29 no log", remove(batchLog), `^damaged\tbatches/ns/b/log.jsonl\tit is missing; nothing tells what became of its jobs; out/ holds 1 result\t`, "^damaged"},
	{"J29 no jobs", remove(batchJobs), `^damaged\tbatches/ns/b/jobs.jsonl\tit is missing\t`, "^damaged"},
	{"J29 no batch", remove("batches/ns/b"), `^damaged\tbatches/ns/b\tthe directory of a batch that is opened is missing\t`, "^damaged"},
	{"a bit in the jobs", overwrite(batchJobs, `"name":"c"`, `"name":"q"`), `^damaged\tbatches/ns/b/jobs.jsonl\tline 3 \(byte \d+\): the checksum`, "^damaged"},
	{"a job that needs itself", needsItself, `^damaged\tbatches/ns/b/jobs.jsonl\tline 3 \(byte \d+\): job "c" needs itself: remove that\t`, "^damaged"},
	{"a bit in head.jsonl", overwrite("head.jsonl", `"batch":"ns/b"`, `"batch":"ns/c"`), `^damaged\thead.jsonl\tline 1 `, "^damaged"},
	{"D89 a bit in a result", overwrite("batches/ns/b/out/a/out/x.csv", "of", "on"),
		`^damaged\tbatches/ns/b/out/a/out/x.csv\tit is not what the manifest says: it has rotted or was changed\tnothing: .*\n$`, "^damaged"},
	{"D89 a bit in a blob", overwrite(blobName, "big", "bug"),
		"^damaged\t" + blobName + "\tits content has another sum than its name: it has rotted\tmove it to found/blobs/..*\n$",
		"^damaged\t" + blobName + "\tit is missing, and ns/b reads it"},
	{"D89 a bit in files.tar", overwrite("batches/ns/b/files.tar", "small", "smell"), `^damaged\tbatches/ns/b/files.tar\tbyte 512: .*rotted`, "^damaged"},
	{"D89 a bit in a header", overwrite("batches/ns/b/files.tar", "ustar", "astar"), `^damaged\tbatches/ns/b/files.tar\tbyte 512: the header`, "^damaged"},
	{"a manifest", overwrite("batches/ns/b/manifests/a.jsonl", "x.csv", "y.csv"), `^damaged\tbatches/ns/b/manifests/a.jsonl\tit is not a manifest`, "^damaged"},
	{"a file too many", makeFile("batches/ns/b/out/a/more"), `^damaged\tbatches/ns/b/out/a/more\tit is not in the manifest`, "^damaged"},
	{"a file too few", remove("batches/ns/b/out/a/out/x.csv"), `^damaged\tbatches/ns/b/out/a/out/x.csv\tthe manifest has it, and it is missing`, "^damaged"},
	{"I2 no result", remove("batches/ns/b/out/a"), `^damaged\tbatches/ns/b/out/a\tthe log accepts it of attempt [0-9a-f]{32}, and it is nowhere\t`, "^damaged"},
	{"I2 a result of nobody", makeFile("batches/ns/b/out/d/x"), "^strange\tbatches/ns/b/out/d\tno record of the log accepts it\tmove it to found/batches/ns/b/out/d\n$", ""},
	{"no blob", remove(blobName), "^damaged\t" + blobName + "\tit is missing, and ns/b reads it", "^damaged"},
	{"a short blob", overwrite(blobName, "big", ""), "(?m)^damaged\t" + blobName + "\tit has 196605 bytes, and ns/b reads it as one of 196608", "^damaged"},
	{"no files.tar", remove("batches/ns/b/files.tar"), "^damaged\tbatches/ns/b/files.tar\tit is missing", "^damaged"},
	{"a stranger at the top", makeFile("thesis.tex"), "^strange\tthesis.tex\t", ""},
	{"a stranger in a batch", makeFile("batches/ns/b/notes"), "^strange\tbatches/ns/b/notes\t", ""},
	{"a stranger in blobs", makeFile("blobs/zz"), "^strange\tblobs/zz\t", ""},
	{"a name to beware of", makeFile("nodes/a\nb\x1b[31m"), `^strange\t"nodes/a\\nb\\x1b\[31m"\t`, ""},
	{"an attempt of nobody", makeFile("batches/ns/b/staging/00112233445566778899aabbccddeeff/tree/x"),
		"^left\tbatches/ns/b/staging/00112233445566778899aabbccddeeff\tthe log does not know this attempt", "^left"},
	{"a submission cut short", makeFile("batches/ns/.new-x/jobs.jsonl"), "^left\tbatches/ns/.new-x\t", "^left"},
	{"a log that is a FIFO", func(t *testing.T, at func(string) string) {
		if err := errors.Join(os.Remove(at(batchLog)), mkfifo(at(batchLog))); err != nil {
			t.Fatal(err)
		}
	}, "^strange\tbatches/ns/b/log.jsonl\tit should be a regular file\tmove .*\ndamaged\tbatches/ns/b/log.jsonl\tit cannot be read: it is not a regular file", "^damaged\tbatches/ns/b/log.jsonl\tit is missing"},
	{"a mode", func(t *testing.T, at func(string) string) {
		if err := os.Chmod(at(batchLog), 0o666); err != nil {
			t.Fatal(err)
		}
	}, "^strange\tbatches/ns/b/log.jsonl\tits mode is 0666, more than 0640\tset its mode to 0640\n$", ""},
	{"an owner", func(t *testing.T, at func(string) string) {
		if os.Getuid() != 0 {
			suite.Missing(t, "only root can give files away")
		}
		if err := os.Chown(at(batchLog), 61000, -1); err != nil {
			t.Fatal(err)
		}
	}, "^strange\tbatches/ns/b/log.jsonl\tit belongs to user 61000 and not to 0\tnothing: chown 0, .*\n$", "^strange\tbatches/ns/b/log.jsonl\tit belongs to user 61000"},
	{"closed too early", appendTo("head.jsonl", string(appendRecord(nil, &job.Record{Seq: 1000, Kind: job.KindClosed, Batch: "ns/b"}))),
		"damaged\tbatches/ns/b\thead.jsonl lists it as closed with 2 jobs to be done, .*\tlist it as open in head.jsonl\n", ""},
	{"the spool is open to all", func(t *testing.T, at func(string) string) {
		if err := os.Chmod(at("."), 0o777); err != nil {
			t.Fatal(err)
		}
	}, "^strange\t.\tits mode is 0777, more than 0755\tset its mode to 0755\n$", ""},
	{"a log that its owner cannot write", func(t *testing.T, at func(string) string) {
		if err := os.Chmod(at(batchLog), 0o440); err != nil {
			t.Fatal(err)
		}
	}, "^strange\tbatches/ns/b/log.jsonl\tits mode is 0440, less than 0600\tset its mode to 0640\n$", ""},
	{"a key that was cut", func(t *testing.T, at func(string) string) {
		if err := os.WriteFile(at("keys/head"), []byte("-----BEGIN"), 0o600); err != nil {
			t.Fatal(err)
		}
	}, "^damaged\tkeys/head\tit is not a key: .*\tnothing: put it back from a copy, or remove it and run dadm init", "^damaged\tkeys/head"},
	{"an ssh key that was emptied", func(t *testing.T, at func(string) string) {
		if err := os.WriteFile(at("keys/ssh_key"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}, "^damaged\tkeys/ssh_key\tit is not a key: .*\tnothing: put it back from a copy, or make another", "^damaged\tkeys/ssh_key"},
	{"head.jsonl was emptied", func(t *testing.T, at func(string) string) {
		if err := os.Truncate(at("head.jsonl"), 0); err != nil {
			t.Fatal(err)
		}
	}, "^damaged\thead.jsonl\tit is empty, and there is 1 batch; .*\tmake it anew, with every batch as open\n$", ""},
	{"no head.jsonl", remove("head.jsonl"), "^damaged\thead.jsonl\tit is missing, and there is 1 batch; .*\tmake it anew, with every batch as open\n$", ""},
	{"head.jsonl was cut in its first line", func(t *testing.T, at func(string) string) {
		if err := os.Truncate(at("head.jsonl"), 10); err != nil {
			t.Fatal(err)
		}
	}, "^torn\thead.jsonl\t.*\ndamaged\thead.jsonl\tit is empty, and there is 1 batch; .*\tmake it anew, with every batch as open\n$", ""},
	{"settings that their owner cannot read", func(t *testing.T, at func(string) string) {
		if err := os.Chmod(at("head.yaml"), 0o240); err != nil {
			t.Fatal(err)
		}
	}, "^strange\thead.yaml\tits mode is 0240, less than 0400\tset its mode to 0640\n$", ""},
	{"no run", remove("run"), "^damaged\trun\tthe directory is missing\tmake it, empty\n$", ""},
	{"no directory", remove("batches/ns/b/build"), "^damaged\tbatches/ns/b/build\tthe directory is missing\tmake it, empty\n$", ""},
	{"J30 another format of a batch", reformat, "^damaged\tbatches/ns/b/log.jsonl\tline 1 .*its format is 2, this program knows 1", "^damaged"},
}

// reformat makes the log that of a later version.
func reformat(t *testing.T, at func(string) string) {
	text, err := os.ReadFile(at(batchLog))
	if err != nil {
		t.Fatal(err)
	}
	first, rest, _ := bytes.Cut(text, []byte("\n"))
	object := bytes.Replace(first[:len(first)-sumLen], []byte(`"format":1`), []byte(`"format":2`), 1)
	if err := os.WriteFile(at(batchLog), append(appendSum(object, 0), rest...), 0o640); err != nil {
		t.Fatal(err)
	}
}

// Each wound is found and named, mending it deletes nothing, and what is left
// after that is told again.
func TestCheckFindsAndMends(t *testing.T) {
	t.Parallel()
	whole, _ := fullSpool(t)
	for _, w := range wounds {
		t.Run(w.what, func(t *testing.T) {
			dir := copyTree(t, whole)
			w.harm(t, func(name string) string { return filepath.Join(dir, name) })
			before := contentsBelow(t, dir)
			if got := lines(checkSpool(t, dir, false)); !regexp.MustCompile(w.want).MatchString(got) {
				t.Errorf("told\n%swant %s", got, w.want)
			}
			if after := contentsBelow(t, dir); !slices.Equal(before, after) {
				t.Error("looking changed something")
			}
			told := checkSpool(t, dir, true)
			for _, f := range told {
				if f.Cured != (f.Mend != nil) {
					t.Errorf("not mended: %s", f.Text())
				}
			}
			after := contentsBelow(t, dir)
			for _, c := range before {
				kept := slices.ContainsFunc(after, func(a string) bool { return strings.HasPrefix(a, c) })
				if !kept && !strings.Contains(w.want, "torn") {
					t.Errorf("it deleted %.100q", c)
				}
			}
			got := lines(checkSpool(t, dir, false))
			if w.after == "" && got != "" || !regexp.MustCompile(w.after).MatchString(got) {
				t.Errorf("after mending: told\n%swant %q", got, w.after)
			}
		})
	}
}

// contentsBelow are the contents of all files below dir, sorted.
func contentsBelow(t *testing.T, dir string) (all []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(name string, e os.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() && e.Name() != "lock" {
			text, err := os.ReadFile(name)
			all = append(all, string(text))
			return err
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(all)
	return all
}

// A committed result that is not in its place is put there.
func TestCheckPublishes(t *testing.T) {
	dir, token := fullSpool(t)
	staged := filepath.Join(dir, "batches/ns/b/staging", string(token))
	if err := errors.Join(os.Mkdir(staged, 0o750), os.Rename(filepath.Join(dir, "batches/ns/b/out/a"), filepath.Join(staged, "tree"))); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("left\tbatches/ns/b/staging/%s\ta result that was committed and is not in its place\tput it into out/a\n", token)
	for _, mend := range []bool{false, true} {
		if got := lines(checkSpool(t, dir, mend)); got != want {
			t.Errorf("mend %v: told\n%s", mend, got)
		}
	}
	if found := checkSpool(t, dir, false); len(found) > 0 || exists(filepath.Join(dir, "batches/ns/b/out/a")) != nil {
		t.Errorf("after that: %s", lines(found))
	}
}

// Every bit of a small log, of jobs.jsonl and of a result counts, and what is
// told of it names the file, the line and the record before it.
func TestJ23CheckFindsEachFlippedByte(t *testing.T) {
	t.Parallel()
	dir, _ := fullSpool(t)
	for _, file := range []string{batchLog, batchJobs, "head.jsonl", "batches/ns/b/out/a/out/x.csv",
		"batches/ns/b/manifests/a.jsonl", "batches/ns/b/manifests/b~1.jsonl", "batches/ns/b/attempts/b~1/out/x.csv"} {
		name := filepath.Join(dir, file)
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		step := suite.Size(29, 1)
		if len(text) > 400 {
			step = suite.Size(67, 3)
		}
		for i := 0; i < len(text); i += step {
			bad := bytes.Clone(text)
			bad[i] ^= 1 << (i % 8)
			if err := os.WriteFile(name, bad, 0o640); err != nil {
				t.Fatal(err)
			}
			found := checkSpool(t, dir, false)
			k := slices.IndexFunc(found, func(f *check.Finding) bool { return f.Path == file })
			if k < 0 {
				t.Fatalf("bit of byte %d of %s: told\n%s", i, file, lines(found))
			}
			if !strings.HasSuffix(file, "log.jsonl") && file != batchJobs && file != "head.jsonl" {
				continue
			}
			line := bytes.Count(text[:i], []byte("\n")) + 1
			f := found[k]
			at := int64(0)
			for range f.Line - 1 {
				at += int64(bytes.IndexByte(bad[at:], '\n')) + 1
			}
			if f.Line != line && f.Line != line+1 || f.Byte != at || line > 1 && f.After == 0 && file != batchJobs {
				t.Fatalf("bit of byte %d, line %d of %s: told %s after %d", i, line, file, f.Text(), f.After)
			}
		}
		if err := os.WriteFile(name, text, 0o640); err != nil {
			t.Fatal(err)
		}
	}
	if found := checkSpool(t, dir, false); len(found) > 0 {
		t.Errorf("in the end:\n%s", lines(found))
	}
}

// With a head at work, looking goes on and mending is refused.
func TestCheckBesideAHead(t *testing.T) {
	t.Parallel()
	dir, _ := fullSpool(t)
	h, _, _ := loadHead(t, dir)
	r := &check.Run{Dir: dir, Sums: true, Mend: true, Tell: func(*check.Finding) error { return nil }}
	wantErr(t, "mending", Check(t.Context(), r), ErrLocked)
	looks := 0
	makeFile("thesis.tex")(t, func(name string) string { return filepath.Join(dir, name) })
	makeFile("trash/x")(t, func(name string) string { return filepath.Join(dir, name) })
	var told []*check.Finding
	r = &check.Run{Dir: dir, Sums: true, Tell: func(f *check.Finding) error { told = append(told, f); return nil },
		Seen: func(int64) { looks++ }}
	if err := Check(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if got := lines(told); !strings.HasPrefix(got, "strange\tthesis.tex\t") || len(told) != 1 || looks == 0 {
		t.Errorf("told\n%s", got)
	}
	h.Close()
}

// What a crash tore off is kept whole beside the log, byte by byte.
func TestJ21CheckKeepsTheTornEnd(t *testing.T) {
	dir, _ := fullSpool(t)
	name := filepath.Join(dir, batchLog)
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	last := bytes.LastIndexByte(text[:len(text)-1], '\n') + 1
	for n := last + 1; n < len(text)-1; n += 7 {
		if err := os.WriteFile(name, text[:n], 0o640); err != nil {
			t.Fatal(err)
		}
		if got := lines(checkSpool(t, dir, true)); !strings.Contains(got, "torn\t"+batchLog) {
			t.Fatalf("cut at %d: told\n%s", n, got)
		}
		aside := name + ".1.broken"
		kept, err := os.ReadFile(aside)
		now, err2 := os.ReadFile(name)
		if err := errors.Join(err, err2, os.Remove(aside)); err != nil || !bytes.Equal(kept, text[last:n]) || !bytes.Equal(now, text[:last]) {
			t.Fatalf("cut at %d: %q kept, the log has %d bytes: %v", n, kept, len(now), err)
		}
	}
}

func TestCheckRefuses(t *testing.T) {
	r := &check.Run{Dir: t.TempDir()}
	wantErr(t, "an empty directory", Check(t.Context(), r), ErrNoSpool)
	dir := newClosed(t)
	overwrite("spool.json", `"format":1`, `"format":2`)(t, func(name string) string { return filepath.Join(dir, name) })
	wantErr(t, "J30 another format", Check(t.Context(), &check.Run{Dir: dir}), ErrFormat)
}

func mkfifo(name string) error { return syscall.Mkfifo(name, 0o640) }

// FuzzCheckSpool puts foreign bytes into one file of a spool. Check tells
// something of it or nothing, and looking changes nothing. With which above 127
// the checksums of its lines are made right first, so that what they say counts.
func FuzzCheckSpool(f *testing.F) {
	dir, token := fullSpool(f)
	files := []string{batchLog, batchJobs, "head.jsonl", "batches/ns/b/files.tar", "batches/ns/b/manifests/a.jsonl",
		"batches/ns/b/staging/" + string(token), "incoming/" + string(crashSubmission), "spool.json"}
	for i, name := range files {
		text, _ := os.ReadFile(filepath.Join(dir, name))
		f.Add(uint8(i), text)
		f.Add(uint8(i), text[:len(text)/2])
		f.Add(uint8(i+128), text)
	}
	f.Fuzz(func(t *testing.T, which uint8, text []byte) {
		name := filepath.Join(dir, files[int(which%128)%len(files)])
		if which > 127 {
			text = summed(text)
		}
		before, was := os.ReadFile(name)
		if was != nil {
			defer os.Remove(name)
		} else {
			defer os.WriteFile(name, before, 0o640)
		}
		if err := os.WriteFile(name, text, 0o640); err != nil {
			t.Fatal(err)
		}
		var told strings.Builder
		r := &check.Run{Dir: dir, Sums: true, Tell: func(f *check.Finding) error {
			if strings.ContainsAny(f.Text(), "\n\x1b\x00") || strings.Count(f.Text(), "\t") != 3 {
				t.Errorf("not a line: %q", f.Text())
			}
			told.WriteString(f.Text())
			return nil
		}}
		err := Check(t.Context(), r)
		if err != nil && !errors.Is(err, ErrNoSpool) && !errors.Is(err, ErrFormat) {
			t.Error(err)
		}
		if now, err := os.ReadFile(name); err != nil || !bytes.Equal(now, text) {
			t.Errorf("looking changed it: %v", err)
		}
		if was == nil && bytes.Equal(before, text) && told.Len() > 0 {
			t.Errorf("a whole spool: told %s", told.String())
		}
	})
}

// summed is text with the right checksum at the end of each line that has room
// for one.
func summed(text []byte) (out []byte) {
	for line := range bytes.Lines(text) {
		if n := len(line) - sumLen - 1; n > 0 && line[len(line)-1] == '\n' {
			from := len(out)
			out = appendSum(append(out, line[:n]...), from)
		} else {
			out = append(out, line...)
		}
	}
	return out
}

// A directory that is made anew has the mode that a new spool gives it, and one that is
// open to too many keeps the rest of its mode.
func TestCheckModesOfDirectories(t *testing.T) {
	dir := newClosed(t)
	mode := func(name string) os.FileMode {
		t.Helper()
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return info.Mode()
	}
	want := make(map[string]os.FileMode)
	for _, d := range tree {
		want[d.name] = mode(d.name)
		if err := os.RemoveAll(filepath.Join(dir, d.name)); err != nil {
			t.Fatal(err)
		}
	}
	checkSpool(t, dir, true)
	for name, want := range want {
		if got := mode(name); got != want {
			t.Errorf("%s has mode %v, want %v", name, got, want)
		}
	}
	if err := os.Chmod(filepath.Join(dir, "incoming"), os.ModeSetgid|os.ModeSticky|0o777); err != nil {
		t.Fatal(err)
	}
	told := lines(checkSpool(t, dir, true))
	if want := "strange\tincoming\tits mode is 3777, more than 0773\tset its mode to 3773\n"; told != want {
		t.Errorf("told %q, want %q", told, want)
	}
	if got, want := mode("incoming"), os.ModeDir|os.ModeSetgid|os.ModeSticky|0o773; got != want {
		t.Errorf("incoming has mode %v, want %v", got, want)
	}
}

// A rotted blob that jobs read is not whole when it was moved aside.
func TestCheckTellsWhoMissesARottedBlob(t *testing.T) {
	dir, _ := fullSpool(t)
	overwrite(blobName, "big", "bug")(t, func(name string) string { return filepath.Join(dir, name) })
	first, second := checkSpool(t, dir, true), lines(checkSpool(t, dir, false))
	if len(first) != 2 || !first[0].Cured || first[1].Cured || second != lines(first[1:]) || second == "" {
		t.Errorf("told\n%sand after that\n%s", lines(first), second)
	}
}

// Without head.jsonl, inputs of a batch that is over may have been collected, and a repair
// keeps that so. What a job that is not over reads is missed.
func TestCheckCollectedInputsWithoutAHeadLog(t *testing.T) {
	h := newHead(t)
	b := submit(t, h, "ns/b", []string{"a"}, crashContents...)
	started := start("a", 1)
	commit(t, h, b, started)
	m, err := bring(h, b, started.Attempt, "of a")
	if err != nil {
		t.Fatal(err)
	}
	commit(t, h, b, endOf(job.KindDone, started, m))
	if err := errors.Join(h.Publish(b, "a", started.Attempt), h.SyncPublished()); err != nil {
		t.Fatal(err)
	}
	h.CloseBatch(b)
	dir := h.Dir()
	if err := errors.Join(h.Commit(), b.Close(), h.Close(), os.Remove(filepath.Join(dir, blobName)), os.Remove(filepath.Join(dir, "head.jsonl"))); err != nil {
		t.Fatal(err)
	}
	want := "damaged\thead.jsonl\tit is missing, and there is 1 batch; which are over and which nodes are drained is forgotten\tmake it anew, with every batch as open\n"
	for _, mend := range []bool{false, true} {
		if got := lines(checkSpool(t, dir, mend)); got != want {
			t.Errorf("mend %v: told\n%s", mend, got)
		}
	}
	if got := lines(checkSpool(t, dir, false)); got != "" {
		t.Errorf("after that: told\n%s", got)
	}

	dir, _ = fullSpool(t)
	if err := errors.Join(os.Remove(filepath.Join(dir, blobName)), os.Remove(filepath.Join(dir, "head.jsonl"))); err != nil {
		t.Fatal(err)
	}
	for _, mend := range []bool{true, false} {
		if got := lines(checkSpool(t, dir, mend)); !strings.Contains(got, "damaged\t"+blobName+"\tit is missing, and ns/b reads it") {
			t.Errorf("mend %v: told\n%s", mend, got)
		}
	}
}

// The log of another batch moves nothing of what is in place.
func TestCheckLogOfAnotherBatch(t *testing.T) {
	for _, names := range [][]string{{"a", "b", "c", "d"}, {"x"}} {
		dir, _ := fullSpool(t)
		h, open, _ := loadHead(t, dir)
		other := submit(t, h, "ns/other", names, crashContents...)
		text, err := os.ReadFile(filepath.Join(other.dir, "log.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range open {
			b.Close()
		}
		if err := errors.Join(other.Close(), h.Close(), os.WriteFile(filepath.Join(dir, batchLog), text, 0o640)); err != nil {
			t.Fatal(err)
		}
		before := contentsBelow(t, filepath.Join(dir, "batches"))
		told := lines(checkSpool(t, dir, true))
		if !strings.Contains(told, "strange\tbatches/ns/b\tits log is that of the batch \"ns/other\"\tnothing: ") ||
			exists(filepath.Join(dir, check.Found)) == nil || !slices.Equal(before, contentsBelow(t, filepath.Join(dir, "batches"))) {
			t.Errorf("%q: told\n%s", names, told)
		}
		if again := lines(checkSpool(t, dir, false)); again != told {
			t.Errorf("%q: told\n%sand then\n%s", names, told, again)
		}
	}
}

// A head makes the empty directories anew that a copy left out, with the modes of a new spool.
func TestHeadMakesDirectoriesAnew(t *testing.T) {
	dir := newClosed(t)
	want := map[string]os.FileMode{}
	for _, d := range tree {
		info, err := os.Stat(filepath.Join(dir, d.name))
		if err := errors.Join(err, os.RemoveAll(filepath.Join(dir, d.name))); err != nil {
			t.Fatal(err)
		}
		want[d.name] = info.Mode()
	}
	left := "." + tree[0].name + "." + string(job.NewToken()) + ".tmp~" // of a head that was killed meanwhile
	if err := os.Mkdir(filepath.Join(dir, left), 0o700); err != nil {
		t.Fatal(err)
	}
	if got, want := lines(checkSpool(t, dir, false)), "left\t"+left+"\ta directory that was being made\t"+starts; !strings.Contains(got, want) {
		t.Errorf("dfsck: %s", got)
	}
	loadHead(t, dir)
	if err := exists(filepath.Join(dir, left)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is still there: %v", err)
	}
	for name, want := range want {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode() != want {
			t.Errorf("%s: %v, want %v: %v", name, info, want, err)
		}
	}
}

// Root does not run on the spool of another user: what it makes, that user cannot use.
func TestLockOfAnotherUser(t *testing.T) {
	if os.Getuid() != 0 {
		suite.Missing(t, "only root can give files away")
	}
	dir := newClosed(t)
	if err := os.Chown(filepath.Join(dir, "spool.json"), 61000, -1); err != nil {
		t.Fatal(err)
	}
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Lock()
	wantErr(t, "a spool of another user", err, os.ErrPermission)
}

// Nobody takes a lock in a directory elsewhere, to which run leads. A repair puts a
// directory there.
func TestCheckRun(t *testing.T) {
	elsewhere := t.TempDir()
	for what, harm := range map[string]func(run string) error{
		"a link":  func(run string) error { return os.Symlink(elsewhere, run) },
		"no link": func(run string) error { return os.Symlink("nowhere", run) },
		"a file":  func(run string) error { return os.WriteFile(run, nil, 0o600) },
		"a FIFO":  func(run string) error { return syscall.Mkfifo(run, 0o600) },
	} {
		dir, _ := fullSpool(t)
		run := filepath.Join(dir, "run")
		if err := errors.Join(os.RemoveAll(run), harm(run)); err != nil {
			t.Fatal(err)
		}
		s, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		if h, err := s.Lock(); err == nil {
			h.Close()
			t.Errorf("%s: a head has its lock there", what)
		}
		told := lines(checkSpool(t, dir, true))
		if want := "strange\trun\tit should be a directory\tmove it to found/run\ndamaged\trun\tthe directory is missing\tmake it, empty\n"; told != want {
			t.Errorf("%s: told\n%s", what, told)
		}
		if told := lines(checkSpool(t, dir, false)); told != "" {
			t.Errorf("%s: told again\n%s", what, told)
		}
	}
	if list, err := os.ReadDir(elsewhere); err != nil || len(list) > 0 {
		t.Errorf("elsewhere: %v, %v", list, err)
	}
}
