package testscripts

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// faultRows are the rows that FAULTS.md must have, by letter, from and to.
var faultRows = []struct {
	letter   string
	from, to int
}{
	{"S", 1, 20}, {"J", 21, 34}, {"L", 35, 52}, {"N", 53, 69}, {"P", 70, 79}, {"T", 79, 87}, {"D", 88, 95}, {"X", 96, 102}, {"I", 1, 18},
}

// notMet are the rows that are not met, or not wholly; FAULTS.md says why.
var notMet = []string{}

var (
	rowID    = regexp.MustCompile(`\b([SJLNPTDX][0-9]{2,3}|I[0-9]{1,2})\b`)
	rowLine  = regexp.MustCompile(`^\| ([SJLNPTDXI][0-9]+) \|`)
	rowTests = regexp.MustCompile("`([^`]+)`")
	testFunc = regexp.MustCompile(`(?m)((?:^//.*\n)*)^func ((?:Test|Fuzz)\w+)\(`)
	rowsName = regexp.MustCompile(`^(?:Test|Fuzz)((?:[SJLNPTDXI][0-9]{2,3})+)(?:[A-Z]|$)`)
	oneRow   = regexp.MustCompile(`[A-Z][0-9]+`)
)

// A faultMap is the tests of each row: "package TestName", or "name.txtar".
type faultMap map[string][]string

func (m faultMap) add(row, test string) {
	row = row[:1] + fmt.Sprintf("%02s", row[1:])
	if !slices.Contains(m[row], test) {
		m[row] = append(m[row], test)
	}
}

// readFaults is what FAULTS.md says: the tests of each row, in the order of the
// page, and the rows that say that they are not met.
func readFaults(t *testing.T) (m faultMap, order, unmet []string) {
	t.Helper()
	text, err := os.ReadFile("FAULTS.md")
	if err != nil {
		t.Fatal(err)
	}
	m = faultMap{}
	for l := range strings.Lines(string(text)) {
		id := rowLine.FindStringSubmatch(l)
		if id == nil {
			continue
		}
		cells := strings.Split(strings.TrimSpace(l), " | ")
		last := cells[len(cells)-1]
		order = append(order, id[1])
		for _, test := range rowTests.FindAllStringSubmatch(last, -1) {
			m.add(id[1], test[1])
		}
		if strings.Contains(last, "not met") {
			unmet = append(unmet, id[1])
		}
	}
	return m, order, unmet
}

// TestFaultRows holds that each row is on the page, once and in order, with a
// test or the reason why there is none.
func TestFaultRows(t *testing.T) {
	m, order, unmet := readFaults(t)
	var want []string
	for _, r := range faultRows {
		for n := r.from; n <= r.to; n++ {
			id := r.letter + strconv.Itoa(n)
			if r.letter != "I" {
				id = fmt.Sprintf("%s%02d", r.letter, n)
			}
			want = append(want, id)
		}
	}
	if !slices.Equal(order, want) {
		t.Errorf("FAULTS.md has the rows %v, and should have %v", order, want)
	}
	if !slices.Equal(unmet, notMet) {
		t.Errorf("FAULTS.md says that %v are not met, and the list here %v", unmet, notMet)
	}
	tests, none := map[string]bool{}, 0
	for _, id := range want {
		names := m[id[:1]+fmt.Sprintf("%02s", id[1:])]
		if len(names) == 0 && !slices.Contains(notMet, id) {
			t.Errorf("%s names no test", id)
		}
		if len(names) == 0 {
			none++
		}
		for _, n := range names {
			tests[n] = true
		}
	}
	t.Logf("%d rows, %d tests and scripts, %d rows not met or not wholly, of these %d without any test", len(want), len(tests), len(notMet), none)
}

