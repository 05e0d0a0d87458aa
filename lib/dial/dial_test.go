package dial

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"distribute/lib/wire"
)

func getenv(env map[string]string) func(string) string {
	return func(k string) string { return env[k] }
}

// A head that a file names, and that cannot be reached, is told with the file.
func TestErrorNamesTheFile(t *testing.T) {
	home := t.TempDir()
	file := filepath.Join(home, "distribute", "head")
	if err := os.Mkdir(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("/no/spool\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"XDG_CONFIG_HOME": home}
	addr, from, err := HeadFrom(func(k string) string { return env[k] }, "")
	if addr != "/no/spool" || from != file || err != nil {
		t.Errorf("%q of %q, %v", addr, from, err)
	}
	_, err = Dial(t.Context(), addr)
	var unreached *Error
	if !errors.As(err, &unreached) {
		t.Fatal(err)
	}
	unreached.From = from
	if want := `the head at "/no/spool", which ` + file + ` names, cannot be reached: it is no spool`; !strings.HasPrefix(err.Error(), want) {
		t.Errorf("it says %v", err)
	}
	env["DHEAD"] = "/other"
	if addr, from, _ := HeadFrom(func(k string) string { return env[k] }, ""); addr != "/other" || from != "" {
		t.Errorf("%q of %q", addr, from)
	}
}

// A spool on which no dsched runs is told with what starts one on it: dlocal where its
// lock lies beside the spool.
func TestErrorSaysWhatStartsTheHead(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "site", "spool", "spool.json"), "{}")
	write(t, filepath.Join(dir, "my own", "spool", "spool.json"), "{}")
	write(t, filepath.Join(dir, "my own", "other", "spool.json"), "{}")
	write(t, filepath.Join(dir, "my own", "dlocal.lock"), "")
	for spool, want := range map[string]string{
		"site/spool":   "dsched -S " + dir + "/site/spool",
		"my own/spool": "dlocal -d '" + dir + "/my own'",
		"my own/other": "dsched -S '" + dir + "/my own/other'",
	} {
		_, err := Dial(t.Context(), filepath.Join(dir, spool))
		if want := "cannot be reached: no dsched runs on it; start it: " + want + " (connect: no such file or directory)"; err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s:\n got %v\nwant %s", spool, err, want)
		}
	}
}

// Whose spool it is not is told that its owner starts the head.
func TestErrorSaysWhoStartsTheHead(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a directory to somebody")
	}
	dir := filepath.Join(t.TempDir(), "spool")
	write(t, filepath.Join(dir, "spool.json"), "{}")
	if err := os.Chown(dir, 61000, -1); err != nil {
		t.Fatal(err)
	}
	_, err := Dial(t.Context(), dir)
	if want := "no dsched runs on it; its owner, whom ls -ld " + dir + " shows, starts it ("; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v\nwant %s", err, want)
	}
}

