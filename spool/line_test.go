package spool

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"distribute/lib/job"
	"distribute/lib/line"
	"distribute/lib/suite"
)

// at is a time that a line can hold.
func at(ms int64) time.Time { return time.UnixMilli(ms).UTC() }

// vector is the test vector of dspool(5).
const vector = `{"seq":42,"t":"2026-11-20T12:00:00.250Z","e":"start","job":"re=100","attempt":"00112233445566778899aabbccddeeff","try":1,"node":"ws1","cpus":4,"crc":"201f7b70"}`

func TestVector(t *testing.T) {
	rec := job.Record{Seq: 42, Time: at(1795176000250), Kind: job.KindStart, Job: "re=100",
		Attempt: "00112233445566778899aabbccddeeff", Try: 1, Node: "ws1", CPUs: 4}
	if got := string(appendRecord(nil, &rec)); got != vector+"\n" {
		t.Errorf("the line is\n%s and the manual says\n%s", got, vector)
	}
	var back job.Record
	if err := readRecord([]byte(vector), &back, nil); err != nil || !reflect.DeepEqual(back, rec) {
		t.Errorf("read back: %+v, %v", back, err)
	}
	if got := crc32.Checksum([]byte("123456789"), castagnoli); got != 0xe3069283 {
		t.Errorf("the checksum is not CRC-32C: %08x", got)
	}
}

// randomText draws text, often plain, sometimes not.
func randomText(r *rand.Rand) string {
	words := []string{"", "x", "re=100_n=64", `a "quoted" word`, "tab\tline\n", "Grüße", "\x00\x1f", `back\slash`, "<&>", "\u2028", "\xff\xfe", "😀"}
	if r.IntN(50) > 0 {
		return words[r.IntN(3)]
	}
	return words[r.IntN(len(words))]
}

func someGPUs(r *rand.Rand) job.GPUs { return []job.GPUs{0, 0, 10, 500, 1000, 1250, 8000}[r.IntN(7)] }

func randomTime(r *rand.Rand) time.Time {
	if r.IntN(3) == 0 {
		return time.Time{}
	}
	return time.Unix(r.Int64N(4e9)-1e9, r.Int64N(1e9))
}

func randomRecord(r *rand.Rand) *job.Record {
	kinds := []job.Kind{job.KindStart, job.KindDone, job.KindFailed, job.KindBack, job.KindRetry, "odd"}
	rec := &job.Record{Seq: r.Uint64() >> r.IntN(64), Time: randomTime(r), Kind: kinds[r.IntN(len(kinds))],
		Job: randomText(r), Attempt: job.Token(randomText(r)), Try: r.IntN(3), Node: randomText(r), CPUs: r.IntN(3),
		Memory: int64(r.IntN(2)) << 33, GPUs: someGPUs(r), Counted: []job.Counts{"", "", "matlab=1", "comsol=20 matlab=3"}[r.IntN(4)], Limit: int64(r.IntN(2)) * 3600,
		Manifest: randomText(r), Said: randomText(r), Files: r.IntN(2), Bytes: r.Int64N(1 << 50), Fate: []job.Fate{job.FateEnded, job.FateLost, job.FateEvicted, job.FateBuildFailed}[r.IntN(4)], Saved: r.IntN(2) == 0,
		By: randomText(r), Request: job.Token(randomText(r)), State: randomText(r)}
	floats := []float64{0, 1, 0.001, 123.4567, 1e-9, 4e9, 1e12, math.NaN(), math.Inf(-1), 0.1 + 0.2, -3.5}
	rec.Outcome = job.Outcome{Signal: randomText(r), Reason: randomText(r), Started: randomTime(r), Ended: randomTime(r),
		Runtime: floats[r.IntN(len(floats))], Paused: floats[r.IntN(len(floats))], CPUTime: floats[r.IntN(len(floats))],
		MemoryPeak: r.Int64N(1 << 40), Cache: r.Int64N(2), Written: r.Int64N(2) - 1}
	if r.IntN(2) == 0 {
		exit := r.IntN(300) - 10
		rec.Exit = &exit
	}
	if r.IntN(8) == 0 {
		priority, seconds := r.IntN(3)-1, r.Int64N(2)
		rec.Set = &job.Set{Priority: &priority, Time: &seconds}
	}
	if r.IntN(8) == 0 {
		rec.Head = &job.Head{Format: 1, Owner: "a<b", Spec: job.Spec{Kind: "python"}}
	}
	for _, s := range []*string{(*string)(&rec.Attempt), (*string)(&rec.Request)} {
		*s = strings.ToValidUTF8(*s, "")
	}
	return rec
}

