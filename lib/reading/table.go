package reading

import (
	"encoding/csv"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"distribute/lib/unit"
)

// A table is the Parser of a file of rows. With an extreme its values are the cells that are
// better than those before, so the last one is wanted.
type table struct {
	lines
	column  string
	extreme float64 // 1: the greatest number is wanted, -1: the least, 0: that of a row
	best    float64 // so far

	number int    // of the line
	above  string // the last line that begins with #, before the first without
	comma  rune   // between cells; ' ': blanks
	cells  int    // in a line; 0: none has come
	at     int    // the column, from 0
	semis  int    // semicolons in the first line

	first     []string // the first row, while the row below it may show that it is a header
	firstLine int
	isHeader  bool // it is one, unless the row below it shows that it is none
}

var columnForm = regexp.MustCompile(`(?s)^(.+?)(?:\[(-?[0-9]{1,9}|max|min)\])?$`)

// parseColumn parses COLUMN or COLUMN[ROW].
func parseColumn(text string) (func() Parser, error) {
	m := columnForm.FindStringSubmatch(text)
	extreme := map[string]float64{"max": 1, "min": -1}[m[2]]
	n, err := strconv.Atoi(m[2])
	switch {
	case err != nil:
		n = -1
	case n < -maxBack:
		return nil, fmt.Errorf("row %d: no more than %d from the end can be asked for", n, maxBack)
	case n >= 0:
		n++
	}
	return func() Parser {
		t := &table{column: m[1], extreme: extreme, best: math.NaN()}
		t.lines = lines{n: n, read: t.readLine, none: t.noCell}
		return t
	}, nil
}

func (t *table) readLine(b []byte) error {
	line := string(b)
	if t.number++; t.number == 1 {
		line = strings.TrimPrefix(line, "\ufeff")
	}
	comment, commented := strings.CutPrefix(line, "#")
	switch {
	case strings.TrimSpace(line) == "":
	case len(line) > MaxLine:
		return fmt.Errorf("has a line, number %d, of more than %d bytes", t.number, MaxLine)
	case !commented:
		return t.readRow(line)
	case t.cells == 0:
		t.above = strings.TrimSpace(comment)
	}
	return nil
}

func (t *table) readRow(line string) error {
	if t.cells == 0 {
		t.comma, t.semis = separator(line), strings.Count(line, ";")
	}
	if t.comma == ',' && t.semis > 0 && strings.Count(line, ";") == t.semis && semicolons(line) {
		return fmt.Errorf("has %.60s in line %d, with a decimal comma: write it with a point", line, t.number)
	}
	cells, err := split(line, t.comma)
	if err != nil {
		return fmt.Errorf("has a line, number %d, that is no row of a table: %w", t.number, err)
	}
	if t.cells == 0 {
		if header, err := t.findColumn(cells); err != nil || header || t.first != nil {
			return err
		}
	}
	if len(cells) != t.cells {
		return fmt.Errorf("is no table: line %d has %s, and the first has %d", t.number, unit.Count(len(cells), "cell"), t.cells)
	}
	if t.first != nil {
		if err := t.addFirst(cells); err != nil {
			return err
		}
	}
	return t.addCell(cells, t.number)
}

// Value returns the cell.
func (t *table) Value() (string, error) {
	if len(t.line) > 0 {
		t.end()
	}
	if t.first != nil && t.err == nil {
		t.err = t.addFirst(nil)
	}
	return t.lines.Value()
}

// addFirst adds the cell of the first row, unless that is a header. It is none if a text in it is
// numbered as that below it. Else it is one if it would be without a row below; and if that shows that its
// first cell is a text above a number, or empty above either, or that it has no number and the row below
// it has. Below the only row is nil.
func (t *table) addFirst(below []string) error {
	first := t.first
	t.first = nil
	isNumber := func(cell string) bool { return t.kind(cell) == 2 }
	switch {
	case below != nil && t.numbered(first, below):
	case t.isHeader:
		return nil
	case below != nil && (t.kind(first[0]) < t.kind(below[0]) || !slices.ContainsFunc(first, isNumber) && slices.ContainsFunc(below, isNumber)):
		return nil
	}
	return t.addCell(first, t.firstLine)
}

// digits matches a number within a text.
var digits = regexp.MustCompile(`[0-9]+`)

// numbered reports whether a text in one row differs from that below it in numbers alone, as times or run1 do.
func (t *table) numbered(row, below []string) bool {
	for i, cell := range row {
		shape := digits.ReplaceAllString(cell, "0")
		if t.kind(cell) == 1 && digits.MatchString(cell) && shape == digits.ReplaceAllString(below[i], "0") {
			return true
		}
	}
	return false
}

// kind returns 0 for an empty cell, 1 for a text and 2 for a number.
func (t *table) kind(cell string) int {
	if _, ok := number(cell); ok || t.decimal(cell) {
		return 2
	}
	return min(1, len(strings.TrimSpace(cell)))
}

// addCell adds the cell of a row, if it is one of the values.
func (t *table) addCell(cells []string, line int) error {
	cell := strings.TrimSpace(cells[t.at])
	if t.decimal(cell) {
		return fmt.Errorf("has %.60s in line %d, column %s, with a decimal comma: write it with a point", cell, line, quote(t.column))
	}
	if t.extreme == 0 {
		t.add([]byte(cell))
		return nil
	}
	x, ok := number(cell)
	switch {
	case cell == "" || math.IsNaN(x):
	case !ok:
		return fmt.Errorf("has %.60q in line %d, column %s, which is no number: write it as 1234.5 or 1.2345e3",
			strings.Trim(cell, `"`), line, quote(t.column))
	case x*t.extreme <= t.best*t.extreme:
	default:
		t.best = x
		t.add([]byte(cell))
	}
	return nil
}

