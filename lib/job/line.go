package job

import (
	"fmt"
	"sync"

	"distribute/lib/line"
)

// The forms of lines: a record of a log, a job of jobs.jsonl and of a submission, a row
// of an answer.
var (
	RecordLine = sync.OnceValue(line.TableOf[Record])
	JobLine    = sync.OnceValue(line.TableOf[Job])
	RowLine    = sync.OnceValue(line.TableOf[Row])
	SpecLine   = sync.OnceValue(line.TableOf[Spec])
)

// AppendJob appends j as a line of jobs.jsonl has it, but without the checksum
// and the newline. It is also how a job travels to the head.
func AppendJob(b []byte, j *Job) []byte { return append(JobLine().Append(b, j), '}') }

// ReadJob reads what [AppendJob] has written, or anybody else: members in any
// order, but none twice, none in another case and none that is unknown.
func ReadJob(b []byte, j *Job) error {
	n := len(b)
	if n == 0 || b[n-1] != '}' {
		return fmt.Errorf("%w: it is not a JSON object", line.ErrLine)
	}
	*j = Job{}
	return JobLine().Read(b[:n-1], j, nil)
}

// AppendRow appends r as a line of JSON without its newline. Times are in UTC, with
// milliseconds.
func AppendRow(b []byte, r *Row) []byte { return append(RowLine().Append(b, r), '}') }

// ReadRow reads a row from a line that comes from elsewhere, as [line.Unmarshal] would.
// words are texts that come again and again, each kept once.
func ReadRow(b []byte, r *Row, words map[string]string) error {
	*r = Row{}
	if s := (line.Scan{B: b, Words: words}); RowLine().Scan(&s, r) && s.Has("}") && s.I == len(b) {
		return nil
	}
	*r = Row{}
	return line.Unmarshal(b, r)
}
