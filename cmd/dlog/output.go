package main

import (
	"fmt"
	"io"
	"strconv"
	"sync"
	"unicode/utf8"
)

// output is where several jobs print to, with a header when another one than
// before goes on.
type output struct {
	header bool // there are headers
	quote  bool // control characters are shown, not sent

	mu   sync.Mutex // guards w and what follows
	w    io.Writer
	last string // whose output was written last
}

// copy prints what comes from r, as of the job with that id, and says how much
// that was. Errors of r go through failed.
func (o *output) copy(id string, r io.Reader, failed func(error) error) (printed int64, err error) {
	buf, rest := make([]byte, 32<<10), 0
	if err := o.write(id, nil); err != nil {
		return 0, err
	}
	for {
		n, err := r.Read(buf[rest:])
		n += rest
		rest = 0
		if o.quote && err != io.EOF {
			rest = unfinished(buf[:n])
		}
		if n > rest {
			if err := o.write(id, buf[:n-rest]); err != nil {
				return printed, err
			}
			printed += int64(n - rest)
		}
		copy(buf, buf[n-rest:n])
		if err == io.EOF {
			return printed, nil
		}
		if err != nil {
			return printed, failed(err)
		}
	}
}

// write writes p, after a header if it was another job that wrote before.
func (o *output) write(id string, p []byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.header && o.last != id {
		gap := "\n"
		if o.last == "" {
			gap = ""
		}
		if _, err := fmt.Fprintf(o.w, "%s==> %s <==\n", gap, id); err != nil {
			return err
		}
		o.last = id
	}
	if o.quote {
		p = harmless(p)
	}
	_, err := o.w.Write(p)
	return err
}

// unfinished is how many bytes at the end of p may be the start of a
// character.
func unfinished(p []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(p); n++ {
		if c := p[len(p)-n]; utf8.RuneStart(c) {
			if !utf8.FullRune(p[len(p)-n:]) {
				return n
			}
			return 0
		}
	}
	return 0
}

// harmless writes what could move a terminal's cursor, other than by a new
// line, a TAB or a carriage return, as an escape.
func harmless(p []byte) []byte {
	var out []byte
	for len(p) > 0 {
		r, n := utf8.DecodeRune(p)
		switch {
		case r == '\n' || r == '\t' || r == '\r' || strconv.IsPrint(r) && (r != utf8.RuneError || n > 1):
			out = append(out, p[:n]...)
		default:
			quoted := strconv.Quote(string(p[:n]))
			out = append(out, quoted[1:len(quoted)-1]...)
		}
		p = p[n:]
	}
	return out
}
