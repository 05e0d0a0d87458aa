package testscripts

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// A step is a display of distribute-lab(7): commands that somebody types
// somewhere, or, with print, what those before it have printed.
type step struct {
	line  int
	where string // "the head", "each desk", "ws1" ...
	user  string
	print bool
	text  string
}

var typedAt = regexp.MustCompile(`^(?:On|At) (the head|each desk|the laptop|ws[0-9]), as (root|maria)\b`)

// steps reads a page: displays with one indent are typed where the nearest line
// before them says that begins with where, displays with two were printed.
func steps(t *testing.T, page string) []step {
	t.Helper()
	data, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var all []step
	var at []string
	in := false
	for i, l := range strings.Split(string(data), "\n") {
		switch m := typedAt.FindStringSubmatch(l); {
		case l == ".Ed":
			in = false
		case in:
			s := &all[len(all)-1]
			s.text += strings.ReplaceAll(strings.TrimPrefix(l, `\&`), `\e`, `\`) + "\n"
		case l == ".Bd -literal -offset indent":
			if at == nil {
				t.Fatalf("%s:%d: nothing says where these commands are typed", page, i+1)
			}
			all, at, in = append(all, step{line: i + 1, where: at[1], user: at[2]}), nil, true
		case l == ".Bd -literal -offset indent-two":
			all, in = append(all, step{line: i + 1, print: true}), true
		case strings.HasPrefix(l, ".Bd"):
			t.Fatalf("%s:%d: a display of neither kind", page, i+1)
		case m != nil:
			at = m
		}
	}
	return all
}

// A reader does what the page says, with the fingerprints that were printed in the
// place of the page's.
type reader struct {
	*site
	desks []string
	said  string            // by the last step, on the first of its machines
	keys  map[string]string // by the page's
}

// placeholders are what a reader replaces by what was printed: fingerprints, of
// which the beginning is enough, and the public key that was printed last.
var placeholders = regexp.MustCompile(`SHA256:[A-Za-z0-9+/]+|AAAA\.\.\.`)

// standsFor is what a reader puts in the place of one.
func standsFor(placeholder string) string {
	if placeholder == "AAAA..." {
		return `(AAAA[A-Za-z0-9+/]+)`
	}
	return `(SHA256:[A-Za-z0-9+/]{43})`
}

// typed is a text of the page as it has to be typed, with the spaces that it has
// where man(1) shows it.
func (r *reader) typed(s step) string {
	shown := regexp.MustCompile(`(?m)^`).ReplaceAllString(strings.TrimSuffix(s.text, "\n"), "           ")
	return placeholders.ReplaceAllStringFunc(shown, func(short string) string {
		for page, own := range r.keys {
			switch {
			case page == short:
				return own
			case strings.HasPrefix(page, short):
				return own[:len(short)]
			}
		}
		r.t.Fatalf("line %d: nobody has printed %s", s.line, short)
		return ""
	})
}

// hosts are the machines of a step.
func (r *reader) at(s step) []string {
	switch s.where {
	case "the head":
		return []string{"lab"}
	case "the laptop":
		return []string{"laptop"}
	case "each desk":
		return r.desks
	}
	return []string{s.where}
}

// do does a step, on all its machines at the same time.
func (r *reader) do(s step, before string) {
	r.t.Helper()
	if s.print {
		r.compare(s)
		return
	}
	at := r.at(s)
	script, outs, errs := before+r.typed(s), make([]string, len(at)), make([]error, len(at))
	var all sync.WaitGroup
	for i, host := range at {
		all.Go(func() { outs[i], errs[i] = r.try(host, s.user, script) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		r.t.Fatalf("line %d: %v", s.line, err)
	}
	r.said = outs[0]
}

// compare holds what was printed against the page, where ... is anything, and
// learns the fingerprints.
func (r *reader) compare(s step) {
	r.t.Helper()
	lines := strings.Split(r.said, "\n")
	for want := range strings.Lines(s.text) {
		want = strings.TrimSuffix(want, "\n")
		names := placeholders.FindAllString(want, -1)
		expr := regexp.QuoteMeta(want)
		for _, name := range names {
			expr = strings.Replace(expr, regexp.QuoteMeta(name), standsFor(name), 1)
		}
		re := regexp.MustCompile("^" + strings.ReplaceAll(expr, regexp.QuoteMeta("..."), ".*") + "$")
		i := slices.IndexFunc(lines, re.MatchString)
		if i < 0 {
			r.t.Fatalf("line %d: %q was not printed, but\n%s", s.line, want, r.said)
		}
		for k, own := range re.FindStringSubmatch(lines[i])[1:] {
			if old, ok := r.keys[names[k]]; ok && old != own && names[k] != "AAAA..." {
				r.t.Fatalf("line %d: %s is %s, and was %s", s.line, names[k], own, old)
			}
			r.keys[names[k]] = own
		}
	}
}

// source puts on a machine, as maria, what make install needs of the source, where all
// is built already.
func (r *reader) source(host string) (before string) {
	r.t.Helper()
	top, bin := os.Getenv("TOP"), filepath.Join(r.dir, "bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		r.t.Fatal(err)
	}
	for _, name := range commands(r.t) {
		if err := os.Symlink(filepath.Join(os.Getenv("BIN"), name), filepath.Join(bin, name)); err != nil {
			r.t.Fatal(err)
		}
	}
	to := r.own(host, "home/maria/distribute")
	err := errors.Join(os.Mkdir(to, 0o755), os.Chmod(r.dir, 0o755),
		run("cp", "-r", filepath.Join(top, "Makefile"), filepath.Join(top, "man"), filepath.Join(top, "scripts"), to))
	if err != nil {
		r.t.Fatal(err)
	}
	r.site.do(host, "root", "chown -R maria /home/maria/distribute")
	return fmt.Sprintf("cd ~/distribute; export MAKEFLAGS='-- GO=true BIN=%s' GZIP=-1\n", bin)
}

// TestLabPage does on a head, three desks and a laptop what distribute-lab(7) says,
// each command as it stands there. What the page leaves to the reader is done here:
// a user maria who can ssh to the head, the copying of the programs, and fingerprints
// as they were printed. Systemctl is a stand-in, mainUnit.
func TestLabPage(t *testing.T) {
	desks := []string{"ws1", "ws2", "ws3"}
	s := newSite(t, append([]string{"lab", "laptop"}, desks...)...)
	s.people("lab", []string{"laptop"}, "maria", "ben")
	r := &reader{site: s, desks: desks, keys: map[string]string{}}
	inSource := r.source("laptop")
	s.do("lab", "root", "groupadd -U maria cfd")
	s.do("ws2", "root", "/usr/sbin/sshd")
	for i, step := range steps(t, filepath.Join("..", "man", "distribute-lab.7")) {
		before := ""
		if i == 0 {
			before = inSource
		}
		t.Logf("line %d, %s", step.line, step.where)
		r.do(step, before)
		if i == 0 {
			for _, host := range append([]string{"lab"}, desks...) {
				if err := run("cp", s.own("laptop", "home/maria/distribute.tar.gz"), s.own(host, "root")); err != nil {
					t.Fatal(err)
				}
			}
		}
	}

	// What the page has made in the end.
	s.until("lab", "root", "dquery -N -c node,state", func(out string) bool {
		return out == "ws1\tidle\nws2\tidle\nws3\tidle\n"
	})
	ids := s.do("laptop", "maria", "seq 9 | dsubmit -b last -R cpus=1 -- sh -c 'sleep 1; echo {}' | dwait -q; dquery last -c state,node")
	for _, desk := range desks {
		if strings.Count(ids, "done") != 9 || !strings.Contains(ids, desk) {
			t.Errorf("not all is done, or nothing on %s:\n%s", desk, ids)
		}
	}
	s.do("lab", "root", "dfsck -s -S /srv/spool")
	r.trouble()
}

// TestLabPackage does the same from a Debian package, as far as the first batch: dpkg takes
// the place of the lines that the page names.
func TestLabPackage(t *testing.T) {
	need(t, "dpkg-deb")
	desks := []string{"ws1", "ws2", "ws3"}
	s := newSite(t, append([]string{"lab", "laptop"}, desks...)...)
	s.people("lab", []string{"laptop"}, "maria")
	file := deb(t, s.dir, "0.1.0")
	r := &reader{site: s, desks: desks, keys: map[string]string{}}
	for host := range s.hosts {
		if err := run("cp", file, s.own(host, "root")); err != nil {
			t.Fatal(err)
		}
	}
	s.do("laptop", "root", "dpkg -i ~/distribute_*.deb")
	replaced := regexp.MustCompile(`(?m)^((tar .*\n)?systemd-sysusers .*\n(systemd-tmpfiles .*\n)?install -d|tar|systemctl daemon-reload).*\n`)
	for _, step := range steps(t, filepath.Join("..", "man", "distribute-lab.7"))[1:] {
		step.text = replaced.ReplaceAllStringFunc(step.text, func(line string) string {
			if step.user == "root" && strings.HasPrefix(line, "tar") {
				return "dpkg -i ~/distribute_*.deb\n"
			}
			return ""
		})
		t.Logf("line %d, %s:\n%s", step.line, step.where, step.text)
		r.do(step, "")
		if step.print && step.text == "400\n" {
			return
		}
	}
	t.Error("the page has no first batch")
}

// trouble makes what the page says that may be printed instead be printed. Says is
// in the page, too, but for what ... stands for there.
func (r *reader) trouble() {
	text, err := os.ReadFile(filepath.Join("..", "man", "distribute-lab.7"))
	if err != nil {
		r.t.Fatal(err)
	}
	key := strings.TrimSpace(r.site.do("lab", "root", "dadm init /srv/spool 2>&1 | grep -o 'SHA256:.*'"))
	wrong := "SHA256:" + strings.Repeat("A", 43)
	nobody, err := r.try("lab", "root", "dadm accept ws1 SHA256:AAAAA")
	if err == nil || !strings.Contains(err.Error(), "no node waits to be accepted") {
		r.t.Errorf("of nobody who waits: %q, %v", nobody, err)
	}
	again := strings.Fields(r.site.do("ws1", "root", "systemctl stop distribute-node; rm /var/lib/distribute/node/key; dnoded -init lab "+key))
	for _, c := range []struct{ host, user, script, says string }{
		{"ws1", "root", "dnoded -D /root/x -init lab " + wrong, "tls://lab shows the key ..., and not ...: it is another head, ..."},
		{"ws1", "root", "dnoded -D /root/x -init lab:1 " + key + "; false", "cannot be reached: ..."},
		{"ws1", "root", "dnoded -init lab:1 " + key, "says that head is ..., and not ...: change it there ..."},
		{"lab", "root", "dadm accept ws1 SHA256:AAAAA", "no node ws1 waits whose key begins with ..."},
		{"lab", "root", "dadm accept " + strings.Join(again, " "), "ws1 is known by ... (dadm remove ws1 first)"},
		{"lab", "ben", "dquery -N", "the head at ... cannot be reached: it is for its owner and its group, ..."},
		{"laptop", "ben", "DHEAD=ssh://lab ~maria/.local/bin/dquery -N", "the spool \"/srv/spool\" there is not for this user (permission denied)"},
		{"laptop", "maria", "dquery -H ssh://nowhere.invalid -N", "no such host"},
		{"laptop", "maria", "dsubmit -b queued -R nosuch -- true; dquery -t queued; false", "nodes has"},
	} {
		_, err := r.try(c.host, c.user, c.script)
		r.t.Logf("%v", err)
		want := strings.ReplaceAll(regexp.QuoteMeta(c.says), regexp.QuoteMeta("..."), ".*")
		if err == nil || !regexp.MustCompile(want).MatchString(err.Error()) {
			r.t.Errorf("%s is not said", c.says)
		}
		if !strings.Contains(strings.ReplaceAll(string(text), `\(dq`, `"`), c.says) {
			r.t.Errorf("the page does not know %q", c.says)
		}
	}
}
