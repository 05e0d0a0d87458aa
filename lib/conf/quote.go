package conf

import (
	"strconv"
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

// Nearest is the one of the known words that s was most likely meant to be, ""
// if none is near. It allows an edit for every three letters: a letter left
// out, added, changed or swapped with its neighbour; dashes and underscores
// are the same.
func Nearest(s string, known []string) string {
	if len(s) > 64 {
		return ""
	}
	best, bound := "", max(1, len(s)/3)+1
	for _, k := range known {
		if n := edits(fold(s), fold(k)); n < bound {
			best, bound = k, n
		}
	}
	return best
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
