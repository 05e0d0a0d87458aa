package matrix

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"

	"distribute/lib/job"
	"distribute/lib/unit"
)

// credentials are the content of a file of credentials. With a token there need be
// neither a name nor a password.
type credentials struct {
	User     string `json:"matrix_username"`
	Password string `json:"matrix_password"`
	URL      string `json:"homeserver_url"`
	ID       string `json:"matrix_id"`
	Token    string `json:"access_token"`

	Users []string `json:"matrix_users"` // who is invited unasked: @user:server, or @*:server for all of a server
}

const maxFile = 64 << 10 // bytes of a file of credentials

// ErrCredentials is that a file of credentials cannot be used as it is, or that the
// server refuses what it says.
var ErrCredentials = errors.New("bad credentials")

// read reads the file of credentials, unless every user of this machine may read it, and
// takes the token that it has.
func (c *Client) read() error {
	info, err := os.Stat(c.path)
	if err != nil {
		return err
	}
	switch {
	case !info.Mode().IsRegular():
		err = errors.New("it is not a file")
	case info.Mode().Perm()&0o007 != 0:
		err = errors.New("every user here may read or write it (chmod o= it, and change the password)")
	case info.Size() > maxFile:
		err = errors.New("it is longer than 64 KiB")
	default:
		b, failed := os.ReadFile(c.path)
		if failed != nil {
			return failed
		}
		c.file, err = parse(b)
	}
	if err != nil {
		return fmt.Errorf("%s: %w: %w", c.path, ErrCredentials, err)
	}
	c.token = c.file.Token
	return nil
}

// parse reads the content of a file of credentials. Its errors show nothing that may be
// secret.
func parse(b []byte) (c credentials, err error) {
	if json.Unmarshal(b, &c) != nil {
		return c, errors.New(`it is no object of JSON as {"matrix_username": "…", "matrix_password": "…", "homeserver_url": "…", "matrix_id": "…"}`)
	}
	u, err := url.Parse(c.URL)
	switch {
	case c.Token == "" && (c.User == "" || c.Password == ""):
		return c, errors.New("matrix_username and matrix_password are wanted, or access_token")
	case !plain(c.Token):
		return c, errors.New("access_token has characters that no token has")
	case !job.IsMatrixUser(c.ID):
		return c, fmt.Errorf(`matrix_id is %s, and has to be as "@user:server"`, unit.Quote(c.ID))
	case slices.ContainsFunc(c.Users, func(s string) bool { return !job.IsMatrixUser(s) }):
		return c, errors.New(`matrix_users has to be a list of "@user:server", and of "@*:server" for all users of a server`)
	case err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return c, errors.New(`homeserver_url has to be as "https://matrix.example.org"`)
	case u.Scheme != "https" && (u.Scheme != "http" || !isHere(u.Hostname())):
		return c, errors.New("homeserver_url has to begin with https://: the password goes there")
	}
	c.URL = strings.TrimRight(c.URL, "/")
	return c, nil
}

// invites says whether the user is one of those who are invited unasked.
func (c *credentials) invites(user string) bool {
	_, server, _ := strings.Cut(user, ":")
	return slices.Contains(c.Users, user) || slices.Contains(c.Users, "@*:"+server)
}

// isHere says that a host is this machine: what goes there need not be encrypted.
func isHere(host string) bool {
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback() || host == "localhost"
}

// plain says whether s is of ASCII without blanks, as what goes into a header.
func plain(s string) bool {
	return len(s) <= 8<<10 && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r >= 0x7f })
}
