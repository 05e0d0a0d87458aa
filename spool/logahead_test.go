package spool

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"reflect"
	"testing"

	"distribute/lib/job"
	"distribute/lib/suite"
)

// said is all that a reader of a log tells of a record, or at its end.
type said struct {
	rec      job.Record
	n        int
	at, next int64
	seq      uint64
	err      string
}

func say(l *logReader, rec job.Record, err error) said {
	return said{rec, l.n, l.at, l.next, l.seq, fmt.Sprint(err)}
}

// oneByOne is what a log tells, read up to stop records without a goroutine.
func oneByOne(text []byte, stop int) (all []said) {
	l := newLogReader(bytes.NewReader(text), -1, "ns/b", "log.jsonl")
	for {
		var rec job.Record
		err := l.read(&rec)
		if err == io.EOF || errors.Is(err, errTorn) {
			return append(all, say(l, job.Record{}, nil))
		}
		if err == nil {
			all = append(all, say(l, rec, nil))
			if len(all) != stop {
				continue
			}
			err = errStop
		}
		return append(all, say(l, job.Record{}, err))
	}
}

var errStop = errors.New("enough")

func readAhead(text []byte, stop int) (all []said) {
	l := newLogReader(bytes.NewReader(text), -1, "ns/b", "log.jsonl")
	err := l.each(func(l *logReader, rec *job.Record) error {
		if all = append(all, say(l, *rec, nil)); len(all) == stop {
			return errStop
		}
		return nil
	})
	return append(all, say(l, job.Record{}, err))
}

// A log that is read ahead tells the same as one that is not: records, places
// and damage, whole or not, up to its end or to where its reader has enough.
func TestReadAheadTellsTheSame(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(5, 6))
	for _, lines := range []int{0, 1, passageLen - 1, passageLen, passageLen + 1, passages*passageLen + 7} {
		var text []byte
		for i := range lines {
			rec := randomRecord(r)
			rec.Seq = uint64(2*i + 1)
			normalise(rec)
			text = appendRecord(text, rec)
		}
		for range suite.Size(2, 8) {
			b := bytes.Clone(text)
			if n := len(b); n > 0 {
				switch at := r.IntN(n); r.IntN(5) {
				case 0: // the end is torn off
					b = b[:at]
				case 1:
					b[at] ^= 1 << r.IntN(8)
				case 2: // lines stand twice
					b = append(b[:at:at], b[bytes.LastIndexByte(b[:at], '\n')+1:]...)
				case 3:
					b = append(append(b[:at:at], make([]byte, MaxLine)...), b[at:]...)
				}
			}
			for _, stop := range []int{-1, 1, passageLen, 1 + r.IntN(lines+1)} {
				want, got := oneByOne(b, stop), readAhead(b, stop)
				if !reflect.DeepEqual(got, want) {
					t.Fatalf("%d lines, stop at %d: %d ahead, ending in\n%+v\n%d one by one, ending in\n%+v",
						lines, stop, len(got), got[len(got)-1], len(want), want[len(want)-1])
				}
			}
		}
	}
}

// What is found beside the place that is looked at is what is found anywhere.
func TestIndexNear(t *testing.T) {
	x := newIndex(3) // it has more
	for i := range 100 {
		x.add([]byte(fmt.Sprint(i)), 10)
	}
	for i := range 100 {
		for _, at := range []int{-1, 0, i - 1, i, i + 1, 98, 99} {
			if n, ok := x.near(fmt.Sprint(i), at); !ok || n != i {
				t.Fatalf("job %d, looked for at %d: %d, %v", i, at, n, ok)
			}
		}
	}
	if n, ok := x.near("100", 99); ok {
		t.Errorf("a job that is not there is number %d", n)
	}
}
