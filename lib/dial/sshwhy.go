package dial

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"
)

// A failure is what an ssh that failed says of it, by which it is known, and what
// that means and what to do, in which SSH is the command that gets there, HOST
// the host, KNOWN the host as known_hosts names it, and HOSTS the file of a
// daemon's own that has the keys of hosts.
type failure struct{ said, means string }

// Failures: the first that fits counts, of ownHosts before the others where a
// daemon has such a file.
var (
	ownHosts = []failure{
		{"IDENTIFICATION HAS CHANGED", "its host key is another than that in HOSTS: if it was not installed anew, somebody is in between; if it was, its new key belongs there"},
		{"Host key verification failed", "its host key is not in HOSTS: append the line that ssh-keyscan prints for it, compared with what ssh-keygen -lf says there"},
	}
	failures = []failure{
		{"IDENTIFICATION HAS CHANGED", "its host key is another than the known one: if it was not installed anew, somebody is in between; if it was, ssh-keygen -R KNOWN takes the old key out"},
		{"Host key verification failed", "its host key is not known yet: accept it once by SSH true"},
		{"Could not resolve hostname", "no such host"},
		{"Too many authentication failures", "it was offered too many keys before the right one: name that by IdentityFile and IdentitiesOnly in ~/.ssh/config"},
		{"UNPROTECTED PRIVATE KEY FILE", "the key that this side has can be read by others, and so is not used: give the file mode 0600, or make a new key if others were there"},
		{"Permission denied (", "it does not let this user in by these keys: SSH has to work, see ssh-copy-id(1), or say whom by ssh://USER@HOST"},
		{"Connection refused", "no sshd listens there"},
		{"Connection timed out", "it does not answer; is it up, and is there a network?"},
		{"No route to host", "it does not answer; is it up, and is there a network?"},
		{"Network is unreachable", "there is no way to it; is there a network?"},
		{"Operation timed out", "it does not answer; is it up, and is there a network?"},
		{"not responding", "the network is away, or that machine sleeps"},
		{"kex_exchange_identification", "what listens there closed the connection before it spoke; is it an sshd, and has it too many connections?"},
	}
)

// noCommand is the line in which a shell says that there is no such command.
var noCommand = regexp.MustCompile(`(?im)^.*(command not found|unknown command).*$`)

// why is the error of an ssh that ended with a status and said that, after the
// other side had spoken or not. Hosts is the daemon's own file of hosts, if any.
func (a sshAddr) why(status int, said string, spoken bool, hosts string) error {
	last, known := lastLine(said), failures
	if hosts != "" {
		known = slices.Concat(ownHosts, failures)
	}
	for _, f := range known {
		if !strings.Contains(said, f.said) {
			continue
		}
		means := strings.NewReplacer("SSH", a.String(), "HOSTS", hosts, "HOST", a.host, "KNOWN", a.known()).Replace(f.means)
		err := fmt.Errorf("%s (%q)", means, last)
		if strings.HasPrefix(f.said, "Permission denied") {
			return denied{err}
		}
		return err
	}
	missing := noCommand.FindString(said)
	switch {
	case status == 127, missing != "":
		return fmt.Errorf("it is not installed there, or not in the PATH of commands that come over ssh, which %q shows; a link in /usr/local/bin mends that (%q)",
			a.String()+" 'echo $PATH'", cmp.Or(strings.TrimSpace(missing), last))
	case last == "" && spoken: // what shares a connection does not say more
		return errors.New("the connection was lost; is there a network, and is that machine up?")
	case last == "":
		return fmt.Errorf("ssh ended with status %d; see what %q says", status, a.String()+" true")
	}
	return fmt.Errorf("ssh ended with status %d: %q", status, last)
}

// denied is an [fs.ErrPermission] in other words.
type denied struct{ error }

func (denied) Is(err error) bool { return err == fs.ErrPermission }

// lastLine is the last line of text that has one.
func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return strings.TrimSpace(text[strings.LastIndexByte(text, '\n')+1:])
}
