package pause

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"distribute/lib/durable"
)

// OwnersOf is the file of a node's directory that says who may pause it, for what
// runs already when that changes.
func OwnersOf(dir string) string { return filepath.Join(dir, "pause-owners") }

// everybody is the content of a file of owners that names nobody.
const everybody = "all\n"

// PutOwners keeps who may pause a node, durably; nil is everybody.
func PutOwners(name string, uids []int) error {
	text := everybody
	if uids != nil {
		var b strings.Builder
		for _, uid := range uids {
			fmt.Fprintln(&b, uid)
		}
		text = b.String()
	}
	return durable.WriteFile(name, []byte(text), 0o644)
}

// ReadOwners reads who may pause a node; nil is everybody.
func ReadOwners(name string) ([]int, error) {
	b, err := readSmall(name, maxOwners)
	if err != nil {
		return nil, err
	}
	uids, err := DecodeOwners(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return uids, nil
}

// maxOwners is the most bytes that a file of owners may have.
const maxOwners = 1 << 20

// DecodeOwners reads the content of a file of owners: the word all, or the number
// of a user on each line, of whom there is one. Nil is everybody.
func DecodeOwners(b []byte) ([]int, error) {
	if string(b) == everybody {
		return nil, nil
	}
	var uids []int
	for line := range bytes.Lines(b) {
		number, whole := bytes.CutSuffix(line, []byte("\n"))
		uid, err := strconv.ParseUint(string(number), 10, 32)
		if err != nil || !whole {
			return nil, fmt.Errorf("%q is no number of a user", line)
		}
		uids = append(uids, int(uid))
	}
	if uids == nil {
		return nil, errors.New("it names nobody")
	}
	return uids, nil
}
