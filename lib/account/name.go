package account

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// UserName returns what [Name] does, for the eye: it is not known whether the user has
// another name.
func UserName(uid int) string {
	name, _ := Name(uid)
	return name
}

// GroupName is [UserName] for a group.
func GroupName(gid int) string {
	name, _ := etc.name("group", "gid", gid)
	return name
}

// Name returns the name of the user with that number. One whom no file and no directory
// service names is shown as uid and the number, with ErrUnknown. Another error means that
// they could not be asked now: ask again, and do not keep the name. What the environment
// says of names is not believed. It costs a process if /etc/passwd does not have the number.
func Name(uid int) (string, error) { return etc.name("passwd", "uid", uid) }

// A source is where names are looked up: files in a directory, and then getent(1).
type source struct {
	dir    string
	getent string
}

var etc = source{"/etc", "getent"}

// name tries several times, as descriptors or memory may be missing for a moment.
func (s source) name(database, kind string, id int) (name string, err error) {
	for try := range 3 {
		if try > 0 {
			time.Sleep(50 * time.Millisecond)
		}
		if name, err = s.find(database, strconv.Itoa(id)); err == nil {
			return name, nil
		}
		if errors.Is(err, ErrUnknown) || errors.Is(err, context.DeadlineExceeded) {
			break
		}
	}
	return kind + strconv.Itoa(id), err
}

func (s source) find(database, number string) (string, error) {
	b, err := os.ReadFile(filepath.Join(s.dir, database))
	if name := nameIn(b, number); name != "" {
		return name, nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), answerWithin)
	defer cancel()
	out, askErr := output(ctx, s.getent, database, number)
	if name := nameIn(out, number); askErr == nil && name != "" {
		return name, nil
	}
	var exit *exec.ExitError
	switch {
	case err != nil:
		return "", err
	case ctx.Err() != nil:
		return "", fmt.Errorf("%s %s: %w", s.getent, database, ctx.Err())
	case askErr == nil, errors.Is(askErr, exec.ErrNotFound), errors.As(askErr, &exit) && exit.ExitCode() == 2:
		return "", ErrUnknown
	}
	return "", fmt.Errorf("%s %s: %w", s.getent, database, askErr)
}

// nameIn is the name that lines of the form of passwd(5) give a number, "" if
// none does.
func nameIn(lines []byte, number string) string {
	for in := bufio.NewScanner(bytes.NewReader(lines)); in.Scan(); {
		if f := strings.Split(in.Text(), ":"); len(f) > 2 && f[2] == number && checkName(f[0]) == nil {
			return f[0]
		}
	}
	return ""
}
