package dial

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Afresh begins a session: of the streams over ssh that are dialled from now on the
// first makes a connection, and the others are channels of that. The connection
// of the session before may be one on which nothing moves any more.
func (t Terms) Afresh() {
	if t.Control != "" {
		os.Remove(t.Control)
	}
}

// control are the options with which streams of a daemon share a connection,
// which is that of the first of them and ends with it. The socket is named from
// ssh's current directory, [Terms.Control]'s, however long the path of that is.
func (t Terms) control() []string {
	if t.Control == "" {
		return nil
	}
	return []string{"-o", "ControlMaster=auto", "-o", "ControlPersist=no", "-o", "ControlPath=" + here(t.Control)}
}

// here is a file of ssh's current directory, by a path that is absolute and short.
func here(path string) string { return "/proc/self/cwd/" + filepath.Base(path) }

// ownHostsOption is the option before the name of a daemon's own file of hosts.
const ownHostsOption = "UserKnownHostsFile="

// hostsFile is that file, if these options of [OwnSSH] name one.
func hostsFile(options []string) string {
	for _, o := range options {
		if file, ok := strings.CutPrefix(o, ownHostsOption); ok {
			return strings.ReplaceAll(file, "%%", "%")
		}
	}
	return ""
}

// OwnSSH are options of ssh(1) for a daemon, which nobody can answer a question:
// with the key and the hosts of its directory, if they are there. A key that is
// another's, or that others can read, is [ErrBadKey].
func OwnSSH(dir string) ([]string, error) {
	dir, err := filepath.Abs(dir) // ssh runs in another directory
	if err != nil {
		return nil, err
	}
	options := []string{"-o", "BatchMode=yes"}
	add := func(path string, set ...string) {
		for _, s := range set {
			options = append(options, "-o", strings.ReplaceAll(s, "FILE", `"`+strings.ReplaceAll(path, "%", "%%")+`"`))
		}
	}
	key, hosts := filepath.Join(dir, "ssh_key"), filepath.Join(dir, "known_hosts")
	info, err := os.Stat(key)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	case exposed(key, info) != "":
		return nil, badKey(key, exposed(key, info))
	default:
		add(key, "IdentityFile=FILE", "IdentitiesOnly=yes")
	}
	if _, err := os.Stat(hosts); err == nil {
		add(hosts, ownHostsOption+"FILE", "GlobalKnownHostsFile=none", "StrictHostKeyChecking=yes", "UpdateHostKeys=no")
	}
	return options, nil
}
