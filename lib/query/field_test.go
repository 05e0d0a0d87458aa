package query

import (
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"distribute/lib/job"
)

// A number is written as its shortest decimal in thousandths, whole or not.
func TestNumbersShown(t *testing.T) {
	fields, err := Pick(JobFields(), "runtime")
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []float64{1, 12, 12.5, 0.001, 1.0 / 3, 1e-7, -1e-7, -3, -2.25, 1e9, 123456789.123, 1e15, 3e18, 1e20, -1e20} {
		want := strconv.FormatFloat(math.Round(x*1000)/1000, 'f', -1, 64)
		if got := fields[0].Text(&job.Row{Runtime: x}); got != want {
			t.Errorf("%v is shown as %s, want %s", x, got, want)
		}
	}
}

// Of a job that a signal ended that stands in the place of its exit, unless somebody asks for that.
func TestExitOfSignal(t *testing.T) {
	fields, err := Pick(UsualJobFields(), "exit")
	if err != nil {
		t.Fatal(err)
	}
	three := 3
	for want, r := range map[string]*job.Row{"SIGKILL": {Signal: "SIGKILL"}, "3": {Exit: &three}, "-": {}} {
		if got := fields[0].Text(r); got != want {
			t.Errorf("it is shown as %s, want %s", got, want)
		}
	}
	if fields, err = Pick(JobFields(), "exit"); err != nil || fields[0].Text(&job.Row{Signal: "SIGKILL"}) != "-" {
		t.Error("a signal is an exit", err)
	}
}

// dquery(1) has the fields, those of jobs in their order.
func TestManualFields(t *testing.T) {
	text, err := os.ReadFile("../../man/dquery.1")
	if err != nil {
		t.Fatal(err)
	}
	section := func(title string) string {
		_, s, ok := strings.Cut(string(text), "\n.Ss "+title+"\n")
		s, _, _ = strings.Cut(s, "\n.S")
		if !ok {
			t.Fatalf("there is no section %q", title)
		}
		return s
	}
	var told []string
	for row := range strings.Lines(section("Fields of jobs")) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(row), ".It Cm "); ok && !strings.HasPrefix(name, "param.") {
			told = append(told, strings.Split(name, " , ")...)
		}
	}
	if fields := names(JobFields()); !slices.Equal(told, fields) {
		t.Errorf("the fields of jobs in the manual are\n%q, and are\n%q", told, fields)
	}
	for title, fields := range map[string][]string{"Fields of batches": names(BatchFields()), "Causes": names(CauseFields()), "Fields of nodes": names(NodeFields())} {
		words := strings.Fields(section(title))
		for _, f := range fields {
			if !slices.Contains(words, f) {
				t.Errorf("%s: %s is not in the manual", title, f)
			}
		}
	}
}

func names[R any](fields []Field[R]) (all []string) {
	for _, f := range fields {
		all = append(all, f.Name)
	}
	return all
}
