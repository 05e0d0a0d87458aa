package spool

import (
	"errors"
	"fmt"
	"hash/crc32"
	"sync"

	"distribute/lib/job"
	"distribute/lib/line"
)

// body checks the checksum at the end of a line without its newline, and
// returns what it is over: an object that lacks its closing brace.
func body(b []byte) ([]byte, error) {
	n := len(b) - sumLen
	if n < 1 || string(b[n:n+8]) != `,"crc":"` || string(b[n+16:]) != `"}` {
		return nil, errors.New("the line does not end in a checksum")
	}
	var want uint32
	for _, x := range b[n+8 : n+16] {
		switch {
		case '0' <= x && x <= '9':
			x -= '0'
		case 'a' <= x && x <= 'f':
			x -= 'a' - 10
		default:
			return nil, errors.New("the line does not end in a checksum")
		}
		want = want<<4 | uint32(x)
	}
	if sum := crc32.Checksum(b[:n], castagnoli); sum != want {
		return nil, fmt.Errorf("the checksum is %08x and should be %08x", want, sum)
	}
	return b[:n], nil
}

// readRecord decodes a line of a log, without its newline. words are as of [line.Scan].
func readRecord(b []byte, r *job.Record, words map[string]string) error {
	object, err := body(b)
	if err != nil {
		return err
	}
	*r = job.Record{}
	return job.RecordLine().Read(object, r, words)
}

// readJob decodes what a form wants of a line of jobs.jsonl, without its newline.
func readJob(b []byte, form *line.Table, j *job.Job) error {
	object, err := body(b)
	if err != nil {
		return err
	}
	*j = job.Job{}
	return form.Read(object, j, nil)
}

// What is read of a job by who does not want all of it.
var (
	nameLine  = only("name")
	needsLine = only("name", "needs")
	briefLine = only("name", "param", "needs", "retries", "priority", "capabilities", "resources")
)

func only(names ...string) func() *line.Table {
	return sync.OnceValue(func() *line.Table { return job.JobLine().Only(names...) })
}
