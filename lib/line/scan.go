package line

import "time"

// A Scan reads a line whose members stand in one documented order, as our own
// writers write them. Its methods answer false at whatever is not so, after
// which the scan is of no use: then encoding/json reads the line, and decides.
// What they do read they read as encoding/json would. It takes about a tenth of
// the time.
type Scan struct {
	B []byte
	I int // where the next byte is

	Words map[string]string // texts that come again and again, each once in memory; nil: not kept
}

// maxWords is how many words are kept, lest reasons fill the memory.
const maxWords = 4096

// word is b as a string that is kept once, if words are kept.
func (s *Scan) word(b []byte) string {
	if w, ok := s.Words[string(b)]; ok {
		return w
	}
	w := string(b)
	if s.Words != nil {
		if len(s.Words) >= maxWords {
			clear(s.Words)
		}
		s.Words[w] = w
	}
	return w
}

// Has passes over s if it comes next.
func (s *Scan) Has(lit string) bool {
	if len(s.B)-s.I < len(lit) || string(s.B[s.I:s.I+len(lit)]) != lit {
		return false
	}
	s.I += len(lit)
	return true
}

// Text passes over a string of plain ASCII without escapes and returns what
// stands between its quotes.
func (s *Scan) Text() ([]byte, bool) {
	if s.I >= len(s.B) || s.B[s.I] != '"' {
		return nil, false
	}
	for i := s.I + 1; i < len(s.B); i++ {
		switch x := s.B[i]; {
		case x == '"':
			t := s.B[s.I+1 : i]
			s.I = i + 1
			return t, true
		case x < ' ' || x >= 0x80 || x == '\\':
			return nil, false
		}
	}
	return nil, false
}

// Number passes over digits without a leading zero.
func (s *Scan) Number() (n int64, ok bool) {
	from := s.I
	for s.I < len(s.B) && s.B[s.I]-'0' <= 9 {
		n = n*10 + int64(s.B[s.I]-'0')
		s.I++
	}
	width := s.I - from
	return n, width > 0 && width <= 18 && (s.B[from] != '0' || width == 1)
}

// Decimal passes over digits with at most nine behind a point. The quotient of
// two numbers that a float64 holds exactly is rounded once, as a reader of the
// Text would round.
func (s *Scan) Decimal() (float64, bool) {
	n, ok := s.Number()
	if !ok || n >= 1<<53 {
		return 0, false
	}
	if !s.Has(".") {
		return float64(n), true
	}
	unit := int64(1)
	for ; s.I < len(s.B) && s.B[s.I]-'0' <= 9; s.I++ {
		if n = n*10 + int64(s.B[s.I]-'0'); n >= 1<<53 {
			return 0, false
		}
		unit *= 10
	}
	return float64(n) / float64(unit), unit > 1 && unit <= 1e9
}

// Time passes over a time with milliseconds in UTC.
func (s *Scan) Time() (time.Time, bool) {
	const shape = `"0000-00-00T00:00:00.000Z"`
	if len(s.B)-s.I < len(shape) {
		return time.Time{}, false
	}
	b := s.B[s.I : s.I+len(shape)]
	for i := range len(shape) {
		if shape[i] == '0' && b[i]-'0' > 9 || shape[i] != '0' && b[i] != shape[i] {
			return time.Time{}, false
		}
	}
	s.I += len(shape)
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

// Thousandths passes over a number with at most three digits behind the point, and is
// that in thousandths.
func (s *Scan) Thousandths() (n int64, ok bool) {
	below := s.Has("-")
	n, ok = s.Number()
	ok = ok && n <= 1e9
	if n *= 1000; s.Has(".") {
		from := s.I
		for place := int64(100); place > 0 && s.I < len(s.B) && s.B[s.I]-'0' <= 9; place /= 10 {
			n += int64(s.B[s.I]-'0') * place
			s.I++
		}
		ok = ok && s.I > from
	}
	if below {
		n = -n
	}
	return n, ok
}

// List passes over a list that is not empty, of what each reads.
func (s *Scan) List(each func() bool) bool {
	if !s.Has("[") {
		return false
	}
	for each() {
		if s.Has("]") {
			return true
		}
		if !s.Has(",") {
			return false
		}
	}
	return false
}

// Past passes over a value without reading what it holds, of which it believes that it
// is one: for lines with a checksum.
func (s *Scan) Past() bool {
	depth := 0
	for i := s.I; i < len(s.B); i++ {
		switch s.B[i] {
		case '[', '{':
			depth++
			continue
		case ']', '}':
			depth--
		case '"':
			for i++; i < len(s.B) && s.B[i] != '"'; i++ {
				if s.B[i] == '\\' {
					i++
				}
			}
		default:
			if i+1 < len(s.B) && s.B[i+1] != ',' && s.B[i+1] != '}' && s.B[i+1] != ']' {
				continue
			}
		}
		if depth <= 0 && i < len(s.B) {
			s.I = i + 1
			return depth == 0
		}
	}
	return false
}
