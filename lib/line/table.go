package line

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A Table is the form of lines that are objects of one struct: their members are its
// fields, in their order, named by their json tags. It is made of the struct alone, so
// that a new member is one line there.
//
// A member is left out when it is zero if its tag says omitempty or omitzero. Besides
// texts, whole numbers, booleans, lists of texts and structs, and what [Value] writes
// itself, a field may be a float64, which is a length of time in seconds, and a
// [time.Time], which is written with milliseconds in UTC. Fields of an embedded struct
// stand in its place. The tag line:"word" says that a text has few values, each of
// which a [Scan] keeps once.
type Table struct {
	Members []Member
}

// A Member is one member of a line.
type Member struct {
	Name string
	Type reflect.Type
	Tag  reflect.StructTag

	Always bool // it is written also when it is zero

	index []int
	key   string // ,"name":
	word  bool
	form  form
	of    *Table // of what an object, or each of a list of them, has
}

// A Value writes itself into a line, and reads what it has written.
type Value interface {
	AppendJSON(b []byte) []byte
	ScanJSON(s *Scan) bool // false: it is not as AppendJSON writes it
}

// A form is how a member is written.
type form uint8

const (
	formText form = iota
	formInt
	formUint
	formBool
	formSeconds
	formTime
	formTexts
	formObject  // a struct
	formPointer // to a struct
	formNumber  // a pointer to a whole number
	formObjects // a list of structs
	formValue
	formPast // it is passed over by who reads it
)

var (
	valueType = reflect.TypeFor[Value]()
	timeType  = reflect.TypeFor[time.Time]()
	tables    sync.Map // by type
)

// TableOf is the table of the struct T. A field that has no form is a panic.
func TableOf[T any]() *Table { return tableOf(reflect.TypeFor[T]()) }

func tableOf(t reflect.Type) *Table {
	if known, ok := tables.Load(t); ok {
		return known.(*Table)
	}
	made := &Table{}
	made.add(t, nil)
	known, _ := tables.LoadOrStore(t, made)
	return known.(*Table)
}

// Only is the table for who reads some of the members: the others are passed over, as
// [Scan.Past] does, where a line is as Append writes it.
func (t *Table) Only(names ...string) *Table {
	some := &Table{Members: slices.Clone(t.Members)}
	for i := range some.Members {
		if !slices.Contains(names, some.Members[i].Name) {
			some.Members[i].form = formPast
		}
	}
	return some
}

func (t *Table) add(of reflect.Type, index []int) {
	for i := range of.NumField() {
		f := of.Field(i)
		at := append(index[:len(index):len(index)], i)
		tag := f.Tag.Get("json")
		name, options, _ := strings.Cut(tag, ",")
		switch {
		case f.Anonymous && tag == "":
			t.add(f.Type, at)
			continue
		case tag == "-":
			continue
		case name == "":
			panic(fmt.Sprintf("the field %s of %s has no name", f.Name, of))
		}
		m := Member{Name: name, Type: f.Type, Tag: f.Tag, index: at, key: `,"` + name + `":`, Always: options == "", word: f.Tag.Get("line") == "word"}
		if m.form, m.of = formOf(f.Type); m.Always && f.Type.Kind() == reflect.Pointer {
			panic(fmt.Sprintf("the field %s of %s may be nil, and is not left out then", f.Name, of))
		}
		t.Members = append(t.Members, m)
	}
}

func formOf(t reflect.Type) (form, *Table) {
	switch kind := t.Kind(); {
	case t == timeType:
		return formTime, nil
	case reflect.PointerTo(t).Implements(valueType):
		return formValue, nil
	case kind == reflect.String:
		return formText, nil
	case kind == reflect.Int, kind == reflect.Int64:
		return formInt, nil
	case kind == reflect.Uint32, kind == reflect.Uint64:
		return formUint, nil
	case kind == reflect.Bool:
		return formBool, nil
	case kind == reflect.Float64:
		return formSeconds, nil
	case kind == reflect.Struct:
		return formObject, tableOf(t)
	case kind == reflect.Pointer && t.Elem().Kind() == reflect.Struct:
		return formPointer, tableOf(t.Elem())
	case kind == reflect.Pointer && (t.Elem().Kind() == reflect.Int || t.Elem().Kind() == reflect.Int64):
		return formNumber, nil
	case kind == reflect.Slice && t.Elem().Kind() == reflect.String:
		return formTexts, nil
	case kind == reflect.Slice && t.Elem().Kind() == reflect.Struct:
		return formObjects, tableOf(t.Elem())
	}
	panic(fmt.Sprintf("%s has no form in a line", t))
}

// Append appends the object at v, a pointer to a struct of the table, without its
// closing brace: what is added to it may follow. What is not UTF-8 in texts becomes
// U+FFFD.
func (t *Table) Append(b []byte, v any) []byte { return t.append(b, reflect.ValueOf(v).Elem()) }

