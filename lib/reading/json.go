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
	d := json.NewDecoder(bytes.NewReader(quoted(bytes.TrimPrefix(t.text, []byte("\ufeff")))))
	d.UseNumber()
	var last any
	for n := 0; ; n++ {
		var v any
		err := d.Decode(&v)
		if err == io.EOF && n > 0 {
			break
		}
		switch {
		case err == io.EOF:
			return "", errors.New("is empty")
		case err != nil:
			return "", fmt.Errorf("is not JSON: %w", err)
		}
		last = v
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

// quoted has what programs write for numbers that JSON has not, between quotes.
func quoted(text []byte) []byte {
	if !bytes.Contains(text, []byte("NaN")) && !bytes.Contains(text, []byte("Infinity")) {
		return text
	}
	out := make([]byte, 0, len(text)+64)
	for i := 0; i < len(text); {
		switch c := text[i]; {
		case c == '"':
			end := i + 1
			for end < len(text) && text[end] != '"' {
				if text[end] == '\\' {
					end++
				}
				end++
			}
			end = min(end+1, len(text))
			out = append(out, text[i:end]...)
			i = end
			continue
		case c == 'N' || c == 'I' || c == '-':
			found := false
			for _, word := range []string{"NaN", "Infinity", "-Infinity"} {
				if bytes.HasPrefix(text[i:], []byte(word)) {
					out = append(append(append(out, '"'), word...), '"')
					i += len(word)
					found = true
					break
				}
			}
			if found {
				continue
			}
		}
		out = append(out, text[i])
		i++
	}
	return out
}
