package spool

import (
	"encoding/hex"
	"math"
	"time"

	"distribute/lib/job"
)

// rows are the rows of a batch while its log is folded: 4 bytes for a job
// without a record, some 160 for one with.
type rows struct {
	submitted time.Time // the batch
	upto      int64     // bytes of the log that were folded: whole lines

	jobs  int      // that the log has told of so far
	known []known  // since when, where that changes
	of    []uint32 // by job: the number of its row plus one, or 0
	slabs [][]packed
	n     int

	priority *int // of the batch, if it was set

	old map[int][]packed // attempts that their jobs went on without, if these are wanted

	words []string // texts, each once; the first is empty
	ids   map[string]uint32
}

// known is the record that has made jobs known, from one on.
type known struct {
	from int
	seq  uint64
}

// since is the record that has made job i known.
func (r *rows) since(i int) uint64 {
	for n := len(r.known) - 1; n >= 0; n-- {
		if r.known[n].from <= i {
			return r.known[n].seq
		}
	}
	return 0
}

const slab = 1024 // rows

func newRows(jobs int, submitted time.Time) *rows {
	return &rows{submitted: submitted, of: make([]uint32, jobs), words: []string{""}, ids: map[string]uint32{}}
}

// at is the packed row of job i, and whether it has one.
func (r *rows) at(i int) (*packed, bool) {
	n := int(r.of[i]) - 1
	if n < 0 {
		return nil, false
	}
	return &r.slabs[n/slab][n%slab], true
}

// make gives job i a row.
func (r *rows) make(i int) *packed {
	if r.n%slab == 0 {
		r.slabs = append(r.slabs, make([]packed, slab))
	}
	r.n++
	r.of[i] = uint32(r.n)
	p, _ := r.at(i)
	return p
}

// packed is what Fold changes of a Row, in a third of the room.
type packed struct {
	started, ended        int64 // milliseconds since 1970, or noTime
	runtime, paused, cpu  int64 // milliseconds
	ran                   int64 // the same
	memory, written, exit int64
	given                 int64 // bytes of memory
	memoryRank            int64
	token, manifest       sum
	node, signal, reason  uint32 // words
	from, after, said     uint32 // the same
	counted, machine      uint32 // the same
	attempt, cpus         int32
	gpus                  uint32 // thousandths
	limit                 uint32 // seconds
	seq                   uint64
	state                 job.State
	exited, saved         bool
}

const noTime = math.MinInt64

// sum is hexadecimal text of 64 or 32 digits, or else the number of a word.
type sum struct {
	raw  [32]byte
	word uint32
	size uint8 // of raw
}

func (r *rows) word(s string) uint32 {
	if s == "" {
		return 0
	}
	id, ok := r.ids[s]
	if !ok {
		id = uint32(len(r.words))
		r.words = append(r.words, s)
		r.ids[s] = id
	}
	return id
}

func (r *rows) sum(s string) (x sum) {
	if len(s) != 32 && len(s) != 64 {
		return sum{word: r.word(s)}
	}
	for i := range len(s) {
		digit := s[i]
		switch {
		case '0' <= digit && digit <= '9':
			digit -= '0'
		case 'a' <= digit && digit <= 'f':
			digit -= 'a' - 10
		default:
			return sum{word: r.word(s)}
		}
		x.raw[i/2] = x.raw[i/2]<<4 | digit
	}
	x.size = uint8(len(s) / 2)
	return x
}

func (r *rows) text(x *sum) string {
	if x.size == 0 {
		return r.words[x.word]
	}
	return hex.EncodeToString(x.raw[:x.size])
}

func packTime(t time.Time) int64 {
	if t.IsZero() {
		return noTime
	}
	return t.UnixMilli()
}

func unpackTime(ms int64) time.Time {
	if ms == noTime {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

func packSeconds(f float64) int64   { return int64(math.Round(f * 1000)) }
func unpackSeconds(n int64) float64 { return float64(n) / 1000 }

// pack keeps what Fold may have changed of row.
func (r *rows) pack(p *packed, row *job.Row) {
	*p = packed{
		started: packTime(row.Started), ended: packTime(row.Ended),
		runtime: packSeconds(row.Runtime), paused: packSeconds(row.Paused), cpu: packSeconds(row.CPUTime), ran: packSeconds(row.Ran),
		memory: row.MemoryPeak, memoryRank: row.MemoryRank, written: row.Written,
		given: row.Memory, gpus: uint32(row.GPUs), counted: r.word(string(row.Counted)), limit: uint32(row.Limit),
		token: r.sum(string(row.Token)), manifest: r.sum(row.Manifest),
		node: r.word(row.Node), signal: r.word(row.Signal), reason: r.word(row.Reason), from: r.word(row.From), after: r.word(row.After), said: r.word(row.Said),
		machine: r.word(row.Machine),
		attempt: int32(row.Attempt), cpus: int32(row.CPUs), seq: row.Seq, state: row.State, saved: row.Saved,
	}
	if row.Exit != nil {
		p.exit, p.exited = int64(*row.Exit), true
	}
}

// unpack puts it back into a new row.
func (r *rows) unpack(p *packed, row *job.Row) {
	row.Started, row.Ended = unpackTime(p.started), unpackTime(p.ended)
	row.Runtime, row.Paused, row.CPUTime = unpackSeconds(p.runtime), unpackSeconds(p.paused), unpackSeconds(p.cpu)
	row.Ran, row.From, row.After = unpackSeconds(p.ran), r.words[p.from], r.words[p.after]
	row.MemoryPeak, row.MemoryRank, row.Written = p.memory, p.memoryRank, p.written
	row.Memory, row.GPUs, row.Counted, row.Limit = p.given, job.GPUs(p.gpus), job.Counts(r.words[p.counted]), int64(p.limit)
	row.Token, row.Manifest = job.Token(r.text(&p.token)), r.text(&p.manifest)
	row.Node, row.Signal, row.Reason, row.Said = r.words[p.node], r.words[p.signal], r.words[p.reason], r.words[p.said]
	row.Machine = r.words[p.machine]
	row.Attempt, row.CPUs, row.Seq, row.State = int(p.attempt), int(p.cpus), p.seq, p.state
	row.Saved = p.saved
	if p.exited {
		exit := int(p.exit)
		row.Exit = &exit
	}
}