func (t *Table) append(b []byte, v reflect.Value) []byte {
	from := len(b)
	for i := range t.Members {
		m := &t.Members[i]
		f := m.field(v)
		if !m.Always && m.zero(f) {
			continue
		}
		b = m.append(append(b, m.key...), f)
	}
	if len(b) == from {
		return append(b, '{')
	}
	b[from] = '{' // in the place of a comma
	return b
}

func (m *Member) field(v reflect.Value) reflect.Value {
	for _, i := range m.index {
		v = v.Field(i)
	}
	return v
}

// Field is the member in the struct at v, a pointer to one of its table.
func (m *Member) Field(v any) reflect.Value { return m.field(reflect.ValueOf(v).Elem()) }

// zero says that a value that may be left out is.
func (m *Member) zero(f reflect.Value) bool {
	switch m.form {
	case formText:
		return f.Len() == 0
	case formInt:
		return f.Int() == 0
	case formTexts, formObjects:
		return f.Len() == 0
	case formSeconds:
		return f.Float() == 0
	case formTime:
		return f.Addr().Interface().(*time.Time).IsZero()
	}
	return f.IsZero()
}

func (m *Member) append(b []byte, f reflect.Value) []byte {
	switch m.form {
	case formText:
		return AppendText(b, f.String())
	case formInt:
		return strconv.AppendInt(b, f.Int(), 10)
	case formUint:
		return strconv.AppendUint(b, f.Uint(), 10)
	case formBool:
		return strconv.AppendBool(b, f.Bool())
	case formSeconds:
		return strconv.AppendFloat(b, f.Float(), 'f', -1, 64)
	case formTime:
		return AppendTime(b, f.Addr().Interface().(*time.Time).UTC())
	case formNumber:
		return strconv.AppendInt(b, f.Elem().Int(), 10)
	case formObject:
		return append(m.of.append(b, f), '}')
	case formPointer:
		return append(m.of.append(b, f.Elem()), '}')
	case formTexts:
		b = append(b, '[')
		for i := range f.Len() {
			if i > 0 {
				b = append(b, ',')
			}
			b = AppendText(b, f.Index(i).String())
		}
		return append(b, ']')
	case formObjects:
		b = append(b, '[')
		for i := range f.Len() {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(m.of.append(b, f.Index(i)), '}')
		}
		return append(b, ']')
	}
	return f.Addr().Interface().(Value).AppendJSON(b)
}

// Scan reads an object as Append writes it, up to its closing brace, into the zero
// struct at v. It answers as the methods of [Scan] do.
func (t *Table) Scan(s *Scan, v any) bool { return t.scan(s, reflect.ValueOf(v).Elem()) }

func (t *Table) scan(s *Scan, v reflect.Value) bool {
	if !s.Has("{") {
		return false
	}
	first := true
	for i := range t.Members {
		m := &t.Members[i]
		key := m.key
		if first {
			key = key[1:] // without its comma
		}
		if !s.Has(key) {
			if m.Always {
				return false
			}
			continue
		}
		if first = false; !m.scan(s, m.field(v)) {
			return false
		}
	}
	return true
}

func (m *Member) scan(s *Scan, f reflect.Value) bool {
	switch m.form {
	case formText:
		t, ok := s.Text()
		if m.word {
			f.SetString(s.word(t))
		} else {
			f.SetString(string(t))
		}
		return ok
	case formInt:
		return scanInt(s, f)
	case formUint:
		n, ok := s.Number()
		f.SetUint(uint64(n))
		return ok && f.Uint() == uint64(n)
	case formBool:
		f.SetBool(true)
		return s.Has("true")
	case formSeconds:
		n, ok := s.Decimal()
		f.SetFloat(n)
		return ok
	case formTime:
		at, ok := s.Time()
		*f.Addr().Interface().(*time.Time) = at
		return ok
	case formNumber:
		f.Set(reflect.New(f.Type().Elem()))
		return scanInt(s, f.Elem())
	case formObject:
		return m.of.scan(s, f) && s.Has("}")
	case formPointer:
		f.Set(reflect.New(f.Type().Elem()))
		return m.of.scan(s, f.Elem()) && s.Has("}")
	case formTexts:
		list := f.Addr().Interface().(*[]string)
		return s.List(func() bool {
			t, ok := s.Text()
			*list = append(*list, string(t))
			return ok
		})
	case formObjects:
		return s.List(func() bool {
			n := f.Len()
			f.Grow(1)
			f.SetLen(n + 1)
			f.Index(n).SetZero()
			return m.of.scan(s, f.Index(n)) && s.Has("}")
		})
	case formValue:
		return f.Addr().Interface().(Value).ScanJSON(s)
	}
	return s.Past()
}

func scanInt(s *Scan, f reflect.Value) bool {
	below := s.Has("-")
	n, ok := s.Number()
	if below {
		n = -n
	}
	f.SetInt(n)
	return ok && f.Int() == n
}
