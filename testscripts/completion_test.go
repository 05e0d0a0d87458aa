package testscripts

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const completion = "../scripts/completion/distribute.bash"

// The completion offers, for each command, the options of its page.
func TestCompletionIsTheManuals(t *testing.T) {
	data, err := os.ReadFile(completion)
	if err != nil {
		t.Fatal(err)
	}
	offered := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^\t(\w+)\) options='(.*)' ;;$`).FindAllStringSubmatch(string(data), -1) {
		offered[m[1]] = m[2]
	}
	registered := strings.Fields(string(data[strings.LastIndex(string(data), "\\\n"):]))[1:]
	names := append(commands(t), "dlocal")
	slices.Sort(names)
	if !slices.Equal(registered, names) {
		t.Errorf("registered for %q, and the commands are %q", registered, names)
	}
	for _, name := range names {
		var want []string
		for option, value := range options(synopsis(t, name)) {
			if option == "h" || option == "V" {
				continue
			}
			if value != "" {
				option += ":"
			}
			want = append(want, "-"+option)
		}
		slices.Sort(want)
		if got := offered[name]; got != strings.Join(want, " ") {
			t.Errorf("%s) options='%s' is offered, the page has '%s'", name, got, strings.Join(want, " "))
		}
		delete(offered, name)
	}
	for name := range offered {
		t.Errorf("options are offered for %s, which is no command", name)
	}
}

func TestCompletionOffers(t *testing.T) {
	need(t, "bash")
	for _, c := range []struct{ line, want string }{
		{"dwait -", "-H -T -q -v -h -V"},
		{"/usr/bin/dwait -T", "-T"},
		{"dwait -T -", ""},
		{"dwait x", ""},
		{"dadm ", "accept drain init lost remove resume"},
		{"dadm re", "remove resume"},
		{"dadm accept ", ""},
		{"dwait -q -v -", "-H -T -q -v -h -V"},
	} {
		script := `source "$1"; shift; COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)); _distribute "$1"; echo "${COMPREPLY[*]}"`
		args := append([]string{"-c", script, "bash", completion}, strings.Split(c.line, " ")...)
		out, err := exec.Command("bash", args...).CombinedOutput()
		if got := strings.TrimSpace(string(out)); err != nil || got != c.want {
			t.Errorf("%q: %q, %v; want %q", c.line, got, err, c.want)
		}
	}
}
