package pack

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"distribute/lib/suite"
)

// lots is a manifest of lines without end.
type lots struct {
	line func(i int) string
	n    int
	rest strings.Reader
}

func (l *lots) Read(p []byte) (int, error) {
	if l.rest.Len() == 0 {
		var b strings.Builder
		for range 1000 {
			b.WriteString(l.line(l.n))
			l.n++
		}
		l.rest.Reset(b.String())
	}
	return l.rest.Read(p)
}

// A manifest of ten million entries, one ten thousand names deep, and one of a
// path without end are given up at their limits, and so is what they may cost.
func TestD92Bombs(t *testing.T) {
	for name, tt := range map[string]struct {
		text io.Reader
		lim  Limits
		most uint64
	}{
		"ten million entries": {&lots{line: func(i int) string { return fileLine(fmt.Sprintf("%08d", i), 0) }}, Limits{Entries: 100_000}, 200 << 20},
		"ten thousand deep":   {strings.NewReader(sealed(dirLine(strings.Repeat("d/", 2000) + "d"))), Limits{}, 1 << 20},
		"deeper and deeper":   {&lots{line: func(i int) string { return dirLine(strings.Repeat("d/", i) + "d") }}, Limits{}, 100 << 20},
		"a path without end":  {io.MultiReader(strings.NewReader(`{"path":"`), &lots{line: func(int) string { return "x" }}), Limits{}, 1 << 20},
		"many long names": {&lots{line: func(i int) string { return linkLine(fmt.Sprintf("%08d", i), strings.Repeat("x", 4000)) }},
			Limits{Names: 10 << 20}, 200 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			var err error
			used := allocated(func() { _, err = DecodeManifest(tt.text, tt.lim) })
			if !errors.Is(err, ErrLimit) {
				t.Errorf("%v", err)
			}
			if used > tt.most {
				t.Errorf("allocated %d MiB", used>>20)
			}
		})
	}
}

// A header that says that an extension of a gigabyte follows is not believed.
func TestD92HugeExtension(t *testing.T) {
	for _, flag := range []byte{'x', 'g', 'L', 'K'} {
		m := Manifest{{Path: "f", Type: File, Size: 1 << 30, Mode: 0o644, Time: minTime, Sum: sumHex(nil)}}
		head := appendHeader(nil, &m[0], m[0].Size)
		head[156] = flag
		sum := 8 * int(' ')
		for i, c := range head[:512] {
			if i < 148 || i >= 156 {
				sum += int(c)
			}
		}
		copy(head[148:156], fmt.Sprintf("%06o\x00 ", sum))
		stream := append(header(0, 13<<3), rawBlock(0, 0, len(head), head...)...)
		for range 8192 {
			stream = append(stream, rawBlock(0, 1, maxBlock, 'x')...)
		}
		var err error
		used := allocated(func() { err = Receive(bytes.NewReader(stream), m, Want{}, new(memory)) })
		if !errors.Is(err, ErrFormat) {
			t.Errorf("%q: %v", flag, err)
		}
		if used > 32<<20 {
			t.Errorf("%q: allocated %d MiB", flag, used>>20)
		}
	}
}

// All hostile archives, received by root in a user namespace of its own, who may
// chown and link where he likes: the tests themselves look that nothing around
// the root of each has changed, and this one that nothing has above them.
func TestD92AsRootOfANamespace(t *testing.T) {
	outer := t.TempDir()
	must(t, os.Mkdir(filepath.Join(outer, "tmp"), 0o777))
	must(t, os.WriteFile(filepath.Join(outer, "precious"), []byte("precious"), 0o600))
	above := func() string { // but for the directory in which the tests have their own
		all := look(t, outer)
		_, after, _ := strings.Cut(all[strings.Index(all, "/tmp "):], "\n")
		return all[:strings.Index(all, "/tmp ")] + after
	}
	was := above()
	cmd := exec.Command(os.Args[0], "-test.v", "-test.run=^(TestD92HostileTar|TestD92DoctoredTar|TestD92HostileManifest|TestD93HostileFrames|TestD90SenderNeverEnds)$")
	cmd.Env = append(os.Environ(), "TMPDIR="+filepath.Join(outer, "tmp"))
	one := func(id int) []syscall.SysProcIDMap {
		return []syscall.SysProcIDMap{{ContainerID: 0, HostID: id, Size: 1}}
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: one(os.Getuid()), GidMappings: one(os.Getgid())}
	out, err := cmd.CombinedOutput()
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EINVAL) {
		suite.Missing(t, fmt.Sprintf("no user namespace can be made: %v", err))
	}
	if err != nil || strings.Count(string(out), "    --- PASS: TestD9") < 60 {
		t.Errorf("in a namespace: %v\n%s", err, out)
	}
	if now := above(); now != was {
		t.Errorf("around it there was\n%s\nand is now\n%s", was, now)
	}
}
