package conf

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"

	"distribute/lib/msg"

	"gopkg.in/yaml.v3"
)

// Limits on what is read.
const (
	MaxSize     = 16 << 20  // bytes of a file
	MaxDepth    = 100       // nested lists and mappings
	MaxAliased  = 1_000_000 // values that aliases add to a document
	MaxMistakes = 100       // mistakes that are told of one file; the rest is counted
	MaxRepeats  = 3         // likewise of one kind; see [Mistakes.Repeatf]
)

// A Place is where in a file something stands. Line and Col count from 1; a
// place without Line is the file as a whole, one without Col a whole line.
type Place struct {
	File      string
	Line, Col int
}

// String is the place as file:line:col, which editors understand.
func (p Place) String() string {
	name := p.File
	if strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f || r == 0xfffd }) {
		name = msg.Quote(name)
	}
	switch {
	case p.Line == 0:
		return name
	case p.Col == 0:
		return fmt.Sprintf("%s:%d", name, p.Line)
	}
	return fmt.Sprintf("%s:%d:%d", name, p.Line, p.Col)
}

// A Mistake is one thing that is wrong in a file, told in one line: where,
// what, and what to do about it.
type Mistake struct {
	Place Place
	Text  string
	Err   error // the cause, if an operation of the system failed; nil else
}

func (m *Mistake) Error() string { return m.Place.String() + ": " + m.Text }

// Unwrap returns the cause.
func (m *Mistake) Unwrap() error { return m.Err }

// ExitStatus is 65, the status of a command whose input is wrong.
func (m *Mistake) ExitStatus() int { return 65 }

// Mistakes collects what is wrong in the files of one reading. The zero value
// is ready for use. It is not safe for use by several goroutines at once.
type Mistakes struct {
	list    []*Mistake
	more    int
	repeats map[string]repeats
}

// repeats is how many mistakes of a kind there are, and where the last is.
type repeats struct {
	n    int
	last Place
}

// Errorf notes a mistake. An error formatted with %w becomes its cause.
func (l *Mistakes) Errorf(at Place, format string, a ...any) {
	if l.Full() {
		l.more++
		return
	}
	err := fmt.Errorf(format, a...)
	l.list = append(l.list, &Mistake{Place: at, Text: strings.ReplaceAll(err.Error(), "\n", "; "), Err: errors.Unwrap(err)})
}

// Repeatf is Errorf for a mistake that each line of the input may have, as one in an
// option has it. Of a kind the first [MaxRepeats] are told and the others counted; a
// second one at the same place is left out.
func (l *Mistakes) Repeatf(kind string, at Place, format string, a ...any) {
	r := l.repeats[kind]
	if r.n > 0 && r.last == at {
		return
	}
	if l.repeats == nil {
		l.repeats = map[string]repeats{}
	}
	l.repeats[kind] = repeats{r.n + 1, at}
	if r.n >= MaxRepeats {
		l.more++
		return
	}
	l.Errorf(at, format, a...)
}

// Full says that so much is wrong that further mistakes are counted only: it is
// time to stop looking for them at length.
func (l *Mistakes) Full() bool { return len(l.list) >= 10*MaxMistakes }

// Any says whether there is a mistake.
func (l *Mistakes) Any() bool { return len(l.list) > 0 }

// Err returns every mistake once, in the order of the places, as one error
// made by [errors.Join] of [*Mistake]s; nil if there is none. Those that are not
// told are counted in a last one.
func (l *Mistakes) Err() error {
	if len(l.list) == 0 {
		return nil
	}
	list := slices.Clone(l.list)
	slices.SortStableFunc(list, func(a, b *Mistake) int {
		return cmp.Or(cmp.Compare(a.Place.Line, b.Place.Line), cmp.Compare(a.Place.Col, b.Place.Col))
	})
	list = slices.CompactFunc(list, func(a, b *Mistake) bool { return a.Place == b.Place && a.Text == b.Text })
	more := l.more
	if len(list) > MaxMistakes {
		more += len(list) - MaxMistakes
		list = list[:MaxMistakes]
	}
	var errs []error
	for _, m := range list {
		errs = append(errs, m)
	}
	if more > 0 {
		text := fmt.Sprintf("and %d more mistakes", more)
		switch {
		case more == 1:
			text = "and 1 more mistake"
		case l.Full():
			text = fmt.Sprintf("and more than %d other mistakes", more)
		}
		errs = append(errs, &Mistake{Place: Place{File: list[0].Place.File}, Text: text})
	}
	return errors.Join(errs...)
}

// A Doc is one parsed file and the mistakes found in it so far.
type Doc struct {
	Mistakes
	name string
	root *yaml.Node
}

// ReadFile reads a regular file of at most [MaxSize] bytes; it is the first
// half of reading a format. A FIFO or a device is refused without waiting for
// it. Errors name the file.
func ReadFile(name string) ([]byte, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, &Mistake{Place: Place{File: name}, Text: "is " + msg.FileKind(st.Mode()) + ", and a file is wanted"}
	}
	if st.Size() > MaxSize {
		return nil, tooLong(name)
	}
	data, err := io.ReadAll(io.LimitReader(f, MaxSize+1))
	if err == nil && len(data) > MaxSize {
		return nil, tooLong(name)
	}
	return data, err
}

func tooLong(name string) error {
	return &Mistake{Place: Place{File: name}, Text: fmt.Sprintf("is longer than %d MiB, which is the limit", MaxSize>>20)}
}

// laterVersion is what a document may say first of its version, where the library knows 1.1
// alone and reads what is common to both.
var laterVersion = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`\A((?:[ \t]*(?:#[^\n]*)?\r?\n)*%YAML[ \t]+1\.)[2-9]`)
})

// Parse reads data as the one YAML document of the file of that name, which is
// used in messages only. The error holds every mistake that keeps the document
// from being walked.
func Parse(name string, data []byte) (*Doc, error) {
	d := &Doc{name: name}
	if len(data) > MaxSize {
		return nil, tooLong(name)
	}
	data = laterVersion().ReplaceAll(bytes.TrimPrefix(data, []byte("\ufeff")), []byte("${1}1"))
	if d.notText(data); d.Any() {
		return nil, d.Err()
	}
	root, err := parse(data)
	if err != nil {
		d.syntax(data, err)
		return nil, d.Err()
	}
	if root == nil || absent(root) {
		d.Errorf(Place{File: name, Line: 1, Col: 1}, "the file is empty")
		return nil, d.Err()
	}
	d.root = root
	if d.check(); d.Any() {
		return nil, d.Err()
	}
	return d, nil
}

// Root is the value that the document holds.
func (d *Doc) Root() Node { return Node{d: d, n: d.root} }

// errSecond is what parse returns for a file with several documents.
type errSecond struct{ line int }

func (e errSecond) Error() string { return "second document" }

// parse runs the library on one document. It returns nil for an empty one.
func parse(data []byte) (root *yaml.Node, err error) {
	defer func() {
		if p := recover(); p != nil {
			root, err = nil, fmt.Errorf("yaml: %v", p)
		}
	}()
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var first, second yaml.Node
	if err := dec.Decode(&first); err == io.EOF {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	switch err := dec.Decode(&second); {
	case err == nil:
		return nil, errSecond{second.Line}
	case err != io.EOF:
		return nil, err
	}
	if len(first.Content) == 0 {
		return nil, nil
	}
	return first.Content[0], nil
}
