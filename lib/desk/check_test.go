package desk

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"distribute/lib/check"
	"distribute/lib/job"
	"distribute/lib/pack"
	"distribute/lib/proc"
)

// checkDesk is what Check tells of a directory that no dnoded has.
func checkDesk(t *testing.T, dir string, mend bool, held ...string) string {
	t.Helper()
	var b strings.Builder
	r := &check.Run{Dir: dir, Sums: true, Mend: mend, Tell: func(f *check.Finding) error {
		b.WriteString(f.Text() + "\n")
		return nil
	}}
	alive := func(dir string) (bool, error) { return len(held) > 0 && filepath.Base(dir) == held[0], nil }
	if err := Check(t.Context(), r, "b1", alive); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// fullDesk is a directory with an attempt that is over, one that was given, one
// that was started, a build and an input, in boot b1.
func fullDesk(t *testing.T) (dir string, over, given, started *Attempt, in job.Input) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "node")
	d := open(t, dir, "b1")
	as, errs := d.Begin([]Note{note("a"), note("b"), note("c")})
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	over, given, started = as[0], as[1], as[2]
	m := pack.Manifest{{Path: "x", Type: pack.Link, Link: "y"}}
	err := errors.Join(over.SetResult(&job.Result{Manifest: m.Sum(), Entries: 1}, m, true), started.SetStarted(&Started{Kind: job.Command}))
	spec := []byte(`{"kind":"command","resources":{}}`)
	if _, err2 := setBuild(d, "lab/b", "", sumOf(spec), spec); errors.Join(err, err2) != nil {
		t.Fatal(err, err2)
	}
	in = cache(t, d, []byte("an input"))
	cache(t, d, make([]byte, syncedFrom)) // and no Keep
	part := d.path("cache", in.Sum[:2], partPrefix+in.Sum[:63]+"0")
	if err := os.WriteFile(part, []byte("some"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	return dir, over, given, started, in
}

func TestCheckWhole(t *testing.T) {
	dir, _, _, started, _ := fullDesk(t)
	for _, name := range []string{"output", "output.1", "output.12"} {
		if err := os.WriteFile(filepath.Join(dir, "attempts", string(started.Token), name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got := checkDesk(t, dir, false, string(started.Token)); got != "" {
		t.Errorf("told\n%s", got)
	}
	want := "left\tattempts/" + string(started.Token) + "\tan attempt whose supervisor died\t"
	if got := checkDesk(t, dir, false); !strings.HasPrefix(got, want) {
		t.Errorf("told\n%s", got)
	}
}

// What editors leave beside the node's file, and ssh-keygen beside known_hosts, is in nobody's way.
func TestBackupsInTheDirectory(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"node.yaml", "node.yaml~", "node.yaml.bak", "#node.yaml#", ".node.yaml.swp", "known_hosts", "known_hosts.old"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	d, err := Open(dir, "b1")
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if got := checkDesk(t, dir, false); got != "" {
		t.Errorf("told\n%s", got)
	}
}

// Each thing that is wrong is found, and mending deletes nothing.
func TestCheckFindsAndMends(t *testing.T) {
	dir, over, given, started, in := fullDesk(t)
	cached := "cache/" + in.Sum[:2] + "/" + in.Sum
	zeros := sumOf(make([]byte, syncedFrom))
	fresh := "cache/" + zeros[:2] + "/" + freshPrefix + zeros
	builds, err := os.ReadDir(filepath.Join(dir, "builds"))
	if err != nil {
		t.Fatal(err)
	}
	build := "builds/" + builds[0].Name()
	at := func(a *Attempt, file string) string { return "attempts/" + string(a.Token) + "/" + file }
	write := func(text string) func(string) error {
		return func(name string) error {
			os.Remove(name)
			return os.WriteFile(name, []byte(text), 0o600)
		}
	}
	add := func(text string) func(string) error {
		return func(name string) error {
			f, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND, 0)
			if err != nil {
				return err
			}
			_, err = f.WriteString(text)
			return errors.Join(err, f.Close())
		}
	}
	for _, c := range []struct {
		what, file string
		harm       func(name string) error
		want       string // behind the path
		aside      bool   // it is moved aside when mended
	}{
		{"no note", at(given, proc.RecordFile), os.Remove, "^left\tattempts/..*\ta start that was not completed\t", false},
		{"a torn note", at(given, proc.RecordFile), write(`{"given":{`), "^left\t.*a start that was not completed", false},
		{"a damaged note", at(given, proc.RecordFile), write("{}\n"), "^damaged\t.*attempt.jsonl\tits first line does not say what was given", false},
		{"a damaged start", at(started, proc.RecordFile), add(`{"limit":` + "\n"), "^damaged\t.*attempt.jsonl\tline 3 is not what was written", false},
		{"the last line is torn", at(started, proc.RecordFile), add(`{"ended":{"exit"`), "^damaged\t.*attempt.jsonl\tline 3 is not what was written", false},
		{"another manifest", at(over, proc.RecordFile), add(`{"result":{"manifest":"` + strings.Repeat("0", 64) + `"},"list":[]}` + "\n"), "^damaged\t.*attempt.jsonl\tits manifest is not the one that the result names", false},
		{"no manifest", at(over, proc.RecordFile), add(`{"result":{"manifest":"` + strings.Repeat("0", 64) + `"}}` + "\n"), "^damaged\t.*manifest.jsonl\tit is missing", false},
		{"a damaged manifest", at(over, proc.RecordFile), add(`{"result":{"manifest":"` + strings.Repeat("0", 64) + `"},"list":[1]}` + "\n"), "^damaged\t.*attempt.jsonl\tit has no manifest", false},
		{"a stranger in an attempt", at(over, "notes"), write("mine"), "^strange\tattempts/.*/notes\t.*\tmove it to found/attempts/", true},
		{"an output of no rank", at(started, "output.01"), write("mine"), "^strange\tattempts/.*/output.01\t.*\tmove it to found/attempts/", true},
		{"a stranger", "thesis.tex", write("mine"), "^strange\tthesis.tex\t", true},
		{"a stranger among attempts", "attempts/mine", write("mine"), "^strange\tattempts/mine\tit is not the directory of an attempt", true},
		{"an open mode", "node.json", func(name string) error { return os.Chmod(name, 0o666) }, "^strange\tnode.json\tits mode is 0666, more than 0600\tset its mode to 0600", false},
		{"an open directory", ".", func(name string) error { return os.Chmod(name, 0o777) }, "^strange\t.\tits mode is 0777, more than 0711\tset its mode to 0711", false},
		{"a key that was cut", "ssh_key", write("-----BEGIN"), "^damaged\tssh_key\tit is not a key: .*\tnothing: put it back from a copy", false},
		{"a damaged build", build + "/attempt.jsonl", write("{}\n"), "^damaged\tbuilds/.*/attempt.jsonl\tits first line does not say what is built", false},
		{"another build", build + "/attempt.jsonl", write(`{"build":{"batch":"lab/c","sum":"","spec":{}}}` + "\n"), "^damaged\tbuilds/.*/attempt.jsonl\tit is that of another build", false},
		{"D89 rot", cached, write("an inbut"), "^damaged\tcache/.*\tits content has another sum than its name: it has rotted\tmove it to found/cache/", true},
		{"D89 rot of what has just come", fresh, write("an inbut"), "^damaged\tcache/.*\tits content has another sum than its name: it has rotted\tmove it to found/cache/", true},
		{"an input on its way", "cache/" + in.Sum[:2] + "/.new-1", write("an in"), "^left\tcache/.*/.new-1\t", false},
		{"a removal", "trash/7", func(name string) error { return os.Mkdir(name, 0o700) }, "^left\ttrash/7\ta removal that was cut short", false},
	} {
		t.Run(c.what, func(t *testing.T) {
			mine := filepath.Join(t.TempDir(), "node")
			if out, err := exec.Command("cp", "-a", dir, mine).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			file := filepath.Join(mine, c.file)
			if err := c.harm(file); err != nil {
				t.Fatal(err)
			}
			harmed, _ := os.ReadFile(file)
			for _, mend := range []bool{false, true} {
				if got := checkDesk(t, mine, mend, string(started.Token)); !regexp.MustCompile(c.want).MatchString(got) || strings.Count(got, "\n") != 1 {
					t.Errorf("mend %v: told\n%swant %s", mend, got, c.want)
				}
			}
			if c.aside {
				file = filepath.Join(mine, check.Found, c.file)
			}
			if now, _ := os.ReadFile(file); !bytes.Equal(now, harmed) {
				t.Errorf("%s has %q now", file, now)
			}
			if got := checkDesk(t, mine, false, string(started.Token)); (c.aside || strings.Contains(c.want, "set its mode")) != (got == "") {
				t.Errorf("after mending: told\n%s", got)
			}
		})
	}
}

// After a power cut, what was not synced may hold anything. dnoded does not go by
// it in another boot, and it is not damage.
func TestCheckAfterAPowerCut(t *testing.T) {
	dir, over, _, started, in := fullDesk(t)
	for _, name := range []string{over.Dir + "/" + proc.RecordFile, started.Dir + "/" + proc.RecordFile, filepath.Join(dir, "cache", in.Sum[:2], in.Sum)} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		first := bytes.IndexByte(text, '\n') + 1 // which is synced
		os.Remove(name)
		if err := os.WriteFile(name, append(text[:first:first], make([]byte, 30)...), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for boot, kind := range map[string]check.Kind{"b1": check.Damaged, "b2": check.Left} {
		n := 0
		r := &check.Run{Dir: dir, Sums: true, Tell: func(f *check.Finding) error {
			if n++; f.Kind != kind && f.Kind != check.Left {
				t.Errorf("in boot %s: %s", boot, f.Text())
			}
			return nil
		}}
		if err := Check(t.Context(), r, boot, func(string) (bool, error) { return false, nil }); err != nil || n < 3 {
			t.Errorf("in boot %s: %d found, %v", boot, n, err)
		}
	}
}

func TestCheckBesideADaemon(t *testing.T) {
	dir, _, _, started, _ := fullDesk(t)
	d := open(t, dir, "b1")
	r := &check.Run{Dir: dir, Mend: true}
	alive := func(dir string) (bool, error) { return false, nil }
	if err := Check(t.Context(), r, "b1", alive); !errors.Is(err, ErrInUse) {
		t.Errorf("mending: %v", err)
	}
	// What looks left over is in work.
	r = &check.Run{Dir: dir, Tell: func(f *check.Finding) error {
		t.Errorf("told %s of %s", f.Text(), started.Token)
		return nil
	}}
	if err := Check(t.Context(), r, "b1", alive); err != nil || r.Attempts != 3 || r.Builds != 1 {
		t.Errorf("%v, %+v", err, r.Tally)
	}
	d.Close()
}

func TestCheckRefuses(t *testing.T) {
	alive := func(dir string) (bool, error) { return false, nil }
	for _, text := range []string{"", "{}", `{"format":2,"state":"00112233445566778899aabbccddeeff"}`, `{"format":1,"state":"x"}`} {
		dir := t.TempDir()
		if text != "" {
			if err := os.WriteFile(filepath.Join(dir, "node.json"), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := Check(t.Context(), &check.Run{Dir: dir}, "b1", alive); !errors.Is(err, ErrNoDesk) {
			t.Errorf("with %q: %v", text, err)
		}
	}
}
