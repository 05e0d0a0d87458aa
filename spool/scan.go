package spool

import (
	"time"

	"distribute/lib/job"
)

// A scan reads a line in the documented order of its members. It gives up, and
// says so by false, at whatever is not as encode.go writes it: then
// encoding/json reads the line, and decides. What it does read it reads as
// encoding/json would; a fuzz test holds both equal.
type scan struct {
	b []byte
	i int
}

// has passes over s if it comes next.
func (s *scan) has(lit string) bool {
	if len(s.b)-s.i < len(lit) || string(s.b[s.i:s.i+len(lit)]) != lit {
		return false
	}
	s.i += len(lit)
	return true
}

// text passes over a string of plain ASCII without escapes and returns what
// stands between its quotes.
func (s *scan) text() ([]byte, bool) {
	if s.i >= len(s.b) || s.b[s.i] != '"' {
		return nil, false
	}
	for i := s.i + 1; i < len(s.b); i++ {
		switch x := s.b[i]; {
		case x == '"':
			t := s.b[s.i+1 : i]
			s.i = i + 1
			return t, true
		case x < ' ' || x >= 0x80 || x == '\\':
			return nil, false
		}
	}
	return nil, false
}

// number passes over digits without a leading zero.
func (s *scan) number() (n int64, ok bool) {
	from := s.i
	for s.i < len(s.b) && s.b[s.i]-'0' <= 9 {
		n = n*10 + int64(s.b[s.i]-'0')
		s.i++
	}
	width := s.i - from
	return n, width > 0 && width <= 18 && (s.b[from] != '0' || width == 1)
}

// decimal passes over digits with at most nine behind a point. The quotient of
// two numbers that a float64 holds exactly is rounded once, as a reader of the
// text would round.
func (s *scan) decimal() (float64, bool) {
	n, ok := s.number()
	if !ok || n >= 1<<53 {
		return 0, false
	}
	if !s.has(".") {
		return float64(n), true
	}
	unit := int64(1)
	for ; s.i < len(s.b) && s.b[s.i]-'0' <= 9; s.i++ {
		if n = n*10 + int64(s.b[s.i]-'0'); n >= 1<<53 {
			return 0, false
		}
		unit *= 10
	}
	return float64(n) / float64(unit), unit > 1 && unit <= 1e9
}

// time passes over a time with milliseconds in UTC.
func (s *scan) time() (time.Time, bool) {
	const shape = `"0000-00-00T00:00:00.000Z"`
	if len(s.b)-s.i < len(shape) {
		return time.Time{}, false
	}
	b := s.b[s.i : s.i+len(shape)]
	for i := range len(shape) {
		if shape[i] == '0' && b[i]-'0' > 9 || shape[i] != '0' && b[i] != shape[i] {
			return time.Time{}, false
		}
	}
	s.i += len(shape)
	year, month, day := digits(b[1:5]), digits(b[6:8]), digits(b[9:11])
	hour, minute, second, milli := digits(b[12:14]), digits(b[15:17]), digits(b[18:20]), digits(b[21:24])
	if year < 1 || month < 1 || month > 12 || day < 1 || day > 28 && day > daysIn(year, month) || hour > 23 || minute > 59 || second > 59 {
		return time.Time{}, false
	}
	sec := (daysBefore(year, month, day)*24+hour)*3600 + minute*60 + second
	return time.Unix(int64(sec), int64(milli)*1e6).UTC(), true
}

func digits(b []byte) (n int) {
	for _, x := range b {
		n = n*10 + int(x-'0')
	}
	return n
}

func daysIn(year, month int) int {
	switch {
	case month == 2 && year%4 == 0 && (year%100 != 0 || year%400 == 0):
		return 29
	case month == 2:
		return 28
	case month == 4 || month == 6 || month == 9 || month == 11:
		return 30
	}
	return 31
}

// daysBefore is the number of days from 1970-01-01 to that day of the Gregorian
// calendar. Years are counted from March, so that a leap day ends one.
func daysBefore(year, month, day int) int {
	if month <= 2 {
		year--
		month += 12
	}
	return 365*year + year/4 - year/100 + year/400 + (153*(month-3)+2)/5 + day - 1 - 719468
}

// word is b as a string that is kept once, if d keeps words: kinds, reasons,
// names of nodes.
func (d *decoder) word(b []byte) string {
	if w, ok := d.words[string(b)]; ok {
		return w
	}
	w := string(b)
	if d.words != nil {
		if len(d.words) >= maxWords {
			clear(d.words)
		}
		d.words[w] = w
	}
	return w
}

// The methods below read one member if it comes next; they answer false only
// if it comes and cannot be read.

func (s *scan) textMember(key string, to *string) bool {
	if !s.has(key) {
		return true
	}
	t, ok := s.text()
	*to = string(t)
	return ok
}

func (d *decoder) wordMember(s *scan, key string, to *string) bool {
	if !s.has(key) {
		return true
	}
	t, ok := s.text()
	*to = d.word(t)
	return ok
}

// wordNeeded is wordMember for a member that must come next.
func (d *decoder) wordNeeded(s *scan, key string, to *string) bool {
	if !s.has(key) {
		return false
	}
	t, ok := s.text()
	*to = d.word(t)
	return ok
}

func (s *scan) intMember(key string, to *int) bool {
	if !s.has(key) {
		return true
	}
	n, ok := s.number()
	*to = int(n)
	return ok && int64(*to) == n
}

func (s *scan) int64Member(key string, to *int64) (ok bool) {
	if !s.has(key) {
		return true
	}
	*to, ok = s.number()
	return ok
}

