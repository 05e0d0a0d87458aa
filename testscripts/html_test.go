package testscripts

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	hrefs = regexp.MustCompile(`href="([^"]*)"`)
	marks = regexp.MustCompile(` id="([^"]*)"`)
)

// Each manual is there as HTML and in the index, and what links to one of ours leads
// somewhere.
func TestHTML(t *testing.T) {
	need(t, "mandoc")
	out := t.TempDir()
	cmd := exec.Command("../scripts/html")
	cmd.Env = append(os.Environ(), "OUT="+out)
	if said, err := cmd.CombinedOutput(); err != nil || len(said) > 0 {
		t.Fatalf("%v: %s", err, said)
	}
	texts, ids := map[string]string{}, map[string]map[string]bool{}
	files, err := filepath.Glob(filepath.Join(out, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Base(f)
		texts[name], ids[name] = string(data), map[string]bool{}
		for _, m := range marks.FindAllStringSubmatch(string(data), -1) {
			ids[name][m[1]] = true
		}
	}
	for _, page := range pages(t) {
		name := filepath.Base(page) + ".html"
		if !strings.Contains(texts[name], "</html>") || !strings.Contains(texts["index.html"], `href="`+name+`"`) {
			t.Errorf("%s is not there, or not in the index", name)
		}
	}
	for name, text := range texts {
		for _, m := range hrefs.FindAllStringSubmatch(text, -1) {
			to, mark, _ := strings.Cut(m[1], "#")
			if to == "" {
				to = name
			}
			if _, ours := texts[to]; !ours && !strings.HasPrefix(to, "https://") {
				t.Errorf("%s: %s leads nowhere", name, m[1])
			}
			if ours := ids[to]; ours != nil && mark != "" && !ours[mark] {
				t.Errorf("%s: %s leads to no place in it", name, m[1])
			}
			if strings.HasPrefix(to, "https://") && texts[filepath.Base(to)+".html"] != "" {
				t.Errorf("%s: %s is ours", name, m[1])
			}
		}
	}
}
