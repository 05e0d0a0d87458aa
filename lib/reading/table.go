package reading

import (
	"encoding/csv"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"

	"distribute/lib/unit"
)

var columnForm = regexp.MustCompile(`^(.+?)(?:\[(-?[0-9]{1,9}|max|min)\])?$`)

// parseColumn reads COLUMN or COLUMN[ROW].
func parseColumn(text string) (func() Taker, error) {
	m := columnForm.FindStringSubmatch(text)
	if m == nil {
		return nil, fmt.Errorf("%s is no column", quote(text))
	}
	column, row := m[1], m[2]
	n, extreme := -1, 0
	switch row {
	case "":
	case "max":
		extreme = 1
	case "min":
		extreme = -1
	default:
		n, _ = strconv.Atoi(row)
		if n < -maxBack {
			return nil, fmt.Errorf("row %d: no more than %d from the end can be asked for", n, maxBack)
		}
		if n >= 0 {
			n++
		}
	}
	return func() Taker {
		t := &tableTaker{column: column, at: -1, found: nth{n: n}, extreme: extreme}
		t.lines.take = t.line
		return t
	}, nil
}

type tableTaker struct {
	lines
	column string
	found  nth

	extreme int // 1: the greatest is wanted, -1: the least
	best    float64
	has     bool
	bestIs  string

	number int      // of the line
	above  string   // the last line that begins with #, before the first without
	part   rune     // between cells; 0: not known yet, ' ': blanks
	cells  int      // in a line
	at     int      // the column, from 0
	names  []string // of columns; nil: they have none
	bad    error
}

// split parts a line into its cells.
func split(line string, part rune) ([]string, error) {
	switch part {
	case '\t':
		return strings.Split(line, "\t"), nil
	case ' ':
		return strings.Fields(line), nil
	}
	r := csv.NewReader(strings.NewReader(line))
	r.Comma, r.TrimLeadingSpace, r.FieldsPerRecord = part, true, -1
	cells, err := r.Read()
	if parse := (*csv.ParseError)(nil); errors.As(err, &parse) {
		err = parse.Err
	}
	return cells, err
}

func (t *tableTaker) line(b []byte, whole bool) {
	t.number++
	line := string(b)
	if t.number == 1 {
		line = strings.TrimPrefix(line, "\ufeff")
	}
	if t.bad != nil || strings.TrimSpace(line) == "" {
		return
	}
	if !whole {
		t.bad = fmt.Errorf("has a line, number %d, of more than %d bytes", t.number, MaxLine)
		return
	}
	if rest, ok := strings.CutPrefix(line, "#"); ok {
		if t.cells == 0 {
			t.above = rest
		}
		return
	}
	first := t.cells == 0
	if first {
		t.part = parting(line)
	}
	cells, err := split(line, t.part)
	switch {
	case err != nil:
		t.bad = fmt.Errorf("has a line, number %d, that is no row of a table: %w", t.number, err)
		return
	case first:
		t.cells = len(cells)
		if header := t.head(cells); t.bad != nil || header {
			return
		}
	case len(cells) != t.cells:
		t.bad = fmt.Errorf("is no table: line %d has %s, and the first has %d", t.number, unit.Count(len(cells), "cell"), t.cells)
		return
	}
	t.cell(strings.TrimSpace(cells[t.at]))
}

// parting is what parts the cells of a file with that first line.
func parting(line string) rune {
	for _, c := range "\t,;" {
		if strings.ContainsRune(line, c) {
			return c
		}
	}
	return ' '
}

// head finds the column by the first line without a #, and says whether that has
// the names of columns.
func (t *tableTaker) head(cells []string) (header bool) {
	for _, c := range cells {
		if _, ok := number(c); !ok {
			header = true
		}
	}
	switch {
	case header:
		t.names = cells
	case t.above != "":
		above := strings.TrimSpace(t.above)
		if names, err := split(above, parting(above)); err == nil && len(names) == len(cells) {
			t.names = names
		}
	}
	for i, n := range t.names {
		if strings.TrimSpace(n) == t.column {
			if t.at >= 0 {
				t.bad = fmt.Errorf("has two columns %s", quote(t.column))
				return header
			}
			t.at = i
		}
	}
	if n, err := strconv.Atoi(t.column); t.at < 0 && err == nil && n >= 1 && n <= len(cells) {
		t.at = n - 1
	}
	if t.at < 0 {
		has := unit.Count(t.cells, "column")
		if t.names != nil {
			has = strings.Join(t.names, ", ")
		}
		t.bad = fmt.Errorf("has no column %s, but %.300s: %w", quote(t.column), has, ErrNone)
	}
	return header
}

// cell takes a cell of the column.
func (t *tableTaker) cell(cell string) {
	cell = cell[:min(len(cell), MaxValue+1)]
	if t.extreme == 0 {
		t.found.add(cell)
		return
	}
	x, ok := number(cell)
	switch {
	case cell == "" || math.IsNaN(x):
	case !ok:
		t.bad = fmt.Errorf("has %.60q in line %d, column %s, which is no number: write it as 1234.5 or 1.2345e3", strings.Trim(cell, `"`), t.number, quote(t.column))
	case !t.has || x*float64(t.extreme) > t.best*float64(t.extreme):
		t.best, t.bestIs, t.has = x, cell, true
	}
}

func (t *tableTaker) Value() (string, error) {
	t.end()
	s, ok := t.found.get()
	if t.extreme != 0 {
		s, ok = t.bestIs, t.has
	}
	switch {
	case t.bad != nil:
		return "", t.bad
	case t.cells == 0:
		return "", errors.New("is empty")
	case !ok && t.extreme != 0:
		return "", fmt.Errorf("has no number in the column %s: %w", quote(t.column), ErrNone)
	case !ok:
		return "", fmt.Errorf("has %s: %w", unit.Count(t.found.seen, "row"), ErrNone)
	}
	return clean(s)
}

// exponent is that of Fortran: behind a D, or for three digits behind nothing.
var exponent = regexp.MustCompile(`^([+-]?[0-9]*\.?[0-9]*)[dD]([+-]?[0-9]+)$|^([+-]?[0-9]*\.[0-9]*)([+-][0-9]{3})$`)

// number reads a number as programs write it, those of Fortran included.
func number(s string) (float64, bool) {
	s = strings.TrimSpace(s)
	x, err := strconv.ParseFloat(s, 64)
	if err == nil || errors.Is(err, strconv.ErrRange) {
		return x, true
	}
	switch {
	case exponent.MatchString(s):
		s = exponent.ReplaceAllString(s, "${1}${3}e${2}${4}")
	case s != "" && s[0] != '"' && noNumber.FindString(s) == s:
		s = strings.Trim(string(nameNumbers([]byte(s))), `"`)
	default:
		return 0, false
	}
	x, err = strconv.ParseFloat(s, 64)
	return x, err == nil || errors.Is(err, strconv.ErrRange)
}
