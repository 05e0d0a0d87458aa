// Package cause tells of jobs that failed which did so for the same cause, as far
// as that shows in what they printed last.
package cause

import (
	"bytes"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxSaid is how many bytes are kept at most of the last line that an attempt has
// printed, and Tail how much of the end of its output is looked at for it.
const (
	MaxSaid = 160
	Tail    = 4 << 10
)

// Said is the last line of the end of an output that says something: that has a
// letter, or if none does, that is not blank. A carriage return ends a line too, as
// on a terminal, and what only moves or colours one is left out. It is valid UTF-8
// without control characters, of at most [MaxSaid] bytes.
func Said(tail []byte) string {
	last := ""
	for len(tail) > 0 {
		from := bytes.LastIndexAny(tail, "\n\r") + 1
		text := plain(tail[from:])
		if strings.ContainsFunc(text, unicode.IsLetter) {
			return text
		}
		if last == "" {
			last = text
		}
		tail = tail[:max(from-1, 0)]
	}
	return last
}

// plain is a line as text, cut.
func plain(line []byte) string {
	var b strings.Builder
	blank := false
	for len(line) > 0 {
		if n := escape(line); n > 0 {
			line = line[n:]
			continue
		}
		r, n := utf8.DecodeRune(line)
		line = line[n:]
		switch {
		case unicode.IsSpace(r):
			blank = b.Len() > 0
			continue
		case !unicode.IsPrint(r):
			continue
		}
		if b.Len()+1+utf8.RuneLen(r) > MaxSaid {
			break
		}
		if blank {
			b.WriteByte(' ')
			blank = false
		}
		b.WriteRune(r)
	}
	return b.String()
}

// escape is how long the control sequence is with which a line begins; 0 if it
// begins with none.
func escape(line []byte) int {
	if len(line) < 2 || line[0] != 0x1b || line[1] != '[' {
		return 0
	}
	n := 2
	for n < len(line) && (line[n] < 0x40 || line[n] > 0x7e) {
		n++
	}
	return min(n+1, len(line))
}

// Like is a text without what differs between jobs that end for one cause: numbers,
// also hexadecimal ones, and with them times, become #, paths /, and own, the job's
// name, *. Two jobs whose texts are alike so are taken to have had one cause.
func Like(text, own string) string {
	var b strings.Builder
	for len(text) > 0 {
		n := strings.IndexFunc(text, func(r rune) bool { return !ofWord(r) })
		if n < 0 {
			n = len(text)
		}
		if n == 0 {
			_, size := utf8.DecodeRuneInString(text)
			b.WriteString(text[:size])
			text = text[size:]
			continue
		}
		b.WriteString(likeWord(text[:n], own))
		text = text[n:]
	}
	return b.String()
}

// ofWord says that a rune is no mark between words: it may be of a path, a number
// or a name.
func ofWord(r rune) bool {
	return unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("/._-+=~@%", r)
}

func likeWord(word, own string) string {
	end := strings.TrimRight(word, ".-=") // of a sentence
	rest := word[len(end):]
	switch {
	case own != "" && end == own:
		return "*" + rest
	case strings.Contains(end, "/"):
		return "/" + rest
	case hex(end):
		return "#" + rest
	}
	return numbers(end) + rest
}

// hex says that a word is a hexadecimal number: 0x before it, or eight digits of
// which some are decimal.
func hex(word string) bool {
	digits, prefixed := strings.CutPrefix(strings.ToLower(word), "0x")
	return (prefixed && digits != "" || len(digits) >= 8 && strings.ContainsAny(digits, "0123456789")) &&
		strings.Trim(digits, "0123456789abcdef-") == ""
}

// numbers is a word in which each number is one #, with its sign, point and
// exponent.
func numbers(word string) string {
	var b strings.Builder
	for i := 0; i < len(word); {
		n := number(word[i:])
		if n > 0 {
			b.WriteByte('#')
			i += n
			continue
		}
		_, size := utf8.DecodeRuneInString(word[i:])
		b.WriteString(word[i : i+size])
		i += size
	}
	return b.String()
}

// number is how long the number is with which a text begins; 0 if it begins with
// none.
func number(s string) int {
	digits := func(i int) int {
		for i < len(s) && '0' <= s[i] && s[i] <= '9' {
			i++
		}
		return i
	}
	signed := func(i int) int {
		if i < len(s) && (s[i] == '-' || s[i] == '+') {
			return i + 1
		}
		return i
	}
	from := signed(0)
	n := digits(from)
	if n == from {
		return 0
	}
	if n < len(s) && s[n] == '.' {
		n = digits(n + 1)
	}
	if n < len(s) && (s[n] == 'e' || s[n] == 'E') {
		from := signed(n + 1)
		if end := digits(from); end > from {
			n = end
		}
	}
	return n
}
