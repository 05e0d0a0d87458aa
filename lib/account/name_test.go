package account

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// A user without a name is told from one whose name cannot be looked up now, which is not
// to be taken for the former.
func TestName(t *testing.T) {
	for _, c := range []struct {
		what, passwd, getent string
		name                 string
		unknown, passing     bool
	}{
		{"in the file", "ana:x:5:5::/:/bin/sh\n", "exit 2", "ana", false, false},
		{"of a directory service", "root:x:0:0::/:/bin/sh\n", "echo ana:x:$2:5::/:/bin/sh", "ana", false, false},
		{"there is no file", "", "echo ana:x:$2:5::/:/bin/sh", "ana", false, false},
		{"of nobody", "root:x:0:0::/:/bin/sh\n", "exit 2", "uid5", true, false},
		{"no getent", "root:x:0:0::/:/bin/sh\n", "", "uid5", true, false},
		{"the file cannot be read", "/", "exit 2", "uid5", false, true},
		{"getent fails", "root:x:0:0::/:/bin/sh\n", "exit 1", "uid5", false, true},
		{"getent is killed", "root:x:0:0::/:/bin/sh\n", "kill -9 $$", "uid5", false, true},
		{"passes at once", "root:x:0:0::/:/bin/sh\n", "test -e ${0%getent}once || { : >${0%getent}once; exit 1; }; echo ana:x:$2:5::/:/bin/sh", "ana", false, false},
	} {
		s := source{dir: t.TempDir()}
		s.getent = filepath.Join(s.dir, "getent")
		must := func(err error) {
			if err != nil {
				t.Fatal(err)
			}
		}
		switch c.passwd {
		case "":
		case "/":
			must(os.Mkdir(filepath.Join(s.dir, "passwd"), 0o700))
		default:
			must(os.WriteFile(filepath.Join(s.dir, "passwd"), []byte(c.passwd), 0o600))
		}
		if c.getent == "" {
			s.getent = "no-such-getent"
		} else {
			must(os.WriteFile(s.getent, []byte("#!/bin/sh\n"+c.getent+"\n"), 0o700))
		}
		name, err := s.name("passwd", "uid", 5)
		if name != c.name || errors.Is(err, ErrUnknown) != c.unknown || (err != nil && !errors.Is(err, ErrUnknown)) != c.passing {
			t.Errorf("%s: %q, %v", c.what, name, err)
		}
	}
}
