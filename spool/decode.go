package spool

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

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

// A decoder reads lines of the spool, fast where they are as this program
// writes them (scan.go) and else by encoding/json. It is for one goroutine.
type decoder struct {
	words map[string]string // strings that come again and again, each once in memory; nil: not kept
}

// maxWords is how many words a decoder keeps, lest reasons fill the memory.
const maxWords = 4096

// newDecoder returns a decoder for many lines; the zero decoder is for one.
func newDecoder() *decoder { return &decoder{words: make(map[string]string)} }

// record decodes a line of a log, without its newline.
func (d *decoder) record(b []byte, r *job.Record) error {
	b, err := body(b)
	if err != nil {
		return err
	}
	*r = job.Record{}
	if d.scanRecord(b, r) {
		return nil
	}
	*r = job.Record{}
	return strict(b, r)
}

// job decodes a line of jobs.jsonl, without its newline.
func (d *decoder) job(b []byte, j *job.Job) error {
	b, err := body(b)
	if err != nil {
		return err
	}
	return d.jobBody(b, j)
}

func (d *decoder) jobBody(b []byte, j *job.Job) error {
	*j = job.Job{}
	if d.scanJob(b, j) {
		return nil
	}
	*j = job.Job{}
	return strict(b, j)
}

// DecodeJob reads what [AppendJob] has written, or anybody else: members in any
// order, but none twice, none in another case and none that is unknown.
func DecodeJob(b []byte, j *job.Job) error {
	var d decoder
	if n := len(b); n > 0 && b[n-1] == '}' {
		return d.jobBody(b[:n-1], j)
	}
	return fmt.Errorf("%w: it is not a JSON object", line.ErrLine)
}

// strict decodes an object that lacks its closing brace, and refuses what two
// readers could understand in two ways.
func strict(b []byte, v any) error {
	whole := append(append(make([]byte, 0, len(b)+1), b...), '}')
	if err := line.Check(whole); err != nil {
		return err
	}
	dec := json.NewDecoder(bytes.NewReader(whole))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return fmt.Errorf("%w: %w", line.ErrLine, err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return fmt.Errorf("%w: something follows the object", line.ErrLine)
	}
	return nil
}
