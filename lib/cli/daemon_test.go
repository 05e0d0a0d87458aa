package cli

import (
	"bytes"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestLogJournal is a log whose stderr is the journal's stream, and one whose
// stderr is not what the variable, which was inherited, names.
func TestLogJournal(t *testing.T) {
	for _, own := range []bool{true, false} {
		f, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			t.Fatal(err)
		}
		st := info.Sys().(*syscall.Stat_t)
		if !own {
			st.Ino++
		}
		env := map[string]string{"JOURNAL_STREAM": fmt.Sprintf("%d:%d", st.Dev, st.Ino)}
		c := &Cmd{Stderr: f, Getenv: func(name string) string { return env[name] }}
		log := c.Log(true).With("node", "n1")
		log.Debug("a", "time", 1)
		log.Info("b\nc")
		log.Log(t.Context(), slog.LevelWarn+1, "d")
		log.WithGroup("g").Error("e", "level", "x")
		c.Log(false).Debug("not said")
		got, err := os.ReadFile(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		want := "<7>msg=a node=n1 time=1\n<6>msg=\"b\\nc\" node=n1\n<4>msg=d node=n1\n<3>msg=e node=n1 g.level=x\n"
		if own && string(got) != want {
			t.Errorf("in the journal:\n%swant\n%s", got, want)
		}
		if !own && (bytes.Contains(got, []byte("<")) || bytes.Count(got, []byte("time=")) < 4 || bytes.Count(got, []byte("\n")) != 4) {
			t.Errorf("elsewhere:\n%s", got)
		}
	}
}

// TestReady is a daemon that systemd waits for, over a socket with a path and
// over an abstract one, and one that nobody waits for.
func TestReady(t *testing.T) {
	abstract := fmt.Sprintf("@distribute-test-%d", os.Getpid())
	for _, name := range []string{filepath.Join(t.TempDir(), "notify"), abstract} {
		l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		c := &Cmd{Getenv: func(string) string { return name }}
		if err := c.ready(); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 64)
		n, err := l.Read(b)
		if err != nil || string(b[:n]) != "READY=1" {
			t.Errorf("%s heard %q: %v", name, b[:n], err)
		}
	}
	if err := (&Cmd{Getenv: func(string) string { return "" }}).ready(); err != nil {
		t.Error(err)
	}
	gone := &Cmd{Getenv: func(string) string { return filepath.Join(t.TempDir(), "gone") }}
	if err := gone.ready(); err == nil {
		t.Error("nobody listens, and that is no error")
	}
}
