package sweep

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"distribute/lib/unit"
)

// MaxFile is the greatest size in bytes of a file of cases.
const MaxFile = 256 << 20

// parseFile reads @file or @file:column,column.
func parseFile(operand string, open Open) (axis, error) {
	name, columns := operand, []string(nil)
	if i := strings.LastIndexByte(operand, ':'); i > 0 {
		name, columns = operand[:i], strings.Split(operand[i+1:], ",")
	}
	where := quote(name)
	var read func(data []byte) (table, error)
	switch path.Ext(name) {
	case ".csv":
		read = readCSV
	case ".tsv":
		read = readTSV
	case ".jsonl", ".ndjson", ".json":
		read = readJSON
	default:
		return axis{}, fmt.Errorf("%s: what is in it is told by its name, which ends in .tsv, .csv or .jsonl", where)
	}
	data, err := open(name)
	switch {
	case err != nil:
		return axis{}, err
	case len(data) > MaxFile:
		return axis{}, fmt.Errorf("%s has more than %d bytes, which is the limit", where, MaxFile)
	case !utf8.Valid(data):
		return axis{}, fmt.Errorf("%s is not UTF-8 text", where)
	}
	t, err := read(bytes.TrimPrefix(data, []byte("\ufeff")))
	if err != nil {
		return axis{}, fmt.Errorf("%s: %w", where, err)
	}
	if len(t.rows) == 0 {
		return axis{}, fmt.Errorf("%s has no case in it", where)
	}
	return t.axis(where, columns)
}

// A table is what was read of a file.
type table struct {
	names []string
	rows  [][]string
}

// axis takes columns of a table, all if none is named.
func (t *table) axis(where string, columns []string) (axis, error) {
	if columns == nil {
		columns = t.names
	}
	a := axis{names: columns, n: int64(len(t.rows))}
	for _, c := range columns {
		k := slices.Index(t.names, c)
		if k < 0 {
			return axis{}, fmt.Errorf("%s has no column %s: there are %s", where, quote(c), clip(strings.Join(t.names, ", ")))
		}
		w := make(words, len(t.rows))
		for i, row := range t.rows {
			w[i] = row[k]
		}
		a.of = append(a.of, w)
	}
	return a, nil
}

// head takes the names of columns.
func (t *table) head(names []string) error {
	for i, n := range names {
		if err := CheckName(n); err != nil {
			return fmt.Errorf("line 1: %w", err)
		}
		if slices.Contains(names[:i], n) {
			return fmt.Errorf("line 1: the column %s is there twice", quote(n))
		}
	}
	t.names = names
	return nil
}

// row takes the values of a case.
func (t *table) row(line int, values []string) error {
	if len(values) != len(t.names) {
		return fmt.Errorf("line %d has %s, and the first line names %d", line, unit.Count(len(values), "value"), len(t.names))
	}
	for _, v := range values {
		if err := CheckValue(v); err != nil {
			return fmt.Errorf("line %d: %w", line, err)
		}
	}
	if t.rows = append(t.rows, values); len(t.rows) > MaxCases {
		return fmt.Errorf("there are more than %d cases, which is the limit", MaxCases)
	}
	return nil
}

func readCSV(data []byte) (t table, err error) {
	r := csv.NewReader(bytes.NewReader(data))
	r.FieldsPerRecord = -1
	for {
		rec, err := r.Read()
		if err == io.EOF {
			return t, nil
		}
		if bad := (*csv.ParseError)(nil); errors.As(err, &bad) {
			return t, fmt.Errorf("line %d: its quotes are wrong", bad.Line)
		}
		line, _ := r.FieldPos(0)
		if t.names == nil {
			err = t.head(rec)
		} else {
			err = t.row(line, rec)
		}
		if err != nil {
			return t, err
		}
	}
}

func readTSV(data []byte) (t table, err error) {
	number := 0
	for line := range strings.Lines(string(data)) {
		number++
		line = strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r")
		if strings.TrimSpace(line) == "" {
			continue
		}
		if fields := strings.Split(line, "\t"); t.names == nil {
			err = t.head(fields)
		} else {
			err = t.row(number, fields)
		}
		if err != nil {
			return t, err
		}
	}
	return t, nil
}

// readJSON reads an object a line, all with the members of the first one.
func readJSON(data []byte) (t table, err error) {
	number := 0
	for line := range bytes.Lines(data) {
		number++
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		params, err := Object(caseOf(line))
		if err != nil {
			return t, fmt.Errorf("line %d: %w", number, err)
		}
		if t.names == nil {
			t.names = make([]string, len(params))
			for i, p := range params {
				t.names[i] = p.Name
			}
		}
		if len(params) < len(t.names) {
			return t, fmt.Errorf("line %d has %s, and the first line names %d", number, unit.Count(len(params), "member"), len(t.names))
		}
		values := make([]string, len(t.names))
		for _, p := range params {
			k := slices.Index(t.names, p.Name)
			if k < 0 {
				return t, fmt.Errorf("line %d: %s is no member of the first line", number, quote(p.Name))
			}
			values[k] = p.Value
		}
		if err := t.row(number, values); err != nil {
			return t, err
		}
	}
	return t, nil
}

// caseOf is the case of a line: that of a job, whose only member is param, as dsweep -j
// prints it, or the line.
func caseOf(line []byte) []byte {
	var of map[string]json.RawMessage
	if json.Unmarshal(line, &of) == nil && len(of) == 1 && len(of["param"]) > 0 && of["param"][0] == '{' {
		return of["param"]
	}
	return line
}

// Object reads a JSON object of texts, numbers and truths, in its order. Numbers
// stay as they are written.
func Object(data []byte) (params []Param, err error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return nil, errors.New("it is no JSON object")
	}
	for d.More() {
		key, err := d.Token()
		name, ok := key.(string)
		if err != nil || !ok {
			return nil, errors.New("it is no JSON object")
		}
		if err := CheckName(name); err != nil {
			return nil, err
		}
		if slices.ContainsFunc(params, func(p Param) bool { return p.Name == name }) {
			return nil, fmt.Errorf("the parameter %s is there twice", quote(name))
		}
		v, err := d.Token()
		if err != nil {
			return nil, errors.New("it is no JSON object")
		}
		p := Param{Name: name}
		switch v := v.(type) {
		case string:
			p.Value = v
		case json.Number:
			p.Value = v.String()
		case bool:
			p.Value = fmt.Sprint(v)
		default:
			return nil, fmt.Errorf("%s is neither a text, a number nor a truth", quote(name))
		}
		if err := CheckValue(p.Value); err != nil {
			return nil, err
		}
		params = append(params, p)
	}
	if _, err := d.Token(); err != nil {
		return nil, errors.New("it is no JSON object")
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("something stands behind the JSON object")
	}
	return params, nil
}