// What is in memory after Append equals what is read, by either reader.
func TestRecordsComeBack(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	words := map[string]string{}
	fast := 0
	for range suite.Size(1000, 20000) {
		rec := randomRecord(r)
		normalise(rec)
		text := bytes.TrimSuffix(appendRecord(nil, rec), []byte("\n"))
		var back, slow job.Record
		if err := readRecord(text, &back, words); err != nil || !reflect.DeepEqual(&back, rec) {
			t.Fatalf("%s\nread %+v, %v\nwant %+v", text, back, err, *rec)
		}
		object := text[:len(text)-sumLen]
		if err := json.Unmarshal(append(object[:len(object):len(object)], '}'), &slow); err != nil || !reflect.DeepEqual(&slow, rec) {
			t.Fatalf("%s\nencoding/json reads %+v, %v\nwant %+v", text, slow, err, *rec)
		}
		back = job.Record{}
		if s := (line.Scan{B: object}); job.RecordLine().Scan(&s, &back) && s.I == len(object) {
			if fast++; !reflect.DeepEqual(&back, rec) {
				t.Fatalf("%s is read fast as %+v", text, back)
			}
		}
	}
	if fast == 0 {
		t.Error("the fast reader read nothing")
	}
}

func randomJob(r *rand.Rand, n int) *job.Job {
	j := &job.Job{Name: fmt.Sprintf("re=%d", n)}
	for range r.IntN(3) {
		j.Needs = append(j.Needs, []string{"mesh", "re=*", "[a-c]?"}[r.IntN(3)])
	}
	if times := r.IntN(4); times > 0 {
		times--
		j.Retries = &times
	}
	for range r.IntN(3) {
		j.Capabilities = append(j.Capabilities, []string{"gpu", "memory>=64G|cpus>4", "node!=ws3"}[r.IntN(3)])
	}
	for range r.IntN(4) {
		j.Run = append(j.Run, strings.ToValidUTF8(randomText(r), "?"))
	}
	for i := range r.IntN(3) {
		in := job.Input{Path: fmt.Sprintf("input/f%d", i), Size: r.Int64N(1 << 40), Mode: 0o644, Sum: strings.Repeat("0f", 32)}
		if r.IntN(2) == 0 {
			at := r.Int64N(1 << 40)
			in.At = &at
		}
		j.Inputs = append(j.Inputs, in)
	}
	if r.IntN(2) == 0 {
		j.Resources = &job.Resources{CPUs: r.IntN(3), Disk: int64(r.IntN(3)) << 31, Memory: int64(r.IntN(2)) << 33,
			Time: int64(r.IntN(2)) * 3600, GPUs: someGPUs(r), Counted: []job.Counts{"", "", "matlab=1", "comsol=20 matlab=3"}[r.IntN(4)]}
	}
	for range r.IntN(2) {
		j.Slurm = append(j.Slurm, job.Option{Name: "time", Value: strings.ToValidUTF8(randomText(r), "?")})
	}
	return j
}

func TestJobsComeBack(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for n := range suite.Size(1000, 20000) {
		j := randomJob(r, n)
		var back, slow job.Job
		if err := job.ReadJob(job.AppendJob(nil, j), &back); err != nil || !reflect.DeepEqual(&back, j) {
			t.Fatalf("%s\nread %+v, %v", job.AppendJob(nil, j), back, err)
		}
		text := bytes.TrimSuffix(appendJobLine(nil, j), []byte("\n"))
		if err := readJob(text, job.JobLine(), &back); err != nil || !reflect.DeepEqual(&back, j) {
			t.Fatalf("%s\nread %+v, %v", text, back, err)
		}
		if err := json.Unmarshal(job.AppendJob(nil, j), &slow); err != nil || !reflect.DeepEqual(&slow, j) {
			t.Fatalf("%s\nencoding/json reads %+v, %v", text, slow, err)
		}
		var brief job.Job
		if err := readJob(text, briefLine(), &brief); err != nil || brief.Run != nil || !reflect.DeepEqual(brief.Needs, j.Needs) || !reflect.DeepEqual(brief.Resources, j.Resources) {
			t.Fatalf("%s\nread in brief %+v, %v", text, brief, err)
		}
	}
}

