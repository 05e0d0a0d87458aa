package conf

import (
	"bytes"
	"errors"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"distribute/lib/msg"
)

// What the library says, and what is said instead. The first entry that the
// library's text contains counts. A mark is a character at which the column
// is sought; "" means the line's first, and a quote either quote.
var syntaxTexts = []struct{ library, mark, text string }{
	{"mapping values are not allowed", ":", "a \":\" is not expected here: check the indentation of this line and the one above, or quote the text"},
	{"did not find expected key", "", "this line does not fit what is above it: check its indentation, quotes and brackets"},
	{"could not find expected ':'", "", "a key without \":\", or a text that does not fit what is above it: check the indentation"},
	{"did not find expected '-' indicator", "", "this line does not fit the list above it: start each entry with \"- \" in the same column"},
	{"did not find expected ',' or ']'", "[", "a list in [ ] is not closed or lacks a \",\""},
	{"did not find expected ',' or '}'", "{", "a mapping in { } is not closed or lacks a \",\""},
	{"did not find expected node content", "", "a value is missing, or does not belong here: check brackets and commas"},
	{"block sequence entries are not allowed", "-", "a \"- \" is not expected here: start a list on a line of its own"},
	{"block mapping", "", "a mapping is not expected here: check the indentation"},
	{"mapping keys are not allowed", "?", "a key is not expected here: check the indentation"},
	{"tab character", "\t", "a tab where spaces are wanted: indent with spaces"},
	{"end of stream", "'", "a quote is opened here and not closed"},
	{"document indicator", "'", "a quote is opened here and not closed"},
	{"escape character", "\\", "an unknown escape after \"\\\": write \"\\\\\", or use single quotes"},
	{"escape code", "\\", "an escape after \"\\\" that stands for no character"},
	{"hexdecimal number", "\\", "an escape after \"\\\" lacks hexadecimal digits"},
	{"expected <document start>", "", "text after the end of the document: check the indentation"},
	{"indentation indicator", "", "after | and > come at most + or - and a digit from 1 to 9"},
	{"comment or line break", "", "nothing but a comment may follow on this line"},
	{"max depth", "", "lists and mappings are nested too deep"},
	{"alphabetic or numeric", "", "an anchor (&) or alias (*) has a name of letters and digits: quote the text if none is meant"},
	{"tag", "!", "a tag (!) cannot be read: quote the text if none is meant"},
	{"directive", "%", "a line starts with %: quote the text"},
}

var (
	libraryLine  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^yaml: (?:line (\d+): )?(.*)`) })
	unknownAlias = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`unknown anchor '(.*)' referenced`) })
)

// syntax notes in our words what the library found, at a place that is worked
// out here, because the library tells of no column and often of the line where
// the surrounding block starts.
func (d *Doc) syntax(data []byte, err error) {
	var second errSecond
	if errors.As(err, &second) {
		d.Errorf(Place{File: d.name, Line: max(second.line, 1), Col: 1}, `a second document starts here: a file holds one ("---" stands only at the top)`)
		return
	}
	parts := libraryLine().FindStringSubmatch(err.Error())
	if parts == nil {
		parts = []string{"", "", err.Error()}
	}
	at := Place{File: d.name, Line: 1, Col: 1}
	if n, _ := strconv.Atoi(parts[1]); n > 0 {
		at.Line = n
	}
	lines := bytes.SplitAfter(data, []byte("\n"))
	if m := unknownAlias().FindStringSubmatch(parts[2]); m != nil {
		at.Line, at.Col = find(lines, "*"+m[1])
		d.Errorf(at, "alias %s has no anchor %s before it: quote the text if no alias is meant", msg.Quote("*"+m[1]), msg.Quote("&"+m[1]))
		return
	}
	start := at.Line
	if len(data) <= 1<<20 {
		at.Line, start = failing(lines, err.Error())
	}
	at.Line = min(at.Line, len(lines))
	line := bytes.TrimRight(lines[at.Line-1], "\r\n")
	mark, text := "", "this cannot be read as YAML: check quotes, brackets and indentation"
	for _, t := range syntaxTexts {
		if strings.Contains(parts[2], t.library) {
			mark, text = t.mark, t.text
			break
		}
	}
	if strings.Contains(parts[2], "cannot start any token") {
		mark, text = starter(string(line))
	}
	if start < at.Line && mark == "'" {
		at.Line, line = start, bytes.TrimRight(lines[start-1], "\r\n")
	} else if start < at.Line {
		text += " (it starts in line " + strconv.Itoa(start) + ")"
	}
	at.Col = column(string(line), mark)
	d.Errorf(at, "%s", text)
}

// starter looks for the character that cannot start a value.
func starter(line string) (mark, text string) {
	for i, c := range line {
		first := i == 0 || strings.ContainsRune(" [{,\t", rune(line[i-1]))
		switch {
		case c == '\t' && strings.TrimSpace(line[:i]) == "":
			return "\t", "a tab where spaces are wanted: indent with spaces"
		case first && strings.ContainsRune("@`%", c):
			return string(c), "a value that starts with " + strconv.Quote(string(c)) + " must be in quotes"
		}
	}
	return "", "a value starts with a character that must be in quotes"
}

// column is the place of the mark in the line, else of its first text,
// counted in characters from 1.
func column(line, mark string) int {
	i := -1
	switch mark {
	case "":
	case ":": // the second one is the one too many
		if i = strings.Index(line, ":"); i >= 0 {
			if j := strings.Index(line[i+1:], ": "); j >= 0 {
				i += 1 + j
			}
		}
	case "'":
		i = strings.IndexAny(line, "'\"")
	case "-":
		i = max(strings.Index(line, " - ")+1, strings.Index(line, "- "))
	default:
		i = strings.Index(line, mark)
	}
	if i < 0 {
		i = len(line) - len(strings.TrimLeft(line, " \t"))
	}
	return len([]rune(line[:min(i, len(line))])) + 1
}

// find is the first place of word in the lines.
func find(lines [][]byte, word string) (line, col int) {
	for i, l := range lines {
		if j := bytes.Index(l, []byte(word)); j >= 0 {
			return i + 1, len([]rune(string(l[:j]))) + 1
		}
	}
	return 1, 1
}

// failing finds, by parsing beginnings of the file, the line with which the
// error appears, and the line in which the bracket, quote or block begins that
// it belongs to: every line before start is sound.
func failing(lines [][]byte, text string) (line, start int) {
	prefix := func(n int) error {
		_, err := parse(bytes.Join(lines[:n], nil))
		return err
	}
	lo, hi := 0, len(lines) // the error is not there with lo lines, and there with hi
	for hi-lo > 1 {
		mid := (lo + hi) / 2
		if err := prefix(mid); err != nil && err.Error() == text {
			hi = mid
		} else {
			lo = mid
		}
	}
	start = hi
	for start > 1 && hi-start < 50 && prefix(start-1) != nil {
		start--
	}
	if hi == len(lines) && hi > 1 && len(bytes.TrimSpace(lines[hi-1])) == 0 {
		return start, start // at the end of the file: what was never closed is what to look at
	}
	return hi, start
}
