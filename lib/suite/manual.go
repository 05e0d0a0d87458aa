package suite

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// Column is the words of the first column of a display of a manual: the one that comes
// after the line with intro. Lines of another indent than that many blanks are left out.
func Column(t testing.TB, page, intro string, indent int) (words []string) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(text), intro)
	_, rest, ok2 := strings.Cut(rest, ".Bd ")
	display, _, ok3 := strings.Cut(rest, "\n.Ed")
	if !ok || !ok2 || !ok3 {
		t.Fatalf("%s has no display after %q", page, intro)
	}
	_, display, _ = strings.Cut(display, "\n")
	for l := range strings.Lines(display) {
		row := strings.TrimLeft(l, " ")
		if len(l)-len(row) == indent {
			first, _, _ := strings.Cut(strings.TrimSpace(row), "  ")
			words = append(words, strings.Split(first, ", ")...)
		}
	}
	return words
}

// Members are the names of the JSON members of a struct.
func Members(v any) []string { return members(reflect.TypeOf(v)) }

func members(typ reflect.Type) (names []string) {
	for i := range typ.NumField() {
		f := typ.Field(i)
		if f.Anonymous {
			names = append(names, members(f.Type)...)
			continue
		}
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" {
			names = append(names, name)
		}
	}
	return names
}

// SameWords compares what a manual names with what there is.
func SameWords(t testing.TB, what string, said, are []string) {
	t.Helper()
	said, are = slices.Sorted(slices.Values(said)), slices.Sorted(slices.Values(are))
	if !slices.Equal(said, are) {
		t.Errorf("%s: the manual has\n%q, and there are\n%q", what, said, are)
	}
}