// sealed is an object without its closing brace as a line with a right checksum.
func sealed(object string) []byte {
	return bytes.TrimSuffix(appendSum([]byte(object), 0), []byte("\n"))
}

func TestLinesThatAreRefused(t *testing.T) {
	good := `{"seq":1,"t":"2026-11-20T12:00:00.000Z","e":"start"`
	if err := readRecord(sealed(good), new(job.Record), nil); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{
		"no checksum":    []byte(good + "}"),
		"wrong checksum": []byte(good + `,"crc":"00000000"}`),
		"upper case sum": bytes.ToUpper(sealed(good)),
		"nothing":        nil,
		"key twice":      sealed(good + `,"job":"a","job":"b"`),
		"key in case":    sealed(good + `,"Job":"a"`),
		"unknown key":    sealed(good + `,"jobs":"a"`),
		"bad UTF-8":      sealed(good + ",\"job\":\"\xff\""),
		"half a pair":    sealed(good + `,"job":"\ud800"`),
		"bad time":       sealed(`{"seq":1,"t":"2026-02-30T12:00:00.000Z","e":"start"`),
		"text for a seq": sealed(`{"seq":"1","t":"2026-11-20T12:00:00.000Z","e":"start"`),
		"two objects":    sealed(good + `}{"seq":1`),
	} {
		if err := readRecord(text, new(job.Record), nil); err == nil {
			t.Errorf("%s: it was read: %s", name, text)
		}
	}
	for _, object := range []string{`{"name":"a","inputs":[}]`, `{"name":"a","slurm":[}]`, `{"name":"a","run":["b",]`,
		`{"name":"a","resources":{"cpus":1,}`, `{"name":"a","inputs":[{"path":"p","size":01,"mode":1,"sum":""}]`} {
		if err := readJob(sealed(object), job.JobLine(), new(job.Job)); err == nil {
			t.Errorf("it was read: %s", object)
		}
	}
}

func TestLinesInAnotherOrderAreRead(t *testing.T) {
	var rec job.Record
	if err := readRecord(sealed(`{ "e" : "start", "seq":7, "t":"2026-11-20T13:00:00+01:00"`), &rec, nil); err != nil {
		t.Fatal(err)
	}
	if rec.Seq != 7 || rec.Kind != job.KindStart || !rec.Time.Equal(at(1795176000000)) {
		t.Errorf("read %+v", rec)
	}
}

func TestTimes(t *testing.T) {
	for _, ms := range []int64{0, -1, 951782399999, 951782400000, 951868799999, 4107542400000, -62135596800000, 253402300799999} {
		text := line.AppendTime(nil, at(ms))
		s := line.Scan{B: text}
		got, ok := s.Time()
		if !ok || !got.Equal(at(ms)) || !reflect.DeepEqual(got, at(ms)) {
			t.Errorf("%s read as %v, %v", text, got, ok)
		}
		if want := at(ms).Format(`"2006-01-02T15:04:05.000Z"`); string(text) != want {
			t.Errorf("%s, want %s", text, want)
		}
	}
	if !reflect.DeepEqual(milliseconds(time.Date(12345, 1, 1, 0, 0, 0, 0, time.UTC)), time.Time{}) {
		t.Error("a year of five digits cannot be written")
	}
}

