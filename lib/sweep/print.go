package sweep

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
	"sync"
	"unicode"
)

// AppendLine appends a case as a line of name=value, parted by a TAB, without
// its end. A single parameter whose value has a blank is followed by a TAB, so
// that it is one field to who reads the line.
func AppendLine(b []byte, params []Param) []byte {
	for i, p := range params {
		if i > 0 {
			b = append(b, '\t')
		}
		b = append(append(append(b, p.Name...), '='), p.Value...)
	}
	if len(params) == 1 && strings.ContainsFunc(params[0].Value, unicode.IsSpace) {
		b = append(b, '\t')
	}
	return b
}

// Params are parameters that are written as name=value.
func Params(list []string) []Param {
	params := make([]Param, len(list))
	for i, p := range list {
		params[i].Name, params[i].Value, _ = strings.Cut(p, "=")
	}
	return params
}

// number is a number of JSON.
var number = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$`) })

// AppendObject appends a case as a JSON object, in which what JSON takes for a
// number is one, as it is written.
func AppendObject(b []byte, params []Param) []byte {
	b = append(b, '{')
	for i, p := range params {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(append(b, '"'), p.Name...), '"', ':')
		if number().MatchString(p.Value) {
			b = append(b, p.Value...)
			continue
		}
		var text bytes.Buffer
		to := json.NewEncoder(&text)
		to.SetEscapeHTML(false)
		to.Encode(p.Value) // of a string there is no error
		b = append(b, bytes.TrimSuffix(text.Bytes(), []byte("\n"))...)
	}
	return append(b, '}')
}
