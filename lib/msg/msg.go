// Package msg is how messages show what somebody has written, and name what was
// probably meant.
package msg

import (
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxQuoted is how many characters of a text a message shows.
const maxQuoted = 80

// Quote is s in double quotes for a message: one line, without control
// characters, cut when it is long.
func Quote(s string) string {
	if utf8.RuneCountInString(s) <= maxQuoted {
		return strconv.Quote(s)
	}
	n := 0
	for i := range s {
		if n++; n > maxQuoted {
			return strconv.Quote(s[:i]) + "…"
		}
	}
	return strconv.Quote(s)
}

// Shell is a command line as a shell reads it.
func Shell(words ...string) string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = w
		if w == "" || strings.Trim(w, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=@%./:,") != "" {
			out[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
	}
	return strings.Join(out, " ")
}

// Nearest is the one of the known words that s was most likely meant to be, ""
// if none is near. It allows an edit for every three letters: a letter left
// out, added, changed or swapped with its neighbour; dashes and underscores
// are the same. A word that begins with all of s, of three letters at least, is
// an edit away.
func Nearest(s string, known []string) string {
	if len(s) > 64 {
		return ""
	}
	best, bound := "", max(1, len(s)/3)+1
	for _, k := range known {
		n := edits(fold(s), fold(k))
		if len(s) >= 3 && strings.HasPrefix(fold(k), fold(s)) {
			n = min(n, 1)
		}
		if n < bound {
			best, bound = k, n
		}
	}
	return best
}

// DidYouMean is the nearest of the known words as the end of a message, with a blank
// before it; "" if none is near.
func DidYouMean(s string, known []string) string { return Meant(Nearest(s, known)) }

// Meant is DidYouMean for a word that was found otherwise; "" for none.
func Meant(word string) string {
	if word == "" {
		return ""
	}
	return fmt.Sprintf(" (did you mean %q?)", word)
}

// fold makes letters small and dashes underscores.
func fold(s string) string {
	b := []byte(s)
	for i, c := range b {
		switch {
		case 'A' <= c && c <= 'Z':
			b[i] = c + 'a' - 'A'
		case c == '-' || c == ' ':
			b[i] = '_'
		}
	}
	return string(b)
}

// edits counts the edits that make b of a (optimal string alignment).
func edits(a, b string) int {
	var before, last, row []int
	last = make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row = make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}

// FileKind says in words what kind of thing has that mode: "a directory".
func FileKind(mode fs.FileMode) string {
	switch {
	case mode.IsRegular():
		return "a file"
	case mode.IsDir():
		return "a directory"
	case mode&fs.ModeNamedPipe != 0:
		return "a FIFO"
	case mode&fs.ModeSocket != 0:
		return "a socket"
	case mode&fs.ModeDevice != 0:
		return "a device"
	case mode&fs.ModeSymlink != 0:
		return "a symbolic link"
	}
	return "no regular file"
}
