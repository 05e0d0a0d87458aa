package account

import (
	"bufio"
	"bytes"
	"context"
	"os"
	"strconv"
	"strings"
)

// UserName is the name of the user with that number, for the eye. One whom no
// file and no directory service names is shown as uid and the number. What the
// environment says of names is not believed. It costs a process if /etc/passwd
// does not have the number.
func UserName(uid int) string { return nameOf("passwd", "uid", uid) }

// GroupName is [UserName] for a group.
func GroupName(gid int) string { return nameOf("group", "gid", gid) }

func nameOf(database, kind string, id int) string {
	number := strconv.Itoa(id)
	if b, err := os.ReadFile("/etc/" + database); err == nil {
		if name := nameIn(b, number); name != "" {
			return name
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), answerWithin)
	defer cancel()
	if out, err := output(ctx, "getent", database, number); err == nil {
		if name := nameIn(out, number); name != "" {
			return name
		}
	}
	return kind + number
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
