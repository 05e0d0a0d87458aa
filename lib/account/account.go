// Package account says who a user's name is on this machine: its numbers, its
// groups and its home, also where a directory service keeps them, which a
// program without the C library does not see by itself. getent(1) and id(1) are
// asked, and where they are not installed, the files in /etc.
package account

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// An Account is a user of this machine.
type Account struct {
	Name   string
	UID    int
	GID    int
	Groups []int // all of them, GID too
	Home   string
	Shell  string
}

// ErrUnknown says that this machine has no account, or no group, of a name.
var ErrUnknown = errors.New("there is no such account")

// answerWithin is how long a directory service is waited for.
const answerWithin = 10 * time.Second

// Lookup is the account of exactly that name; ErrUnknown if there is none. A
// number is not a name. It costs two processes.
func Lookup(ctx context.Context, name string) (*Account, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	line, err := entry(ctx, "passwd", name)
	if err != nil {
		return nil, err
	}
	a, err := parsePasswd(line, name)
	if err != nil {
		return nil, err
	}
	a.Groups, err = groups(ctx, a)
	return a, err
}

// GroupID is the number of the group of that name; ErrUnknown if there is none.
func GroupID(ctx context.Context, name string) (int, error) {
	if err := checkName(name); err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	line, err := entry(ctx, "group", name)
	if err != nil {
		return 0, err
	}
	f := strings.Split(line, ":")
	if len(f) < 3 || f[0] != name {
		return 0, ErrUnknown
	}
	return number(f[2])
}

// checkName refuses what is no user's name, or would be an option of the
// programs that are asked.
func checkName(name string) error {
	if name == "" || len(name) > 256 || name[0] == '-' || !utf8.ValidString(name) ||
		strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r == ':' || r == '/' || r >= 0x7f && r < 0xa0 }) {
		return fmt.Errorf("%w: %.100q is no user's name", ErrUnknown, name)
	}
	return nil
}

// entry is the line of a name in a database of getent(1).
func entry(ctx context.Context, database, name string) (string, error) {
	out, err := output(ctx, "getent", database, name)
	var exit *exec.ExitError
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return inFile("/etc/"+database, name)
	case errors.As(err, &exit) && exit.ExitCode() == 2:
		return "", ErrUnknown
	case err != nil:
		return "", fmt.Errorf("getent %s: %w", database, err)
	}
	line, _, _ := strings.Cut(string(out), "\n")
	return line, nil
}

// output is what a program prints, whose environment is nobody's.
func output(ctx context.Context, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C"}
	return cmd.Output()
}

// inFile is the line of a name in a file of the form of passwd(5).
func inFile(file, name string) (string, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	for in := bufio.NewScanner(bytes.NewReader(b)); in.Scan(); {
		if strings.HasPrefix(in.Text(), name+":") {
			return in.Text(), nil
		}
	}
	return "", ErrUnknown
}

// parsePasswd reads a line of passwd(5), which is to be that of name: getent
// also takes a number, and a directory service may take another spelling.
func parsePasswd(line, name string) (*Account, error) {
	f := strings.Split(line, ":")
	if len(f) != 7 || f[0] != name {
		return nil, ErrUnknown
	}
	uid, err := number(f[2])
	gid, err2 := number(f[3])
	if err = errors.Join(err, err2); err != nil {
		return nil, fmt.Errorf("the account of %.100q: %w", name, err)
	}
	return &Account{Name: name, UID: uid, GID: gid, Home: f[5], Shell: f[6]}, nil
}

// number reads the number of a user or a group; that of nobody at all, which
// system calls take for "no change", is none.
func number(s string) (int, error) {
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil || n == 1<<32-1 {
		return 0, fmt.Errorf("%.20q is not the number of a user or a group", s)
	}
	return int(n), nil
}

// groups is all groups of an account.
func groups(ctx context.Context, a *Account) ([]int, error) {
	out, err := output(ctx, "id", "-G", "--", a.Name)
	if err != nil { // that of busybox knows no --, and may not be there
		u := &user.User{Uid: strconv.Itoa(a.UID), Gid: strconv.Itoa(a.GID), Username: a.Name}
		ids, err2 := u.GroupIds()
		if err2 != nil {
			return nil, fmt.Errorf("the groups of %.100q: %w", a.Name, errors.Join(err, err2))
		}
		out = []byte(strings.Join(ids, " "))
	}
	var all []int
	for _, f := range strings.Fields(string(out)) {
		gid, err := number(f)
		if err != nil {
			return nil, fmt.Errorf("the groups of %.100q: %w", a.Name, err)
		}
		all = append(all, gid)
	}
	return all, nil
}
