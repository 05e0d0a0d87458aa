package query

import (
	"bytes"
	"encoding/json"
	"io"

	"distribute/lib/job"
	"distribute/lib/line"
	"distribute/lib/sweep"
	"distribute/lib/unit"
)

// A Printer writes rows one after another. Nothing is sure to be written
// before Flush.
type Printer[R any] interface {
	Print(r *R) error
	Flush() error
}

// Records prints a row as a line of fields with TABs between them.
type Records[R any] struct {
	W      io.Writer // should be buffered
	Fields []Field[R]
	line   []byte
}

// Print writes one line.
func (p *Records[R]) Print(r *R) error {
	p.line = p.line[:0]
	for i := range p.Fields {
		if i > 0 {
			p.line = append(p.line, '\t')
		}
		p.line = p.Fields[i].appendText(p.line, r)
	}
	p.line = append(p.line, '\n')
	_, err := p.W.Write(p.line)
	return err
}

// Flush flushes W if it can be.
func (p *Records[R]) Flush() error { return flush(p.W) }

// Objects prints a row as a line with one JSON object: of these fields, or
// all that the row has if there are none.
type Objects[R any] struct {
	W      io.Writer // should be buffered
	Fields []Field[R]
	line   []byte
}

// Print writes one line.
func (p *Objects[R]) Print(r *R) error {
	if p.Fields == nil {
		p.line = appendRow(p.line[:0], r)
	} else {
		p.line = append(p.line[:0], '{')
		for i := range p.Fields {
			p.line = p.Fields[i].json(p.line, r)
		}
		p.line = append(p.line, '}')
	}
	p.line = append(p.line, '\n')
	_, err := p.W.Write(p.line)
	return err
}

// appendRow appends all that a row has, with what a terminal would obey as escapes;
// parameters as the object that they are to a person, and not as the list in which they
// travel.
func appendRow[R any](b []byte, r *R) []byte {
	row, param := *r, []string(nil)
	if j, ok := any(&row).(*job.Row); ok {
		param, j.Param = j.Param, nil
	}
	from := len(b)
	b = line.TableOf[R]().Append(b, &row)
	b = append(b[:from], unit.EscapeJSON(b[from:])...)
	if len(param) > 0 {
		b = sweep.AppendObject(append(b, `,"param":`...), sweep.Params(param))
	}
	return append(b, '}')
}

// Flush flushes W if it can be.
func (p *Objects[R]) Flush() error { return flush(p.W) }

func flush(w io.Writer) error {
	if f, ok := w.(interface{ Flush() error }); ok {
		return f.Flush()
	}
	return nil
}

// appendJSON appends v as encoding/json has it, without making < > & into
// escapes, but with what a terminal would obey. What cannot be encoded cannot be
// in a row.
func appendJSON(b []byte, v any) []byte {
	buf := bytes.NewBuffer(b)
	e := json.NewEncoder(buf)
	e.SetEscapeHTML(false)
	if e.Encode(v) != nil {
		return append(b, "null"...)
	}
	text := bytes.TrimSuffix(buf.Bytes(), []byte("\n"))
	return append(text[:len(b)], unit.EscapeJSON(text[len(b):])...)
}
