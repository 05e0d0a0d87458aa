package account

import (
	"errors"
	"os"
	"strings"
	"testing"
)

func TestParsePasswd(t *testing.T) {
	for _, c := range []struct {
		line, name string
		uid        int // -1: none
	}{
		{"maria:x:1001:100:Maria:/home/maria:/bin/bash", "maria", 1001},
		{"maria:x:1001:100::/home/maria:", "maria", 1001},
		{"root:x:0:0:root:/root:/bin/bash", "0", -1}, // asked for by number
		{"Maria:x:1001:100::/:/bin/sh", "maria", -1},
		{"maria:x:1001:100:/home/maria:/bin/sh", "maria", -1},
		{"maria:x:-1:100::/:/bin/sh", "maria", -1},
		{"maria:x:4294967295:100::/:/bin/sh", "maria", -1},
		{"maria:x:1001:4294967295::/:/bin/sh", "maria", -1},
		{"maria:x:4294967296:100::/:/bin/sh", "maria", -1},
		{"maria:x::100::/:/bin/sh", "maria", -1},
		{"", "", -1},
	} {
		a, err := parsePasswd(c.line, c.name)
		if (err != nil) != (c.uid < 0) || err == nil && (a.UID != c.uid || a.GID != 100 || a.Name != c.name) {
			t.Errorf("%q as %q: %+v, %v", c.line, c.name, a, err)
		}
	}
}

func TestNamesThatAreNone(t *testing.T) {
	for _, name := range []string{"", "-s", "--service=files", "a b", "a:b", "../x", "a\nb", "a\x00", "\xff", strings.Repeat("x", 300)} {
		if _, err := Lookup(t.Context(), name); !errors.Is(err, ErrUnknown) {
			t.Errorf("%q: %v", name, err)
		}
	}
	if _, err := Lookup(t.Context(), "no-such-user-here"); !errors.Is(err, ErrUnknown) {
		t.Error(err)
	}
	if _, err := Lookup(t.Context(), "0"); !errors.Is(err, ErrUnknown) {
		t.Errorf("root by its number: %v", err)
	}
	if _, err := GroupID(t.Context(), "no-such-group-here"); !errors.Is(err, ErrUnknown) {
		t.Error(err)
	}
}

func TestLookupRoot(t *testing.T) {
	a, err := Lookup(t.Context(), "root")
	if err != nil || a.UID != 0 || a.GID != 0 || len(a.Groups) == 0 || a.Home == "" {
		t.Fatalf("%+v, %v", a, err)
	}
	if err := a.Person(); err == nil {
		t.Error("root is taken for a person")
	}
	if gid, err := GroupID(t.Context(), "root"); err != nil || gid != 0 {
		t.Error(gid, err)
	}
}

func TestNoPeople(t *testing.T) {
	least := leastIn(loginDefs())
	for _, a := range []Account{{Name: "toor", UID: 0}, {Name: "nobody", UID: least}, {Name: "nfsnobody", UID: 65534}, {Name: "x", UID: 65535}, {Name: "www-data", UID: least - 1}} {
		if a.Person() == nil {
			t.Errorf("%+v is taken for a person", a)
		}
	}
	if err := (&Account{Name: "maria", UID: least}).Person(); err != nil {
		t.Error(err)
	}
}

func TestLeastIn(t *testing.T) {
	for defs, want := range map[string]int{"": 1000, "UID_MIN\t500\n": 500, "#UID_MIN 5\n  UID_MIN   2000 # people\n": 2000,
		"UID_MIN 0\n": 1000, "UID_MIN x\n": 1000, "SYS_UID_MIN 100\n": 1000} {
		if got := leastIn([]byte(defs)); got != want {
			t.Errorf("%q: %d, not %d", defs, got, want)
		}
	}
}

func TestRule(t *testing.T) {
	for _, c := range []struct {
		rule *Rule
		who  string
		want string
	}{
		{&Rule{Users: []string{"maria"}}, "ben", "not among the users"},
		{&Rule{Users: []string{"maria"}}, "", "does not say who"},
		{&Rule{Users: []string{"root"}}, "root", "is root"},
		{&Rule{Users: []string{"@root"}}, "root", "is root"},
		{&Rule{One: "root"}, "maria", "is root"},
		{&Rule{One: "no-such-user-here"}, "maria", `run_as in its node.yaml says "no-such-user-here": there is no such account`},
		{&Rule{Users: []string{"no-such-user-here"}}, "no-such-user-here", "no such account"},
		{&Rule{Users: []string{"@no-such-group-here"}}, "no-such-user-here", "no such account"},
		{&Rule{Users: []string{"-x"}}, "-x", "is no user's name"},
	} {
		for range 2 { // the second time it is remembered
			if a, err := c.rule.As(t.Context(), c.who); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, %q: %+v, %v", c.rule, c.who, a, err)
			}
		}
	}
}

// A user and group that a file has are found without getent too.
func TestInFile(t *testing.T) {
	name := t.TempDir() + "/passwd"
	if err := os.WriteFile(name, []byte("mariana:x:7:7::/:\nmaria:x:1001:100::/home/maria:/bin/sh\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if line, err := inFile(name, "maria"); err != nil || !strings.HasPrefix(line, "maria:x:1001") {
		t.Error(line, err)
	}
	if _, err := inFile(name, "mari"); !errors.Is(err, ErrUnknown) {
		t.Error(err)
	}
}

// What the environment says of one's own name is not believed.
func TestUserName(t *testing.T) {
	t.Setenv("USER", "somebody")
	const none = 1<<31 - 7
	if got := UserName(none); got != "uid2147483641" {
		t.Errorf("a number without a name is %q", got)
	}
	if got := UserName(0); got != "root" {
		t.Errorf("0 is %q", got)
	}
	if got := GroupName(none); got != "gid2147483641" {
		t.Errorf("a group without a name is %q", got)
	}
	lines := []byte("ana:y\nben:x:17:7\ncarl:x:7:0:Carl:/:/bin/sh\n-x:x:8:\n")
	for number, want := range map[string]string{"7": "carl", "17": "ben", "8": "", "": ""} {
		if got := nameIn(lines, number); got != want {
			t.Errorf("%q is %q, want %q", number, got, want)
		}
	}
}
