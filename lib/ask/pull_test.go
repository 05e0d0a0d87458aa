package ask

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"distribute/lib/dial"
	"distribute/lib/pack"
	"distribute/lib/wire"
)

// A result that is deleted while it is pulled, after a file of it could not be read: the one
// that has its name then is pulled, and nothing is said of the files of the old one.
func TestResultReplacedInTheMiddle(t *testing.T) {
	var m pack.Manifest
	for _, name := range []string{"a", "b"} {
		m = append(m, pack.Entry{Path: name, Type: pack.File, Size: 1, Mode: 0o644, Time: time.Unix(1, 0).UTC(), Sum: fmt.Sprintf("%x", sha256.Sum256([]byte(name)))})
	}
	addr := "unix:" + filepath.Join(t.TempDir(), "socket")
	l, err := dial.Listen(addr)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	left := make(chan error, 1)
	go func() {
		left <- func() error {
			s, err := l.Accept()
			if err != nil {
				return err
			}
			c := wire.New(s)
			defer c.Close()
			if _, err := wire.Expect[*wire.Hello](c); err != nil {
				return err
			}
			c.Send(&wire.Hello{Proto: wire.Proto, Role: wire.RoleHead, User: "me", Picks: true})
			manifest := func() error {
				_, err := wire.Expect[*wire.Pull](c)
				return errors.Join(err, c.SendTransfer(&wire.Send{X: 1, Of: wire.OfManifest}, m.Encode))
			}
			tree := func(open func(name string) (io.ReadCloser, error)) error {
				p, err := wire.Expect[*wire.Pick](c)
				if err != nil {
					return err
				}
				c.SendTransfer(&wire.Send{X: 2, Of: wire.OfTree}, func(w io.Writer) error {
					return pack.Send(w, m, pack.Want(p.Want), func(_ int, e pack.Entry) (io.ReadCloser, error) { return open(e.Path) })
				})
				return nil
			}
			none := func(string) (io.ReadCloser, error) { return nil, os.ErrNotExist }
			if err := errors.Join(manifest(), tree(none), tree(none)); err != nil {
				return err
			}
			if _, err := wire.Expect[*wire.Pick](c); err != nil {
				return err
			}
			c.Send(&wire.Error{Status: 66, Text: "no result any more"})
			err = errors.Join(manifest(), tree(func(name string) (io.ReadCloser, error) { return asItIs{strings.NewReader(name)}, nil }))
			if err != nil {
				return err
			}
			_, err = wire.Expect[*wire.Pick](c)
			return err
		}()
	}()

	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	c, _ := tool("")
	h, err := Dial(context.Background(), c, addr)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	brought := ""
	p := Puller{Cmd: c, Root: root, Progress: c.Progress("pull", 0, nil), Brought: func(id string) error { brought = id; return nil }}
	usable, err := p.job(context.Background(), h, "ns/b/j")
	h.Close()
	if err := <-left; err != nil {
		t.Fatal(err)
	}
	got, rerr := os.ReadFile(filepath.Join(dir, "ns/b/j/b"))
	if !usable || err != nil || rerr != nil || !bytes.Equal(got, []byte("b")) || brought != "ns/b/j" || len(p.Problems) > 0 {
		t.Errorf("usable %t, %v, %v, %q of %q, %v", usable, err, rerr, got, brought, p.Problems)
	}
}