func (s *scan) countMember(key string, to *uint64) bool {
	var n int64
	ok := s.int64Member(key, &n)
	*to = uint64(n)
	return ok && n >= 0
}

func (s *scan) decimalMember(key string, to *float64) (ok bool) {
	if !s.has(key) {
		return true
	}
	*to, ok = s.decimal()
	return ok
}

func (s *scan) timeMember(key string, to *time.Time) (ok bool) {
	if !s.has(key) {
		return true
	}
	*to, ok = s.time()
	return ok
}

// scanRecord reads a record in the documented order.
func (d *decoder) scanRecord(b []byte, r *job.Record) bool {
	s := scan{b: b}
	if !s.has(`{"seq":`) {
		return false
	}
	seq, ok := s.number()
	r.Seq = uint64(seq)
	var kind string
	ok = ok && s.has(`,"t":`)
	if !ok {
		return false
	}
	if r.Time, ok = s.time(); !ok {
		return false
	}
	ok = d.wordMember(&s, `,"e":`, &kind) && kind != "" &&
		s.textMember(`,"batch":`, (*string)(&r.Batch)) &&
		s.textMember(`,"job":`, &r.Job) &&
		s.textMember(`,"attempt":`, (*string)(&r.Attempt)) &&
		s.intMember(`,"try":`, &r.Try) &&
		d.wordMember(&s, `,"node":`, &r.Node) &&
		s.intMember(`,"cpus":`, &r.CPUs) &&
		d.scanOutcome(&s, &r.Outcome) &&
		s.textMember(`,"manifest":`, &r.Manifest) &&
		s.intMember(`,"files":`, &r.Files) &&
		s.int64Member(`,"bytes":`, &r.Bytes)
	if !ok {
		return false
	}
	r.Kind = job.Kind(kind)
	r.Lost = s.has(`,"lost":true`)
	return d.wordMember(&s, `,"by":`, &r.By) &&
		d.wordMember(&s, `,"request":`, (*string)(&r.Request)) &&
		d.wordMember(&s, `,"state":`, &r.State) &&
		s.countMember(`,"first":`, &r.First) &&
		s.i == len(b)
}

func (d *decoder) scanOutcome(s *scan, o *job.Outcome) bool {
	if s.has(`,"exit":`) {
		n, ok := s.number()
		exit := int(n)
		if !ok || int64(exit) != n {
			return false
		}
		o.Exit = &exit
	}
	return d.wordMember(s, `,"signal":`, &o.Signal) &&
		d.wordMember(s, `,"reason":`, &o.Reason) &&
		s.timeMember(`,"started":`, &o.Started) &&
		s.timeMember(`,"ended":`, &o.Ended) &&
		s.decimalMember(`,"runtime":`, &o.Runtime) &&
		s.decimalMember(`,"paused":`, &o.Paused) &&
		s.decimalMember(`,"cpu_time":`, &o.CPUTime) &&
		s.int64Member(`,"memory_peak":`, &o.MemoryPeak) &&
		s.int64Member(`,"written":`, &o.Written)
}

// scanJob reads a job in the documented order.
func (d *decoder) scanJob(b []byte, j *job.Job) bool {
	s := scan{b: b}
	if !s.has(`{"name":`) {
		return false
	}
	name, ok := s.text()
	if !ok {
		return false
	}
	j.Name = string(name)
	if s.has(`,"run":`) && !s.list(func() bool {
		t, ok := s.text()
		j.Run = append(j.Run, string(t))
		return ok
	}) {
		return false
	}
	if s.has(`,"inputs":`) && !s.list(func() bool {
		j.Inputs = append(j.Inputs, job.Input{})
		return d.scanInput(&s, &j.Inputs[len(j.Inputs)-1])
	}) {
		return false
	}
	if s.has(`,"resources":{`) {
		j.Resources = new(job.Resources)
		if !s.resources(j.Resources) {
			return false
		}
	}
	if s.has(`,"slurm":`) && !s.list(func() bool {
		var o job.Option
		ok := d.wordNeeded(&s, `{"name":`, &o.Name) && d.wordNeeded(&s, `,"value":`, &o.Value)
		j.Slurm = append(j.Slurm, o)
		return ok && s.has("}")
	}) {
		return false
	}
	return s.i == len(b)
}

// resources reads the members of what a job needs, up to its end.
func (s *scan) resources(r *job.Resources) bool {
	disk, at := `"disk":`, s.i
	if !s.intMember(`"cpus":`, &r.CPUs) {
		return false
	}
	if s.i != at {
		disk = `,"disk":`
	}
	return s.int64Member(disk, &r.Disk) && s.has("}")
}

// list passes over a list that is not empty, of what each reads.
func (s *scan) list(each func() bool) bool {
	if !s.has("[") {
		return false
	}
	for each() {
		if s.has("]") {
			return true
		}
		if !s.has(",") {
			return false
		}
	}
	return false
}

func (d *decoder) scanInput(s *scan, in *job.Input) bool {
	var mode int
	ok := d.wordNeeded(s, `{"path":`, &in.Path) &&
		s.int64Member(`,"size":`, &in.Size) &&
		s.intMember(`,"mode":`, &mode) &&
		s.textMember(`,"sum":`, &in.Sum)
	in.Mode = uint32(mode)
	if !ok || int(in.Mode) != mode {
		return false
	}
	if s.has(`,"at":`) {
		at, ok := s.number()
		if !ok {
			return false
		}
		in.At = &at
	}
	return s.has("}")
}