func TestHead(t *testing.T) {
	home := t.TempDir()
	env := map[string]string{"HOME": home}
	if _, err := Head(getenv(env), ""); !errors.Is(err, ErrNoHead) || strings.Count(err.Error(), "\n") != 3 {
		t.Errorf("with nothing set: %v", err)
	}
	own := filepath.Join(home, ".local/state/distribute/spool")
	write(t, filepath.Join(own, "spool.json"), "{}")
	check := func(flag, want string) {
		t.Helper()
		if got, err := Head(getenv(env), flag); err != nil || got != want {
			t.Errorf("got %q, %v; want %q", got, err, want)
		}
	}
	check("", own)
	write(t, filepath.Join(home, ".config/distribute/head"), " /lab/spool \nmore\n")
	check("", "/lab/spool")
	env["DHEAD"] = "tcp://127.0.0.1:1"
	check("", "tcp://127.0.0.1:1")
	check("/flag", "/flag")
	delete(env, "DHEAD")
	write(t, filepath.Join(home, ".config/distribute/head"), "\n")
	if _, err := Head(getenv(env), ""); err == nil || !errors.Is(err, ErrNoHead) || !strings.Contains(err.Error(), "is empty") {
		t.Errorf("an empty file: %v", err)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestX101OnlyLoopback(t *testing.T) {
	for _, addr := range []string{"tcp://0.0.0.0:1", "tcp://:1", "tcp://192.0.2.1:9", "tcp://[::]:9", "tcp://head:9"} {
		if l, err := Listen(addr); err == nil {
			l.Close()
			t.Errorf("listens on %s", addr)
		}
		if _, err := Dial(t.Context(), addr); err == nil || !strings.Contains(err.Error(), "anybody on the network") {
			t.Errorf("dials %s: %v", addr, err)
		}
	}
	open := Terms{Insecure: true}
	l, err := open.Listen("tcp://0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if err := open.Check("tcp://192.0.2.1:9"); err != nil {
		t.Error(err)
	}
	for _, addr := range []string{"tcp://192.0.2.1", "ssh://-x", "ssh://x?y", "quic://192.0.2.1"} {
		if open.Check(addr) == nil {
			t.Errorf("there can be a head at %s", addr)
		}
	}
	for _, addr := range []string{"ssh://x", "/plain"} {
		if _, err := Listen(addr); err == nil {
			t.Errorf("listens on %s", addr)
		}
	}
}

// An address of this machine is known by whatever way, and a name of another is none.
func TestLocal(t *testing.T) {
	for addr, want := range map[string]bool{
		"/spool": true, "unix:/run/s": true, "tcp://127.0.0.1:1": true, "tcp://192.0.2.1:1": false,
		"tls://[::1]:1": true, "tls://head": false,
		"ssh://localhost": true, "ssh://ana@127.0.0.1:2222/spool": true, "ssh://[::1]/spool": true,
		"ssh://head": false, "ssh://192.0.2.1": false, "ssh://localhost.evil": false, "ssh://-x": false,
	} {
		if got := Local(addr); got != want {
			t.Errorf("%s: %v", addr, got)
		}
	}
}

// A session over a Unix socket, one with a path that is too long for the
// system call, and over TCP.
func TestGreet(t *testing.T) {
	long := filepath.Join(t.TempDir(), strings.Repeat("long/", 30))
	if err := os.MkdirAll(filepath.Join(long, "run"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, addr := range []string{"unix:" + filepath.Join(t.TempDir(), "s"), "unix:" + Socket(long), "tcp://127.0.0.1:0"} {
		l, err := Listen(addr)
		if err != nil {
			t.Fatal(err)
		}
		peer := make(chan Peer, 1)
		go func() {
			s, err := l.Accept()
			if err != nil {
				return
			}
			p, _ := Proven(s)
			peer <- p
			c := wire.New(s)
			if _, err := wire.Expect[*wire.Hello](c); err == nil {
				c.Send(&wire.Hello{Proto: wire.Proto, Role: wire.RoleHead, Spool: "x"})
			}
		}()
		if strings.HasPrefix(addr, "tcp") {
			addr = "tcp://" + l.Addr().String()
		}
		c, h, err := Greet(t.Context(), addr, wire.Hello{Role: wire.RoleTool})
		if err != nil || h.Spool != "x" {
			t.Fatal(addr, h, err)
		}
		c.Close()
		p := <-peer
		if p.Proven != strings.HasPrefix(addr, "unix") || p.Proven && (p.UID != os.Getuid() || p.User == "") {
			t.Errorf("%s: the peer is %+v", addr, p)
		}
		l.Close()
	}
}

func TestUnreachable(t *testing.T) {
	file := filepath.Join(t.TempDir(), "socket")
	write(t, file, "")
	if _, err := Dial(t.Context(), file); err == nil || !strings.Contains(err.Error(), "it is no directory; name that of the spool, or unix:PATH for a socket") {
		t.Errorf("a file: %v", err)
	}
	for _, addr := range []string{file, t.TempDir(), "unix:/nonexistent/s", "ssh://x", "tcp://127.0.0.1:1"} {
		_, _, err := Greet(context.Background(), addr, wire.Hello{Role: wire.RoleTool})
		var e *Error
		if !errors.As(err, &e) || e.ExitStatus() != 69 || !strings.Contains(err.Error(), addr) {
			t.Errorf("%s: %v", addr, err)
		}
	}
}

// A head that takes connections and never answers, as one that was stopped, is told as that.
func TestErrorOfASilentHead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		go io.Copy(io.Discard, there)
		_, _, err := Over(t.Context(), here, "/spool", wire.Hello{Role: wire.RoleTool})
		if want := `the head at "/spool" cannot be reached: it does not answer: `; err == nil || !strings.HasPrefix(err.Error(), want) || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("got %v\nwant %s", err, want)
		}
	})
}
