package account

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// UIDs is the numbers of these users, and with a leading @ of all who are in a group
// by what getent(1) tells of it and of all users. Some directory services do not
// list all users; then those are missing of whom only the account says that they are
// in the group. Unknown is why some cannot be found. It costs a process for each.
func UIDs(ctx context.Context, names []string) (uids []int, unknown error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	for _, name := range names {
		group, is := strings.CutPrefix(name, "@")
		var ids []int
		var err error
		if is {
			ids, err = members(ctx, group)
		} else {
			ids, err = one(ctx, name)
		}
		if err != nil {
			unknown = errors.Join(unknown, fmt.Errorf("%q: %w", name, err))
		}
		uids = append(uids, ids...)
	}
	slices.Sort(uids)
	return slices.Compact(uids), unknown
}

// one is the number of one user.
func one(ctx context.Context, name string) ([]int, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	line, err := entry(ctx, "passwd", name)
	if err != nil {
		return nil, err
	}
	a, err := parsePasswd(line, name)
	if err != nil {
		return nil, err
	}
	return []int{a.UID}, nil
}

// members is the numbers of the users who are in a group.
func members(ctx context.Context, group string) (uids []int, err error) {
	if err := checkName(group); err != nil {
		return nil, err
	}
	line, err := entry(ctx, "group", group)
	if err != nil {
		return nil, err
	}
	f := strings.Split(line, ":")
	if len(f) < 4 || f[0] != group {
		return nil, ErrUnknown
	}
	gid, err := number(f[2])
	if err != nil {
		return nil, err
	}
	for _, name := range strings.FieldsFunc(f[3], func(r rune) bool { return r == ',' || r == ' ' }) {
		ids, e := one(ctx, name)
		if e != nil && !errors.Is(e, ErrUnknown) { // a member that is gone is nobody
			err = errors.Join(err, e)
		}
		uids = append(uids, ids...)
	}
	all, e := output(ctx, "getent", "passwd")
	if e != nil {
		return uids, err
	}
	for l := range strings.Lines(string(all)) {
		name, _, _ := strings.Cut(l, ":")
		if a, e := parsePasswd(strings.TrimSuffix(l, "\n"), name); e == nil && a.GID == gid {
			uids = append(uids, a.UID)
		}
	}
	return uids, err
}
