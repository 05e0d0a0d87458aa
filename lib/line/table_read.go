package line

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
)

// Read decodes an object into the zero struct at v, a pointer to a struct of the table,
// as Append writes it, or anybody else: with members in any order, but none twice, none
// in another case and none that is unknown. b lacks the closing brace. words are as of
// [Scan].
func (t *Table) Read(b []byte, v any, words map[string]string) error {
	s := Scan{B: b, Words: words}
	if t.Scan(&s, v) && s.I == len(b) {
		return nil
	}
	reflect.ValueOf(v).Elem().SetZero()
	whole := append(append(make([]byte, 0, len(b)+1), b...), '}')
	if err := Check(whole); err != nil {
		return err
	}
	dec := json.NewDecoder(bytes.NewReader(whole))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return fmt.Errorf("%w: %w", ErrLine, err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return fmt.Errorf("%w: something follows the object", ErrLine)
	}
	return nil
}
