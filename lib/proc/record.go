package proc

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"distribute/lib/durable"
)

// RecordFile is the file of an order's directory that says what became of it, a line of
// JSON for each step, and whose lock the supervisor holds while the order runs. Others
// write lines of their own into it; dspool(5) has all of them.
const RecordFile = "attempt.jsonl"

// A Line is a line of that file about a run. Exactly one member is set.
type Line struct {
	Supervised *Holder `json:"supervised,omitempty"` // a supervisor has the lock, and is about to begin; again when a pause has begun or ended
	Unbegun    string  `json:"unbegun,omitempty"`    // the token of a run of which nothing ran
	Limit      *int64  `json:"limit,omitempty"`      // the seconds that it may run which runs already; 0: as long as it likes
	Ended      *Status `json:"ended,omitempty"`
	Void       string  `json:"void,omitempty"` // the token of a run that was given up: it is never started
}

// A Holder is the supervisor of a run.
type Holder struct {
	Token string `json:"token"`
	Pid   int    `json:"pid"`
	Start uint64 `json:"start"` // of that process, in clock ticks after boot
	Boot  string `json:"boot"`

	Clock // of the run, as it was when that began, or when a pause last began or ended
}

// A Run is what a record says of one run.
type Run struct {
	Holder *Holder // the last supervisor that was about to begin, unless it could not
	Limit  *int64
	Ended  *Status
	Void   bool
}

// Fold takes a line in. Those of other runs, and of others than supervisors, change nothing.
func (r *Run) Fold(token string, l *Line) {
	switch {
	case l.Supervised != nil && l.Supervised.Token == token:
		r.Holder = l.Supervised
	case l.Unbegun != "" && l.Unbegun == token:
		r.Holder = nil
	case l.Limit != nil:
		r.Limit = l.Limit
	case l.Ended != nil && l.Ended.Token == token:
		r.Ended = l.Ended
	case l.Void != "" && l.Void == token:
		r.Void = true
	}
}

// MaxRecord is the size in bytes of the largest record that is read.
const MaxRecord = 64 << 20

// ReadRecord reads the record in an order's directory. Where no other user runs jobs, what
// ran there may have put anything in its place.
func ReadRecord(dir string) ([]byte, error) {
	return durable.ReadFile(filepath.Join(dir, RecordFile), MaxRecord)
}

// ReadRun is what the record in an order's directory says of the run with that token;
// fs.ErrNotExist if there is no record. What is no line is passed over: its writer was
// killed, or the disk was full.
func ReadRun(dir, token string) (*Run, error) {
	b, err := ReadRecord(dir)
	if err != nil {
		return nil, err
	}
	r := &Run{}
	for text := range bytes.Lines(b) {
		var l Line
		if json.Unmarshal(text, &l) == nil {
			r.Fold(token, &l)
		}
	}
	return r, nil
}

// ReadStatus is how a run ended; fs.ErrNotExist if that is not in the record.
func ReadStatus(dir, token string) (*Status, error) {
	r, err := ReadRun(dir, token)
	switch {
	case err != nil:
		return nil, err
	case r.Ended == nil:
		return nil, &fs.PathError{Op: "read the end of the run from", Path: filepath.Join(dir, RecordFile), Err: fs.ErrNotExist}
	}
	return r.Ended, nil
}

// Append adds a line to the record in an order's directory. It is not synced.
func Append(dir string, l any) error {
	f, err := durable.Open(filepath.Join(dir, RecordFile), os.O_RDWR|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	return appendTo(f, l)
}

// appendTo adds a line in which <, > and & stand as they are: one that holds the lines of
// a manifest must have them unchanged.
func appendTo(f *os.File, l any) error {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(l); err != nil {
		return fmt.Errorf("%s: %w", f.Name(), err)
	}
	return durable.AppendLine(f, bytes.TrimSuffix(text.Bytes(), []byte("\n")))
}