// TestFaultTests holds that the page and the tests say the same: each test that
// carries a row is named in it, and each that is named is there and carries it.
// Invariants are checked in many places, which need not say so. With
// D_FAULTS=write the tests are written into the page first.
func TestFaultTests(t *testing.T) {
	carried, there := carriedRows(t)
	if os.Getenv("D_FAULTS") == "write" {
		writeFaults(t, carried, there)
	}
	page, _, _ := readFaults(t)
	for _, row := range slices.Sorted(maps.Keys(page)) {
		for _, test := range page[row] {
			switch {
			case !there[test]:
				t.Errorf("%s names %q, which is not there", row, test)
			case row[0] != 'I' && !slices.Contains(carried[row], test):
				t.Errorf("%s names %q, which carries no %s in its name, or in the comment above it or a phase", row, test, row)
			}
		}
	}
	for _, row := range slices.Sorted(maps.Keys(carried)) {
		for _, test := range carried[row] {
			if !slices.Contains(page[row], test) {
				t.Errorf("%s: write `%s` into its line of FAULTS.md", row, test)
			}
		}
	}
}

// writeFaults puts into the lines of FAULTS.md the tests that carry their rows,
// and takes out those that are gone. What else a line says stays.
func writeFaults(t *testing.T, carried faultMap, there map[string]bool) {
	t.Helper()
	text, err := os.ReadFile("FAULTS.md")
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	seen := map[string]bool{}
	for l := range strings.Lines(string(text)) {
		if id := rowLine.FindStringSubmatch(l); id != nil {
			row := id[1][:1] + fmt.Sprintf("%02s", id[1][1:])
			l = faultLine(l, row, carried[row], there)
			seen[row] = true
		}
		out.WriteString(l)
	}
	for _, row := range slices.Sorted(maps.Keys(carried)) {
		if !seen[row] {
			out.WriteString(faultLine("| "+row+" |  |\n", row, carried[row], there))
		}
	}
	if err := os.WriteFile("FAULTS.md", []byte(out.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

// faultLine is a line of the table with the tests that there are.
func faultLine(l, row string, carried []string, there map[string]bool) string {
	at := strings.LastIndex(strings.TrimSuffix(l, " |\n"), " | ") + len(" | ")
	cell := strings.TrimSuffix(l[at:], " |\n")
	var tests []string
	for _, m := range rowTests.FindAllStringSubmatch(cell, -1) {
		if there[m[1]] && (row[0] == 'I' || slices.Contains(carried, m[1])) {
			tests = append(tests, "`"+m[1]+"`")
		}
	}
	for _, c := range carried {
		if !slices.Contains(tests, "`"+c+"`") {
			tests = append(tests, "`"+c+"`")
		}
	}
	words := strings.TrimSpace(rowTests.ReplaceAllString(cell, ""))
	if words == "not met: no test yet" && len(tests) > 0 {
		words = ""
	}
	return l[:at] + strings.TrimSpace(strings.Join(tests, " ")+" "+words) + " |\n"
}

// carriedRows is the rows that tests carry, and which tests there are.
func carriedRows(t *testing.T) (carried faultMap, there map[string]bool) {
	t.Helper()
	carried, there = faultMap{}, map[string]bool{}
	err := filepath.WalkDir("..", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") && d.Name() != ".."):
			return filepath.SkipDir
		case strings.HasSuffix(name, "_test.go"):
			return goRows(name, carried, there)
		case strings.HasSuffix(name, ".txtar"):
			return scriptRows(name, carried, there)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return carried, there
}

func goRows(name string, carried faultMap, there map[string]bool) error {
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	for _, f := range testFunc.FindAllStringSubmatch(string(text), -1) {
		test := strings.TrimPrefix(filepath.ToSlash(filepath.Dir(name)), "../") + " " + f[2]
		there[test] = true
		if m := rowsName.FindStringSubmatch(f[2]); m != nil {
			for _, row := range oneRow.FindAllString(m[1], -1) {
				carried.add(row, test)
			}
		}
		for _, row := range rowID.FindAllString(f[1], -1) {
			carried.add(row, test)
		}
	}
	return nil
}

func scriptRows(name string, carried faultMap, there map[string]bool) error {
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	test, _ := filepath.Rel(filepath.Join("..", "testscripts"), name)
	there[test] = true
	script, _, _ := strings.Cut(string(text), "\n-- ")
	for l := range strings.Lines(script) {
		if strings.HasPrefix(l, "#") {
			for _, row := range rowID.FindAllString(l, -1) {
				carried.add(row, test)
			}
		}
	}
	return nil
}
