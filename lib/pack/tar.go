package pack

import (
	"strconv"
)

const (
	block   = 512
	tarEnd  = 2 * block
	maxSize = 1<<33 - 1 // what 11 octal digits hold
)

// padding is the zeros after n bytes of content.
func padding(n int64) int { return int(-n & (block - 1)) }

// appendHeader appends the tar header of e, of which the last size bytes
// follow, in the form that the package documentation defines.
func appendHeader(b []byte, e *Entry, size int64) []byte {
	name := e.Path
	if e.Type == Dir {
		name += "/"
	}
	var records []byte
	if !plain(e.Link) {
		records = appendRecord(records, "linkpath", e.Link)
	}
	if !plain(name) {
		records = appendRecord(records, "path", name)
	}
	short := size
	if size > maxSize {
		records = appendRecord(records, "size", strconv.FormatInt(size, 10))
		short = 0
	}
	if records != nil {
		b = appendUstar(b, ustar{name: "././@PaxHeader", kind: 'x', size: int64(len(records))})
		b = append(b, records...)
		b = append(b, make([]byte, padding(int64(len(records))))...)
	}
	u := ustar{name: name, mode: int64(e.Mode), size: short, link: e.Link}
	switch e.Type {
	case Dir:
		u.kind = '5'
	case Link:
		u.kind, u.mode = '2', 0o777
	default:
		u.kind = '0'
	}
	if e.Type != Link {
		u.time = e.Time.Unix()
	}
	return appendUstar(b, u)
}

// plain reports whether a name goes into a ustar field.
func plain(name string) bool {
	if len(name) > 100 {
		return false
	}
	for i := range len(name) {
		if name[i] >= 0x80 {
			return false
		}
	}
	return true
}

// appendRecord appends a pax record: its own length in decimal, the key and
// the value.
func appendRecord(b []byte, key, value string) []byte {
	rest := len(key) + len(value) + len(" =\n")
	n := rest + len(strconv.Itoa(rest))
	n = rest + len(strconv.Itoa(n))
	b = strconv.AppendInt(b, int64(n), 10)
	b = append(b, ' ')
	b = append(b, key...)
	b = append(b, '=')
	b = append(b, value...)
	return append(b, '\n')
}

// ustar is what goes into the fields of one header block.
type ustar struct {
	name, link       string
	kind             byte
	mode, size, time int64
}

func appendUstar(b []byte, u ustar) []byte {
	at := len(b)
	b = append(b, make([]byte, block)...)
	h := b[at:]
	copy(h[0:100], u.name)
	octal(h[100:107], u.mode)
	octal(h[108:115], 0) // uid
	octal(h[116:123], 0) // gid
	octal(h[124:135], u.size)
	octal(h[136:147], u.time)
	h[156] = u.kind
	copy(h[157:257], u.link)
	copy(h[257:265], "ustar\x0000")
	octal(h[329:336], 0) // device numbers
	octal(h[337:344], 0)
	copy(h[148:156], "        ")
	var sum int64
	for _, c := range h {
		sum += int64(c)
	}
	octal(h[148:154], sum)
	h[154] = 0
	return b
}

// octal fills a field with the digits of n.
func octal(field []byte, n int64) {
	for i := len(field) - 1; i >= 0; i-- {
		field[i] = '0' + byte(n&7)
		n >>= 3
	}
}
