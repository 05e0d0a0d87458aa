package spool

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"distribute/lib/check"
	"distribute/lib/durable"
	"distribute/lib/job"
	"distribute/lib/line"
)

// A Past is what a dsched goes by that is in no log, at a time; see dspool(5).
type Past struct {
	Time  time.Time
	Users []UserPast
	Nodes []NodePast
}

// A UserPast is what a user has used lately.
type UserPast struct {
	UID  int     `json:"uid"`
	Used float64 `json:"used"` // seconds of a cpu, of which half count after each hour
}

// A NodePast is what speaks against a node.
type NodePast struct {
	Node    string    `json:"node"`
	Boot    string    `json:"boot,omitempty"`
	Heard   time.Time `json:"heard"`
	Until   time.Time `json:"until,omitzero"` // when its rest ends
	Reason  string    `json:"reason,omitempty"`
	Given   string    `json:"given,omitempty"`
	Blamed  bool      `json:"blamed,omitempty"`
	Fast    []PastJob `json:"fast,omitempty"`
	Since   time.Time `json:"since,omitzero"`
	Rests   int       `json:"rests,omitempty"`
	Only    []PastJob `json:"only,omitempty"`
	Proofs  int       `json:"proofs,omitempty"`
	Proven  time.Time `json:"proven,omitzero"`
	Left    time.Time `json:"left,omitzero"`
	Leaving float64   `json:"leaving,omitempty"` // seconds
}

// A PastJob is a job by its batch and its line in jobs.jsonl, from 1: "ns/b:12". One
// of a batch that is over has neither, and is "-".
type PastJob struct {
	Batch job.BatchID
	Line  int
}

// MarshalText writes it as it stands in the file.
func (j PastJob) MarshalText() ([]byte, error) {
	if j.Line == 0 {
		return []byte("-"), nil
	}
	return fmt.Appendf(nil, "%s:%d", j.Batch, j.Line), nil
}

// UnmarshalText reads that.
func (j *PastJob) UnmarshalText(text []byte) error {
	if string(text) == "-" {
		*j = PastJob{}
		return nil
	}
	batch, at, _ := strings.Cut(string(text), ":")
	id, err := job.ParseBatchID(batch)
	n, nerr := strconv.ParseUint(at, 10, 32)
	if err != nil || nerr != nil || n == 0 || n > MaxJobs {
		return fmt.Errorf("%.40q is no job: a batch, a colon and a number, or -", text)
	}
	*j = PastJob{id, int(n)}
	return nil
}

// maxPast is how many bytes past.jsonl may have to be read.
const maxPast = 64 << 20

// pastLine is any line of it.
type pastLine struct {
	Time   time.Time `json:"t"`
	UID    *int      `json:"uid"`
	Used   float64   `json:"used"`
	End    *int      `json:"end"`
	SHA256 string    `json:"sha256"`
	NodePast
}

// lines is the file.
func (p *Past) lines() []byte {
	var b bytes.Buffer
	put := func(v any) {
		text, err := json.Marshal(v)
		if err != nil {
			panic(err) // of numbers and texts
		}
		b.Write(append(text, '\n'))
	}
	put(struct {
		T time.Time `json:"t"`
	}{p.Time})
	for _, u := range p.Users {
		put(u)
	}
	for _, n := range p.Nodes {
		put(n)
	}
	sum := sha256.Sum256(b.Bytes())
	fmt.Fprintf(&b, "{\"end\":%d,\"sha256\":\"%x\"}\n", 1+len(p.Users)+len(p.Nodes), sum)
	return b.Bytes()
}

// parsePast reads past.jsonl. The error says what is wrong with it, and where.
func parsePast(text []byte) (*Past, error) {
	p := &Past{}
	n, at := 0, 0
	for raw := range bytes.Lines(text) {
		var l pastLine
		said, whole := bytes.CutSuffix(raw, []byte("\n"))
		err := line.Unmarshal(said, &l)
		switch {
		case err != nil:
		case !whole:
			err = line.ErrPartial
		case l.End != nil:
			if *l.End == n && n > 0 && l.sums(text[:at]) && at+len(raw) == len(text) {
				return p, nil
			}
			err = errors.New("it is not the sum of the lines before it")
		case n == 0:
			p.Time = l.Time
			if l.Time.IsZero() {
				err = errors.New("the time is missing")
			}
		default:
			err = p.add(&l)
		}
		if n++; err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		at += len(raw)
	}
	return nil, fmt.Errorf("line %d: the last line is missing", n+1)
}

// sums says that a last line has the sum of the lines before it.
func (l *pastLine) sums(text []byte) bool {
	sum := sha256.Sum256(text)
	return l.SHA256 == hex.EncodeToString(sum[:])
}

// add takes in the line of a user or of a node.
func (p *Past) add(l *pastLine) error {
	switch {
	case l.UID != nil && l.Used >= 0:
		p.Users = append(p.Users, UserPast{*l.UID, l.Used})
	case l.UID == nil && job.CheckName(l.Node) == nil && l.Rests >= 0 && l.Proofs >= 0 && l.Leaving >= 0 && l.Leaving <= maxLeaving:
		p.Nodes = append(p.Nodes, l.NodePast)
	default:
		return errors.New("it is neither of a user nor of a node")
	}
	return nil
}

// maxLeaving is more than any node rests, in seconds.
const maxLeaving = 1e6

func (s *Spool) pastFile() string { return s.path("past.jsonl") }

// ReadPast reads what a dsched has kept. With none the error is fs.ErrNotExist; any
// other says that it is of no use.
func (s *Spool) ReadPast() (*Past, error) {
	f, err := check.Open(s.pastFile())
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxPast+1))
	if err == nil && len(text) > maxPast {
		err = fmt.Errorf("it has more than %d MiB", maxPast>>20)
	}
	if err != nil {
		return nil, err
	}
	return parsePast(text)
}

// WritePast keeps p, durably, in the place of what was kept. With [ErrFull] there was
// no room, also not by giving up the ballast if it must be kept, and what was kept is as
// it was; any other error is [ErrBroken].
func (h *Head) WritePast(p *Past, must bool) error {
	p.Time = p.Time.UTC().Truncate(time.Millisecond)
	text := p.lines()
	if err := durable.Step("past.write"); err != nil {
		return err
	}
	err := full(durable.WriteFile(h.pastFile(), text, 0o640))
	if must && errors.Is(err, ErrFull) && h.drop() {
		err = full(durable.WriteFile(h.pastFile(), text, 0o640))
	}
	if err == nil || errors.Is(err, ErrFull) || errors.Is(err, ErrBroken) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrBroken, err)
}
