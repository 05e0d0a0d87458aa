package testscripts

import (
	"maps"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// letters are the options that mean the same in every command, each with the
// word that its value is called in a synopsis, or "" for none.
var letters = map[string][]string{
	"H": {"head"}, "b": {"batch"}, "f": {""}, "j": {""}, "t": {""}, "c": {"fields", "capability"}, "n": {""}, "o": {"directory", "dir", "file"},
	"q": {""}, "v": {""}, "r": {"", "rank"}, "h": {""}, "V": {""}, "S": {"spool"}, "D": {"dir", "directory"}, "l": {"address"},
}

// words are the options without a value that are a word and not some letters:
// what nobody should type by habit.
var words = []string{"attach", "init", "insecure", "stdio", "-private"}

// synopsis reads the SYNOPSIS of a page in mdoc: a line of words for each form
// of the command. It knows the macros that a synopsis needs and fails on others.
func synopsis(t *testing.T, name string) []string {
	t.Helper()
	path, text := manual(t, name)
	_, text, ok := strings.Cut(text, "\n.Sh SYNOPSIS\n")
	if !ok {
		t.Fatalf("%s has no SYNOPSIS", path)
	}
	text, _, _ = strings.Cut(text, "\n.Sh ")
	var forms []string
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if words[0] == ".Nm" {
			forms = append(forms, name)
		}
		if rendered := mdocLine(t, path, words); rendered != "" {
			forms[len(forms)-1] += " " + rendered
		}
	}
	for i := range forms {
		forms[i] = even(forms[i])
	}
	return forms
}

// mdocLine renders one line of a synopsis as mandoc does.
func mdocLine(t *testing.T, path string, words []string) string {
	t.Helper()
	var b strings.Builder
	macro, glue, closing := "", true, ""
	put := func(s string) {
		if !glue && s != "," && s != ":" && s != ")" {
			b.WriteByte(' ')
		}
		b.WriteString(s)
		glue = false
	}
	words[0] = strings.TrimPrefix(words[0], ".")
	for i, w := range words {
		switch w {
		case "Nm":
			if i+1 < len(words) {
				t.Fatalf("%s: %q: put what follows .Nm on lines of its own", path, strings.Join(words, " "))
			}
		case "Op":
			put("[")
			glue, closing, macro = true, closing+"]", ""
		case "Oo":
			put("[")
			glue, macro = true, ""
		case "Oc":
			glue = true
			put("]")
			macro = ""
		case "Ns":
			glue = true
		case "Fl", "Ar", "Cm":
			macro = w
			if w == "Fl" && i == len(words)-1 {
				put("-")
			}
		case "|", "...", ",", "Pf", "No":
			if w != "Pf" && w != "No" {
				put(w)
			}
			if w == "|" || w == "," {
				macro = ""
			}
		default:
			if macro == "Fl" {
				w = "-" + w
				macro = ""
			}
			put(w)
		}
	}
	return b.String() + closing
}

var dots = regexp.MustCompile(`\s*\.\.\.`)

// even makes synopses that differ in white space only equal.
func even(s string) string {
	return strings.Join(strings.Fields(dots.ReplaceAllString(s, " ...")), " ")
}

// usageForms is what a command's -h says, in the form of synopsis.
func usageForms(t *testing.T, name string) []string {
	t.Helper()
	var talk strings.Builder
	cmd := exec.Command(name, "-h")
	cmd.Stderr = &talk
	out, err := cmd.Output()
	if err != nil || talk.Len() > 0 {
		t.Fatalf("%s -h: %v, stderr %q", name, err, &talk)
	}
	text, ok := strings.CutPrefix(string(out), "usage: ")
	if !ok {
		t.Fatalf(`%s -h does not begin with "usage: ": %q`, name, out)
	}
	for line := range strings.Lines(string(out)) {
		if len(line) > 80+len("\n") {
			t.Errorf("%s -h: %q does not fit into 80 columns", name, line)
		}
	}
	var forms []string
	for line := range strings.Lines(text) {
		line = even(line)
		if strings.HasPrefix(line, name+" ") || line == name {
			forms = append(forms, line)
		} else if len(forms) > 0 {
			forms[len(forms)-1] += " " + line
		}
	}
	return forms
}

// option finds the options of a synopsis, each with the word after it, if that
// is its value.
var option = regexp.MustCompile(`(?:^|[\s\[|(])-(-?[A-Za-z]+)(?: ([a-z]+))?`)

// options are the options of a synopsis with the names of their values. A group
// of letters is several options; a name of several letters that is one option
// has a value or is one of words.
func options(forms []string) map[string]string {
	all := map[string]string{}
	for _, form := range forms {
		form, _, _ = strings.Cut(form, "-- ")
		for _, m := range option.FindAllStringSubmatch(form, -1) {
			if m[2] != "" || len(m[1]) == 1 || slices.Contains(words, m[1]) {
				all[m[1]] = m[2]
				continue
			}
			for _, letter := range m[1] {
				all[string(letter)] = ""
			}
		}
	}
	return all
}

// The synopsis of the page, what -h prints, and the options that the page
// explains are the same. That the options which are defined are those of the
// usage is checked by each command itself, also when it runs here.
func TestUsageIsTheManuals(t *testing.T) {
	for _, name := range append(commands(t), "dlocal") {
		t.Run(name, func(t *testing.T) {
			fromPage, fromUsage := synopsis(t, name), usageForms(t, name)
			if !slices.Equal(fromPage, fromUsage) {
				t.Errorf("the synopsis of the page is\n\t%s\nand -h says\n\t%s", strings.Join(fromPage, "\n\t"), strings.Join(fromUsage, "\n\t"))
			}
			shown := options(fromUsage)
			for letter, value := range shown {
				if words := letters[letter]; words != nil && !slices.Contains(words, value) {
					t.Errorf("-%s %s: in every command it is -%s %s", letter, value, letter, strings.Join(words, " or "))
				}
			}
			explained := explainedOptions(t, name)
			for _, letter := range slices.Sorted(maps.Keys(shown)) {
				if !explained[letter] && letter != "h" && letter != "V" {
					t.Errorf("the page shows -%s in the synopsis and does not explain it", letter)
				}
			}
			for _, letter := range slices.Sorted(maps.Keys(explained)) {
				if _, ok := shown[letter]; !ok && letter != "h" && letter != "V" {
					t.Errorf("the page explains -%s and does not show it in the synopsis", letter)
				}
			}
		})
	}
}

// explainedOptions are those that have an item in a list of the page.
func explainedOptions(t *testing.T, name string) map[string]bool {
	t.Helper()
	_, text := manual(t, name)
	all := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^\.It (Fl .*)$`).FindAllStringSubmatch(text, -1) {
		for _, f := range regexp.MustCompile(`Fl (-?[A-Za-z]+)`).FindAllStringSubmatch(m[1], -1) {
			all[f[1]] = true
		}
	}
	return all
}

// An unknown option is misuse in every command.
func TestMisuse(t *testing.T) {
	for _, name := range append(commands(t), "dlocal") {
		var talk strings.Builder
		cmd := exec.Command(name, "-Z")
		cmd.Stderr = &talk
		out, err := cmd.Output()
		want := name + `: unknown option "-Z"` + "\nusage: "
		if exitStatus(err) != 64 || len(out) > 0 || !strings.HasPrefix(talk.String(), want) {
			t.Errorf("%s -Z: status %d, stdout %q, stderr %q", name, exitStatus(err), out, &talk)
		}
	}
}
