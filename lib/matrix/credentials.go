// Package matrix sends messages to people by a Matrix server, over its
// client-server API. What a server says is not trusted: it is bounded, checked and
// quoted. A message with the same transaction id is one message, however often it
// is sent by the same device.
package matrix

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strings"

	"distribute/lib/job"
	"distribute/lib/unit"
)

// Credentials are who sends, and how that is proven: what a file of credentials
// has. With a token there need be neither a name nor a password.
type Credentials struct {
	User     string `json:"matrix_username"`
	Password string `json:"matrix_password"`
	URL      string `json:"homeserver_url"`
	ID       string `json:"matrix_id"`
	Token    string `json:"access_token"`
}

// maxFile is how many bytes a file of credentials has at most.
const maxFile = 64 << 10

// ErrCredentials is that a file of credentials cannot be used as it is.
var ErrCredentials = errors.New("no credentials")

// Read reads a file of credentials. One that every user of this machine may read
// is refused.
func Read(path string) (*Credentials, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s: %w: it is not a file", path, ErrCredentials)
	case info.Mode().Perm()&0o007 != 0:
		return nil, fmt.Errorf("%s: %w: every user here may read or write it (chmod o= it, and change the password)", path, ErrCredentials)
	}
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, err
	}
	c, err := Parse(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", path, ErrCredentials, err)
	}
	return c, nil
}

// Parse reads the content of a file of credentials. Its errors do not show any of
// it that may be secret.
func Parse(b []byte) (*Credentials, error) {
	if len(b) > maxFile {
		return nil, errors.New("it is longer than 64 KiB")
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	var c Credentials
	if err := d.Decode(&c); err != nil {
		text := "it is no object of JSON with texts"
		if name, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
			text = "it has " + name + ", which means nothing here"
		}
		return nil, errors.New(text + `: {"matrix_username": …, "matrix_password": …, "homeserver_url": …, "matrix_id": …}`)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("something follows the object")
	}
	switch {
	case c.Token == "" && (c.User == "" || c.Password == ""):
		return nil, errors.New("matrix_username and matrix_password are wanted, or access_token")
	case !plain(c.Token):
		return nil, errors.New("access_token has characters that no token has")
	case c.ID != "" && !job.IsMatrixUser(c.ID):
		return nil, fmt.Errorf(`matrix_id is %s, and has to be as "@user:server"`, unit.Quote(c.ID))
	}
	return &c, c.checkURL()
}

// checkURL allows what is not encrypted on this machine alone.
func (c *Credentials) checkURL() error {
	u, err := url.Parse(c.URL)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return errors.New(`homeserver_url has to be as "https://matrix.example.org"`)
	}
	ip := net.ParseIP(u.Hostname())
	here := ip != nil && ip.IsLoopback() || u.Hostname() == "localhost"
	if u.Scheme != "https" && !(u.Scheme == "http" && here) {
		return errors.New("homeserver_url has to begin with https://: the password goes there")
	}
	c.URL = strings.TrimRight(c.URL, "/")
	return nil
}

// plain says whether s is of ASCII without blanks, as what goes into a header.
func plain(s string) bool {
	return len(s) <= 8<<10 && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r >= 0x7f })
}
