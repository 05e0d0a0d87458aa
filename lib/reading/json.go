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

// A step of a path leads to a member of an object or to an element of a list.
type step struct {
	key  any    // a string, or a number as encoding/json reads it
	path string // up to and with the step, as it was written
}

var stepForm = regexp.MustCompile(`^(?:\.([A-Za-z_][A-Za-z0-9_-]*)|\.?\[("(?:[^"\\]|\\.)*"|-?[0-9]{1,9})\])`)

// parsePath parses a path into a file of JSON.
func parsePath(text string) (func() Parser, error) {
	var steps []step
	for at := 0; at < len(text) && text != "."; {
		m := stepForm.FindStringSubmatch(text[at:])
		if m == nil {
			return nil, fmt.Errorf(`%s is no path in JSON at %s: write .member, ["member"] or [index]`, quote(text), quote(text[at:]))
		}
		at += len(m[0])
		s := step{m[1], text[:at]}
		if m[2] != "" {
			if err := json.Unmarshal([]byte(m[2]), &s.key); err != nil {
				return nil, fmt.Errorf("%s is no text of JSON", quote(strings.Trim(m[2], `"`)))
			}
		}
		steps = append(steps, s)
	}
	return func() Parser { return &jsonParser{steps: steps} }, nil
}

type jsonParser struct {
	steps []step
	text  []byte // the first MaxJSON+1 bytes
}

func (p *jsonParser) Write(b []byte) (int, error) {
	p.text = append(p.text, b[:min(len(b), MaxJSON+1-len(p.text))]...)
	return len(b), nil
}

func (p *jsonParser) Value() (string, error) {
	if len(p.text) > MaxJSON {
		return "", fmt.Errorf("has more than %d bytes, which is the limit for JSON", MaxJSON)
	}
	text := bytes.TrimPrefix(p.text, []byte("\ufeff"))
	v, err := lastDocument(text)
	if err != nil {
		var retry error
		if v, retry = lastDocument(nameNumbers(text)); retry != nil {
			return "", err
		}
	}
	path := "."
	for _, s := range p.steps {
		path = s.path
		ok := false
		switch key := s.key.(type) {
		case string:
			object, _ := v.(map[string]any)
			v, ok = object[key]
		case float64:
			list, _ := v.([]any)
			i := int(key)
			if i < 0 {
				i += len(list)
			}
			if ok = i >= 0 && i < len(list); ok {
				v = list[i]
			}
		}
		if !ok {
			return "", fmt.Errorf("has no %s: it is not there", path)
		}
	}
	switch v := v.(type) {
	case nil:
		return "", fmt.Errorf("has null at %s: it is not there", path)
	case string:
		return clean(v)
	}
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.Encode(v) // of what was JSON there is no error
	return clean(b.String())
}

func lastDocument(text []byte) (last any, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	for n := 0; ; n++ {
		switch err := d.Decode(&last); {
		case err == io.EOF && n == 0:
			return nil, errors.New("is empty")
		case err == io.EOF:
			return last, nil
		case err != nil:
			return nil, fmt.Errorf("is not JSON: %w", err)
		}
	}
}

// notFinite is what C, C++, Fortran, Python and JavaScript print where there is no finite
// number, which JSON has no word for.
const notFinite = `[+-]?(?i:nan(?:\([a-z0-9_]*\))?|inf(?:inity)?|1\.#[a-z]+[0-9]*)`

var quotedOrNotFinite = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|` + notFinite)

// nameNumbers has NaN, Infinity and -Infinity, between quotes, for what is notFinite outside
// of quotes.
func nameNumbers(text []byte) []byte {
	return quotedOrNotFinite.ReplaceAllFunc(text, func(found []byte) []byte {
		if found[0] == '"' {
			return found
		}
		return []byte(strconv.Quote(nameNumber(string(found))))
	})
}

func nameNumber(word string) string {
	switch {
	case !strings.Contains(strings.ToLower(word), "inf"):
		return "NaN"
	case word[0] == '-':
		return "-Infinity"
	}
	return "Infinity"
}
