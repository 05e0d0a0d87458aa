package ask

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Sessions share connections, no more of them each than sshd allows; one that has
// ended makes room.
func TestSessionsShareConnections(t *testing.T) {
	dir := t.TempDir()
	// This ssh says where it would share its connection, and goes on until its input ends.
	fake := "#!/bin/sh\n[ \"$1\" != -G ] || exec echo user me\nfor a; do case $a in ControlPath=*) echo \"{$a\" ;; esac; done\nexec cat >/dev/null\n"
	if err := os.WriteFile(filepath.Join(dir, "ssh"), []byte(fake), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	c, _ := tool("")
	c.Getenv = func(name string) string {
		return map[string]string{"XDG_RUNTIME_DIR": dir, "HOME": dir}[name]
	}
	s, err := NewSessions(c, "ssh://desk")
	if err != nil {
		t.Fatal(err)
	}
	dial := func() (stream net.Conn, socket string) {
		t.Helper()
		stream, err := s.stream(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { stream.Close() })
		said := make([]byte, 4096)
		n, err := stream.Read(said)
		if err != nil || !strings.Contains(string(said[:n]), dir) {
			t.Fatalf("%q, %v", said[:n], err)
		}
		return stream, string(said[:n])
	}
	first, shared := dial()
	for range perConnection - 1 {
		if _, socket := dial(); socket != shared {
			t.Errorf("another connection: %q", socket)
		}
	}
	if _, socket := dial(); socket == shared {
		t.Error("one more than may share the connection does")
	}
	first.Close()
	first.Close()
	if _, socket := dial(); socket != shared {
		t.Error("the room of one that has ended is not used")
	}
	if _, socket := dial(); socket == shared {
		t.Error("it is used twice")
	}
}
