package testscripts

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The completions know every command.
func TestCompletionIsForAll(t *testing.T) {
	want := append(commands(t), "dlocal", "dplot", "dreport")
	slices.Sort(want)
	for shell, list := range map[string]string{"bash": `\\\n\t(.*)\n$`, "zsh": `^#compdef (.*)\n`, "fish": `\nfor command in (.*)\n`} {
		data, err := os.ReadFile("../scripts/completion/distribute." + shell)
		if err != nil {
			t.Fatal(err)
		}
		if m := regexp.MustCompile(list).FindSubmatch(data); m == nil || !slices.Equal(strings.Fields(string(m[1])), want) {
			t.Errorf("%s: %q, and the commands are %q", shell, m, want)
		}
	}
}

// What each shell offers for a line, as words.
var completers = map[string]string{
	"bash": `source ../scripts/completion/distribute.bash
		read -ra COMP_WORDS <<<"$1"
		[[ $1 != *" " ]] || COMP_WORDS+=("")
		COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
		_distribute "${COMP_WORDS[0]}"
		echo "${COMPREPLY[*]}"`,
	// compadd takes of what it is given what begins as the word does.
	"zsh": `compadd() { shift; print -r -- ${(M)@:#$words[CURRENT]*} }
		_files() { }
		words=(${=1})
		[[ $1 != *" " ]] || words+=("")
		CURRENT=$#words
		source ../scripts/completion/distribute.zsh`,
	"fish": `source ../scripts/completion/distribute.fish
		complete -C $argv[1] | string replace -rf '^([^\t]*).*' '$1' | string match -rv '/|\.'`,
}

// The options are those that the command itself prints.
func TestCompletionOffers(t *testing.T) {
	for shell, script := range completers {
		t.Run(shell, func(t *testing.T) {
			need(t, shell)
			for _, c := range []struct{ line, want string }{
				{"dwait -", "-H -T -V -h -q -v"},
				{"dwait -T -", ""},
				{"dwait -q -v -", "-H -T -V -h -q -v"},
				{"dnoded -i", "-init -insecure"},
				{"dlocal -", "-V -d -h -s"},
				{"dsubmit --", "--private --secret"},
				{"dsubmit --secret -", ""},
				{"d2slurm -x -", "--secret -A -C -H -M -N -U -V -b -h -k -n -o -q -r -s -u -v -x"},
				{"dadm ", "accept drain init lost remove resume"},
				{"dadm re", "remove resume"},
			} {
				args := []string{"-c", script, c.line}
				switch shell {
				case "bash":
					args = []string{"-c", script, shell, c.line}
				case "zsh":
					args = []string{"-fc", script, shell, c.line}
				case "fish":
					args = append([]string{"--no-config"}, args...)
				}
				out, err := exec.Command(shell, args...).CombinedOutput()
				got := strings.Fields(string(out))
				slices.Sort(got)
				if offered := strings.Join(got, " "); err != nil && shell != "fish" || offered != c.want {
					t.Errorf("%q: %q, %v; want %q", c.line, offered, err, c.want)
				}
			}
		})
	}
}
