package pause

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Format is the version of the format of a pause's file.
const Format = 1

// maxFile is the most bytes that a pause's file may have.
const maxFile = 4096

// What a pause may say.
const (
	maxWhy   = 200 // bytes
	maxCPUs  = 65536
	farthest = 100 * 366 * 24 * time.Hour // from one time of a file to the other
)

// record is the content of a pause's file.
type record struct {
	Format   int           `json:"format"`
	Made     time.Time     `json:"made"`
	Until    time.Time     `json:"until,omitzero"`
	Boot     string        `json:"boot,omitempty"`
	Deadline time.Duration `json:"deadline,omitempty"`
	Give     *Give         `json:"give,omitempty"`
	Out      bool          `json:"out,omitempty"`
	Why      string        `json:"why,omitempty"`
	Attempt  string        `json:"attempt,omitempty"`
	Ends     string        `json:"ends,omitempty"`
}

// Encode is the content of the pause's file.
func (p Pause) Encode() ([]byte, error) {
	r := record{Format, p.Made.UTC(), p.Until.UTC(), p.Boot, p.Deadline, p.Give, p.Out, p.Why, p.Attempt, p.Ends}
	if p.Until.IsZero() {
		r.Until = time.Time{}
	}
	if err := r.check(); err != nil {
		return nil, err
	}
	b, err := json.Marshal(r)
	return append(b, '\n'), err
}

// Decode reads the content of a pause's file, which says nothing of whose it is.
func Decode(b []byte) (Pause, error) {
	var r record
	if err := strict(b, &r); err != nil {
		return Pause{}, err
	}
	if err := r.check(); err != nil {
		return Pause{}, err
	}
	return Pause{Made: r.Made, Until: r.Until, Boot: r.Boot, Deadline: r.Deadline, Give: r.Give, Out: r.Out, Why: r.Why, Attempt: r.Attempt, Ends: r.Ends}, nil
}

// strict reads one line of JSON with one object of the members that v has.
func strict(b []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return fmt.Errorf("not understood: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("not understood: more than one object")
	}
	return nil
}

// check reports what no pause says.
func (r *record) check() error {
	switch {
	case r.Format != Format:
		return fmt.Errorf("format %d, this version reads %d", r.Format, Format)
	case r.Made.IsZero():
		return errors.New("does not say when it was made")
	case !r.Until.IsZero() && (r.Until.Sub(r.Made) > farthest || r.Made.Sub(r.Until) > farthest):
		return errors.New("ends in another century")
	case r.Deadline < 0, r.Deadline > 0 && (r.Until.IsZero() || r.Boot == ""):
		return errors.New("has a deadline of no boot, or no time")
	case len(r.Boot) > 64 || !printable(r.Boot), len(r.Why) > maxWhy || !printable(r.Why):
		return errors.New("has words that cannot be shown")
	case r.Give != nil && (r.Give.CPUs < 0 || r.Give.CPUs > maxCPUs || r.Give.Memory < 0 || *r.Give == Give{}):
		return errors.New("gives nothing back, or more than there is")
	case len(r.Attempt) > 64 || !printable(r.Attempt), r.Attempt != "" && (r.Give != nil || !r.Until.IsZero()):
		return errors.New("says of an attempt what is of a machine")
	case r.Ends != "" && r.Ends != EndsAll && r.Ends != EndsHere, r.Ends != "" && (r.Give != nil || r.Out || r.Why != "" || r.Attempt != "" || !r.Until.IsZero()):
		return errors.New("ends pauses and is one")
	case r.Give != nil && r.Out:
		return errors.New("gives a part back and lets jobs leave")
	}
	return nil
}

func printable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}

// ownerOf reads the name of a pause's file: the number of its owner, a dot and 16
// hexadecimal digits.
func ownerOf(name string) (uid int, ok bool) {
	number, draw, _ := strings.Cut(name, ".")
	if len(draw) != 16 || strings.Trim(draw, "0123456789abcdef") != "" {
		return 0, false
	}
	n, err := strconv.ParseUint(number, 10, 32)
	if err != nil || strconv.FormatUint(n, 10) != number || n > 1<<32-2 {
		return 0, false
	}
	return int(n), true
}
