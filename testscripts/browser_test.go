package testscripts

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"distribute/lib/suite"
)

// records are those of 10,000 jobs on twelve nodes, of which some fail, are lost and paused.
func records() []byte {
	var b bytes.Buffer
	begin := time.Date(2026, 11, 27, 8, 0, 0, 0, time.UTC)
	for i := range 10_000 {
		at := begin.Add(time.Duration(i/48) * time.Minute)
		row := func(try int, state, rest string) {
			fmt.Fprintf(&b, `{"id":"maria/grid/n=%d","state":%q,"attempt":%d,"node":"ws%d","started":%q,"ended":%q,"runtime":50,"cpus":2,"param":{"n":"%d"}%s}`+"\n",
				i, state, try, i%12, at.Format(time.RFC3339), at.Add(50*time.Second).Format(time.RFC3339), 1<<(i%12), rest)
			at = at.Add(time.Minute)
		}
		switch {
		case i%50 == 1:
			row(1, "queued", `,"reason":"lost: its node is gone"`)
			row(2, "done", "")
		case i%50 == 2:
			row(1, "failed", fmt.Sprintf(`,"exit":1,"said":"<b>diverged</b> at step %d"`, i))
		case i%50 == 3:
			row(1, "done", `,"paused":20`)
		default:
			row(1, "done", "")
		}
	}
	return b.Bytes()
}

// TestReportInBrowser looks at a report in a real browser: in both schemes, on a phone and on
// a desk. What it shows is not wider than the screen, and nothing of it is refused or run.
func TestReportInBrowser(t *testing.T) {
	suite.Long(t, "")
	need(t, "chromium-headless-shell")
	need(t, "python3")
	report := exec.Command("../scripts/dreport", "-t", "ten <thousand>")
	report.Stdin = bytes.NewReader(records())
	page, err := report.Output()
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/page", func(w http.ResponseWriter, _ *http.Request) { w.Write(page) })
	mux.HandleFunc("/look", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, `<body><iframe id=f src=/page width=%s height=800></iframe><pre id=said>nothing yet</pre><script>
			f.onload = () => {
				const d = f.contentDocument, style = f.contentWindow.getComputedStyle(d.body)
				said.textContent = [d.title, d.documentElement.scrollWidth, style.backgroundColor,
					d.querySelectorAll("rect").length, d.querySelectorAll("circle").length, d.querySelectorAll("td b, code b").length].join(" | ")
			}</script>`, r.URL.Query().Get("width"))
	})
	s := httptest.NewServer(mux)
	defer s.Close()
	said := regexp.MustCompile(`<pre id="said">(.*)</pre>`)
	for _, c := range []struct{ width, scheme, want string }{
		{"390", "0", "ten <thousand> | 390 | rgb(22, 23, 27) | 10400 | 2000 | 0"},
		{"390", "1", "ten <thousand> | 390 | rgb(255, 255, 255) | 10400 | 2000 | 0"},
		{"1200", "1", "ten <thousand> | 1200 | rgb(255, 255, 255) | 10400 | 2000 | 0"},
	} {
		cmd := exec.Command("chromium-headless-shell", "--no-sandbox", "--dump-dom", "--virtual-time-budget=20000", "--blink-settings=preferredColorScheme="+c.scheme,
			"--user-data-dir="+t.TempDir(), "--hide-scrollbars", s.URL+"/look?width="+c.width)
		var talk bytes.Buffer
		cmd.Stderr = &talk
		dom, err := cmd.Output()
		m := said.FindSubmatch(dom)
		if err != nil || m == nil {
			t.Fatalf("%v: %s\n%s", err, &talk, dom)
		}
		if got := strings.NewReplacer("&lt;", "<", "&gt;", ">").Replace(string(m[1])); got != c.want {
			t.Errorf("%s pixels, scheme %s: %s; want %s", c.width, c.scheme, got, c.want)
		}
		if strings.Contains(talk.String(), "CONSOLE") {
			t.Errorf("the browser objects: %s", &talk)
		}
	}
	if out := os.Getenv("OUT"); out != "" { // to be looked at
		os.WriteFile(filepath.Join(out, "report.html"), page, 0o644)
	}
}
