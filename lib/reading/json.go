package reading

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
)

// A step of a path is a member of an object, or an index of a list.
type step struct {
	member string
	index  int
	list   bool
}

var stepForm = regexp.MustCompile(`^(?:\.([A-Za-z_][A-Za-z0-9_-]*)|\.?\["((?:[^"\\]|\\.)*)"\]|\.?\[(-?[0-9]{1,9})\])`)

// parsePath reads a path into a file of JSON.
func parsePath(text string) (func() Taker, error) {
	var steps []step
	for rest := text; rest != "" && text != "."; {
		m := stepForm.FindStringSubmatchIndex(rest)
		switch {
		case m == nil:
			return nil, fmt.Errorf(`%s is no path in JSON at %s: write .member, ["member"] or [index]`, quote(text), quote(rest))
		case m[2] >= 0:
			steps = append(steps, step{member: rest[m[2]:m[3]]})
		case m[4] >= 0:
			var name string
			if err := json.Unmarshal([]byte(`"`+rest[m[4]:m[5]]+`"`), &name); err != nil {
				return nil, fmt.Errorf("%s is no text of JSON", quote(rest[m[4]:m[5]]))
			}
			steps = append(steps, step{member: name})
		default:
			n, _ := strconv.Atoi(rest[m[6]:m[7]])
			steps = append(steps, step{index: n, list: true})
		}
		rest = rest[m[1]:]
	}
	return func() Taker { return &jsonTaker{steps: steps} }, nil
}

type jsonTaker struct {
	steps []step
	text  []byte
	long  bool
}

func (t *jsonTaker) Write(p []byte) (int, error) {
	if len(t.text)+len(p) > MaxJSON {
		t.long = true
		return len(p), nil
	}
	t.text = append(t.text, p...)
	return len(p), nil
}

// Value is that of the last document in the file.
func (t *jsonTaker) Value() (string, error) {
	if t.long {
		return "", fmt.Errorf("has more than %d bytes, which is the limit for JSON", MaxJSON)
	}
	text := bytes.TrimPrefix(t.text, []byte("\ufeff"))
	last, err := document(text)
	if err != nil {
		if named, odd := document(nameNumbers(text)); odd == nil {
			last, err = named, nil
		}
	}
	if err != nil {
		return "", err
	}
	for i, s := range t.steps {
		var ok bool
		if last, ok = s.of(last); !ok {
			return "", fmt.Errorf("has no %s: %w", pathText(t.steps[:i+1]), ErrNone)
		}
	}
	switch v := last.(type) {
	case nil:
		return "", fmt.Errorf("has null at %s: %w", pathText(t.steps), ErrNone)
	case string:
		return clean(v)
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(last); err != nil {
		return "", err
	}
	return clean(b.String())
}

// document is the last document of the text.
func document(text []byte) (last any, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	for n := 0; ; n++ {
		var v any
		err := d.Decode(&v)
		switch {
		case err == io.EOF && n > 0:
			return last, nil
		case err == io.EOF:
			return nil, errors.New("is empty")
		case err != nil:
			return nil, fmt.Errorf("is not JSON: %w", err)
		}
		last = v
	}
}

// of is what stands there in v.
func (s *step) of(v any) (any, bool) {
	if !s.list {
		m, _ := v.(map[string]any)
		v, ok := m[s.member]
		return v, ok
	}
	list, _ := v.([]any)
	i := s.index
	if i < 0 {
		i += len(list)
	}
	if i < 0 || i >= len(list) {
		return nil, false
	}
	return list[i], true
}

func pathText(steps []step) string {
	var b strings.Builder
	for _, s := range steps {
		switch {
		case s.list:
			fmt.Fprintf(&b, "[%d]", s.index)
		case stepForm.FindString("."+s.member) == "."+s.member:
			b.WriteString("." + s.member)
		default:
			fmt.Fprintf(&b, "[%q]", s.member)
		}
	}
	if b.Len() == 0 {
		return "."
	}
	return b.String()
}

// noNumber is what C, C++, Fortran, Python and JavaScript print where there is no finite
// number, which JSON has no word for.
var noNumber = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|[+-]?(?i:nan(?:\([a-z0-9_]*\))?|inf(?:inity)?|1\.#[a-z]+[0-9]*)`)

// nameNumbers has NaN, Infinity and -Infinity, between quotes, for whatever the text calls
// them outside of quotes.
func nameNumbers(text []byte) []byte {
	return noNumber.ReplaceAllFunc(text, func(found []byte) []byte {
		switch word := bytes.ToLower(found); {
		case word[0] == '"':
			return found
		case !bytes.Contains(word, []byte("inf")):
			return []byte(`"NaN"`)
		case word[0] == '-':
			return []byte(`"-Infinity"`)
		}
		return []byte(`"Infinity"`)
	})
}