// decimal matches a number with a decimal comma, also one with points between thousands.
var decimal = regexp.MustCompile(`^[+-]?([0-9]+|[0-9]{1,3}(\.[0-9]{3})+),[0-9]+([eEdD][+-]?[0-9]+)?$`)

// exponent matches a number with an exponent, in a cell that is a number.
var exponent = regexp.MustCompile(`[0-9][eEdD]`)

// decimal reports whether a cell is a number with a decimal comma, in a table whose cells are not separated by commas.
func (t *table) decimal(cell string) bool {
	return (t.comma == ';' || t.comma == ' ') && decimal.MatchString(strings.TrimSpace(cell))
}

// decimals reports whether all commas in a line of cells are decimal commas.
func decimals(cells []string, others func(cell string) bool) bool {
	n := 0
	for _, c := range cells {
		switch c = strings.TrimSpace(c); {
		case decimal.MatchString(c):
			n++
		case !others(c):
			return false
		}
	}
	return n > 0 && len(cells) > 1
}

// semicolons reports whether a line has cells between semicolons, of which some are numbers with
// decimal commas.
func semicolons(line string) bool {
	return decimals(strings.Split(line, ";"), func(c string) bool { return !strings.ContainsAny(c, "\t,") })
}

// separator is what stands between the cells of a table with that first line.
func separator(line string) rune {
	switch {
	case semicolons(line):
		return ';'
	case !strings.Contains(line, "\t") && decimals(strings.Fields(line), func(c string) bool { _, ok := number(c); return ok }):
		return ' '
	}
	for _, c := range "\t,;" {
		if strings.ContainsRune(line, c) {
			return c
		}
	}
	return ' '
}

func split(line string, comma rune) ([]string, error) {
	switch comma {
	case '\t':
		return strings.Split(line, "\t"), nil
	case ' ':
		return strings.Fields(line), nil
	}
	r := csv.NewReader(strings.NewReader(line))
	r.Comma, r.TrimLeadingSpace = comma, true
	cells, err := r.Read()
	return cells, errors.Unwrap(err) // without the number of the line, which is 1
}

// findColumn finds the column by the first line without a #, and says whether that has the
// names of columns.
func (t *table) findColumn(cells []string) (header bool, err error) {
	numbers, fraction, named := 0, false, false
	for _, c := range cells {
		if t.kind(c) == 2 {
			numbers++
			fraction = fraction || strings.ContainsAny(c, ".,") || exponent.MatchString(c)
		}
		named = named || strings.TrimSpace(c) == t.column
	}
	parts := separator(t.above)
	above, _ := split(t.above, parts)
	_, noNumber := strconv.Atoi(t.column)
	alike := len(above) == len(cells) && parts == t.comma
	again := slices.EqualFunc(above, cells, func(a, b string) bool { return strings.TrimSpace(a) == strings.TrimSpace(b) })
	// A text among numbers is a value, if there are names above or a number is none.
	switch {
	case numbers == len(cells):
	case named && noNumber != nil, again:
		header = true
	case numbers > 0 && alike:
	case (fraction || alike && (noNumber == nil || slices.Contains(above, t.column))) && !named:
		t.first, t.firstLine = cells, t.number
	case noNumber == nil && !named:
		t.first, t.firstLine, t.isHeader = cells, t.number, true
	default:
		header = true
	}
	names, has := cells, unit.Count(len(cells), "column")
	if !header && !t.isHeader {
		names = above
	}
	t.cells, t.at = len(cells), -1
	if len(names) == t.cells {
		has = strings.Join(names, ", ")
		for i := range names {
			names[i] = strings.TrimSpace(names[i])
		}
		t.at = slices.Index(names, t.column)
	}
	if t.at >= 0 && slices.Contains(names[t.at+1:], t.column) {
		return false, fmt.Errorf("has two columns %s", quote(t.column))
	}
	if n, err := strconv.Atoi(t.column); t.at < 0 && err == nil {
		t.at = n - 1
	}
	if t.at < 0 || t.at >= t.cells {
		return false, fmt.Errorf("has no column %s, but %.300s: it is not there", quote(t.column), has)
	}
	return header, nil
}

func (t *table) noCell() error {
	switch {
	case t.cells == 0:
		return errors.New("is empty")
	case t.extreme != 0:
		return fmt.Errorf("has no number in the column %s: it is not there", quote(t.column))
	}
	return fmt.Errorf("has %s: it is not there", unit.Count(t.seen, "row"))
}

var (
	// fortran is a number whose exponent stands behind a D, or has three digits and stands behind nothing.
	fortran       = regexp.MustCompile(`^([+-]?[0-9]*\.?[0-9]*)[dD]([+-]?[0-9]+)$|^([+-]?[0-9]*\.[0-9]*)([+-][0-9]{3})$`)
	onlyNotFinite = regexp.MustCompile(`^` + notFinite + `$`)
)

// number reads a number as programs write it, those of Fortran included.
func number(s string) (x float64, ok bool) {
	s = strings.TrimSpace(s)
	x, err := strconv.ParseFloat(s, 64)
	if errors.Is(err, strconv.ErrSyntax) {
		s = fortran.ReplaceAllString(s, "${1}${3}e${2}${4}")
		x, err = strconv.ParseFloat(onlyNotFinite.ReplaceAllStringFunc(s, nameNumber), 64)
	}
	return x, err == nil || errors.Is(err, strconv.ErrRange)
}
