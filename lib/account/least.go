package account

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// leastUID is the least number of an account of a person where
// /etc/login.defs does not say.
const leastUID = 1000

// nobody is the number that the kernel shows for users it cannot name.
const nobody = 65534

// Person says why an account is not one that jobs may run as: they run as
// people, or as an account made for them, never as root or as an account of
// the system, whose files are not theirs to touch.
func (a *Account) Person() error {
	least := leastIn(loginDefs())
	switch {
	case a.UID == 0:
		return fmt.Errorf("%q is root, and jobs never run as root", a.Name)
	case a.Name == "nobody" || a.UID == nobody || a.UID == 1<<16-1:
		return fmt.Errorf("%q is nobody, and jobs run as somebody", a.Name)
	case a.UID < least:
		return fmt.Errorf("%q is an account of the system: its uid, %d, is less than %d", a.Name, a.UID, least)
	}
	return nil
}

func loginDefs() []byte {
	b, err := os.ReadFile("/etc/login.defs")
	if err != nil {
		return nil
	}
	return b
}

// leastIn is what login.defs(5) says of UID_MIN; the usual number if it says
// nothing, or what would let root in.
func leastIn(defs []byte) int {
	for in := bufio.NewScanner(bytes.NewReader(defs)); in.Scan(); {
		f := strings.Fields(in.Text())
		if len(f) >= 2 && f[0] == "UID_MIN" {
			if n, err := strconv.Atoi(f[1]); err == nil && n > 0 {
				return n
			}
		}
	}
	return leastUID
}
