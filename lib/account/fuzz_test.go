package account

import "testing"

// FuzzPasswd reads what a directory service may answer: what is taken is the
// account of the name that was asked for, with numbers that are somebody's, and
// what is no person's is refused.
func FuzzPasswd(f *testing.F) {
	f.Fuzz(func(t *testing.T, line, name string) {
		a, err := parsePasswd(line, name)
		if err != nil {
			return
		}
		if a.Name != name || a.UID < 0 || a.GID < 0 || a.UID >= 1<<32-1 || a.GID >= 1<<32-1 {
			t.Errorf("%q as %q: %+v", line, name, a)
		}
		if a.Person() == nil && (a.UID == 0 || a.UID == nobody) {
			t.Errorf("%+v is taken for a person", a)
		}
	})
}
