package query

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"

	"distribute/lib/job"
)

// FuzzShown shows rows as a head may send them: whatever they hold, a terminal
// gets nothing from them but text.
func FuzzShown(f *testing.F) {
	f.Add([]byte(`{"id":"lab/b/j","state":"failed","reason":"no \u001b[2J","node":"ws\u0007","attempt":2,"exit":3}`))
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, text []byte) {
		var r job.Row
		if json.Unmarshal(text, &r) != nil {
			return
		}
		var b bytes.Buffer
		look := Look{Width: 80, Now: func() time.Time { return now }, W: &b}
		for _, p := range []Printer[job.Row]{NewJobTable(look, true), NewJobTable(look, false), NewFieldTable(look, JobFields()),
			&Records[job.Row]{W: &b, Fields: JobFields()}, &Objects[job.Row]{W: &b, Fields: JobFields()}} {
			if err := p.Print(&r); err != nil {
				t.Fatal(err)
			}
			if err := p.Flush(); err != nil {
				t.Fatal(err)
			}
		}
		if i := strings.IndexFunc(b.String(), func(c rune) bool { return unicode.IsControl(c) && c != '\n' && c != '\t' }); i >= 0 {
			t.Fatalf("%q is shown as %q", text, b.String())
		}
	})
}

// What changes the direction of writing, or is a control above DEL, is an
// escape in JSON too, and is read as itself again.
func TestHiddenInJSON(t *testing.T) {
	for _, s := range []string{"\u009b2J", "\u202egnorw", "\x7f", "ü", "\U000e0001", "a\u2028b", "\U0001f600"} {
		b := appendJSON([]byte("x"), s)
		var again string
		if err := json.Unmarshal(b[1:], &again); err != nil || again != s || bytes.ContainsFunc(b, func(r rune) bool { return r >= 0x7f && !strconv.IsPrint(r) }) || b[0] != 'x' {
			t.Errorf("%q is written as %s: %v", s, b, err)
		}
	}
}