// FuzzLogLine holds the fast reader and encoding/json equal: what the one reads
// the other reads, as the same record; and what is read can be written.
func FuzzLogLine(f *testing.F) {
	f.Add([]byte(vector[:len(vector)-sumLen]))
	r := rand.New(rand.NewPCG(5, 6))
	for range 20 {
		rec := randomRecord(r)
		normalise(rec)
		text := appendRecord(nil, rec)
		f.Add(text[:len(text)-sumLen-1])
	}
	f.Fuzz(func(t *testing.T, object []byte) {
		var fast, slow job.Record
		if s := (line.Scan{B: object}); !job.RecordLine().Scan(&s, &fast) || s.I != len(object) {
			return
		}
		if err := strict(object, &slow); err != nil {
			t.Fatalf("%q is read as %+v, and encoding/json says %v", object, fast, err)
		}
		if !reflect.DeepEqual(fast, slow) {
			t.Fatalf("%q is read as\n%+v, and by encoding/json as\n%+v", object, fast, slow)
		}
		text := appendRecord(nil, &fast)
		var again job.Record
		if err := readRecord(text[:len(text)-1], &again, nil); err != nil {
			t.Fatalf("%q was written again as %q: %v", object, text, err)
		}
	})
}

// FuzzJobLine is FuzzLogLine for jobs.jsonl.
func FuzzJobLine(f *testing.F) {
	r := rand.New(rand.NewPCG(7, 8))
	for n := range 20 {
		text := appendJobLine(nil, randomJob(r, n))
		f.Add(text[:len(text)-sumLen-1])
	}
	f.Fuzz(func(t *testing.T, object []byte) {
		var fast, slow job.Job
		errSlow := strict(object, &slow)
		if s := (line.Scan{B: object}); job.JobLine().Scan(&s, &fast) && s.I == len(object) {
			if errSlow != nil || !reflect.DeepEqual(fast, slow) {
				t.Fatalf("%q is read as\n%+v, and by encoding/json as\n%+v, %v", object, fast, slow, errSlow)
			}
		}
		// In brief it is the same, where the whole can be read.
		var brief job.Job
		if s := (line.Scan{B: object}); errSlow == nil && briefLine().Scan(&s, &brief) && s.I == len(object) {
			slow.Run, slow.Env, slow.Inputs, slow.Slurm = nil, nil, nil, nil
			if !reflect.DeepEqual(brief, slow) {
				t.Fatalf("%q is in brief %+v, and whole %+v", object, brief, slow)
			}
		}
	})
}

// strict is what reads a line that is not as we write it.
func strict(object []byte, v any) error {
	whole := append(object[:len(object):len(object)], '}')
	if err := line.Check(whole); err != nil {
		return err
	}
	dec := json.NewDecoder(bytes.NewReader(whole))
	dec.DisallowUnknownFields()
	return dec.Decode(v)
}

// A million job lines and three million records, in the sizes they have.
func BenchmarkLines(b *testing.B) {
	exit := 0
	recs := []*job.Record{
		{Kind: job.KindStart, Job: "re=100_n=64", Attempt: job.NewToken(), Try: 1, Node: "ws1", CPUs: 4},
		{Kind: job.KindDone, Job: "re=100_n=64", Attempt: job.NewToken(), Try: 1, Node: "ws1", Outcome: job.Outcome{Exit: &exit,
			Started: at(1795176000000), Ended: at(1795176012000), Runtime: 12.034, CPUTime: 11.9, MemoryPeak: 123456789},
			Manifest: strings.Repeat("ab", 32), Files: 4, Bytes: 1234567},
		{Kind: job.KindBack, Job: "re=100_n=64", Attempt: job.NewToken(), Try: 1, Fate: job.FateLost, Outcome: job.Outcome{Reason: "ws1 was lost"}},
	}
	var lines [4][]byte
	for i, rec := range recs {
		rec.Seq, rec.Time = uint64(i+1), at(1795176000000)
		lines[i] = bytes.TrimSuffix(appendRecord(nil, rec), []byte("\n"))
	}
	j := &job.Job{Name: "re=100_n=64", Run: []string{"./solve", "--re", "100"}, Resources: &job.Resources{CPUs: 4},
		Inputs: []job.Input{{Path: "input/mesh.h5", Size: 1 << 20, Mode: 0o644, Sum: strings.Repeat("cd", 32)}}}
	lines[3] = bytes.TrimSuffix(appendJobLine(nil, j), []byte("\n"))
	var rec job.Record
	words := map[string]string{}
	b.ReportAllocs()
	for b.Loop() {
		for _, text := range lines[:3] {
			if err := readRecord(text, &rec, words); err != nil {
				b.Fatal(err)
			}
		}
		if err := readJob(lines[3], briefLine(), j); err != nil {
			b.Fatal(err)
		}
	}
}
