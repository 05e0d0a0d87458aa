package head

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"distribute/lib/sched"
	"distribute/lib/wire"
)

// How much of the disk is left to others is a size, nothing at all included;
// unless the site says it, the size of the disk decides.
func TestReserveSetting(t *testing.T) {
	for text, want := range map[string]int64{"": -1, "lease: 1h\n": -1, "reserve: 0\n": 0, "reserve: 2G\n": 2 << 30} {
		name := filepath.Join(t.TempDir(), "head.yaml")
		write(t, name, text)
		if s, err := readSettings(name); err != nil || s.Reserve != want || s.Keep != 30*24*time.Hour {
			t.Errorf("%q: %d, kept for %v, %v", text, s.Reserve, s.Keep, err)
		}
	}
	for text, want := range map[string]time.Duration{"": 30 * 24 * time.Hour, "lease: 1h\n": 30 * 24 * time.Hour, "keep: 1d\n": 24 * time.Hour} {
		name := filepath.Join(t.TempDir(), "head.yaml")
		write(t, name, text)
		if s, err := readSettings(name); err != nil || s.Keep != want {
			t.Errorf("%q: inputs are kept %v, %v", text, s.Keep, err)
		}
	}
	for text, want := range map[string]string{"": "4h0m0s", "patience: 2h\n": "2h0m0s", "patience: 0s\n": "0s", "patience: never\n": "never"} {
		name := filepath.Join(t.TempDir(), "head.yaml")
		write(t, name, text)
		s, err := readSettings(name)
		got := "never"
		if s.Patience != nil {
			got = s.Patience.String()
		}
		if err != nil || got != want {
			t.Errorf("%q: jobs wait %s, %v", text, got, err)
		}
	}
	name := filepath.Join(t.TempDir(), "head.yaml")
	write(t, name, "reserve: 5%\n")
	if _, err := readSettings(name); err == nil || !strings.Contains(err.Error(), `head.yaml:1:10: "5%" is not a size`) {
		t.Errorf("a share of the disk: %v", err)
	}
	write(t, name, "counted: {matlab: 2, comsol: 1}\n")
	if s, err := readSettings(name); err != nil || s.Counted != "comsol=1 matlab=2" {
		t.Errorf("what is counted: %q, %v", s.Counted, err)
	}
	write(t, name, "counted: {matlab: two}\n")
	if _, err := readSettings(name); err == nil || !strings.Contains(err.Error(), "head.yaml:1:19: ") {
		t.Errorf("counted in words: %v", err)
	}
	for text, want := range map[string]string{
		"patience: 4": `1:11: "4" has no unit: write 4s, 4m or 4h`, "keep: 90": `1:7: "90" has no unit: write 90s, 90m or 90h`,
		"lease: 5": `1:8: "5" has no unit: write 5s, 5m or 5h`, "reserve: 1": `1:10: "1" has no unit: write 1M or 1G`,
	} {
		write(t, name, text+"\n")
		if _, err := readSettings(name); err == nil || !strings.HasSuffix(err.Error(), "head.yaml:"+want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// A head that reads head.yaml again goes by it at once, but for where it listens,
// and not at all if there is a mistake in it.
func TestSettingsReadAgain(t *testing.T) {
	s := newSite(t)
	name := filepath.Join(s.dir, "head.yaml")
	write(t, name, "operators: [daemon]\nreserve: 3G\nkeep: 1d\nlease: 2h\nlisten: ['tls://']\n")
	s.h.rereadSettings(t.Context())
	lease := func() (is time.Duration) {
		s.h.do(func() {
			s.h.apply(sched.NodeUp{Session: 1 << 40, Node: "ws1", Boot: "b", State: "s"})
			s.h.apply(sched.NodeDown{Session: 1 << 40})
			n := s.h.machine.Nodes()[0]
			is = n.Until - n.Heard
		})
		return is
	}
	got := s.h.settings()
	if !slices.Equal(got.Operators, []string{"daemon"}) || got.Keep != 24*time.Hour || s.h.transfers.room.reserved() != 3<<30 || lease() != 2*time.Hour {
		t.Errorf("%+v, %d reserved, a lease of %v", got, s.h.transfers.room.reserved(), lease())
	}
	if said := s.log.String(); got.Listen != nil || !strings.Contains(said, "changed listen of head.yaml") {
		t.Errorf("listens on %q, and says\n%s", got.Listen, said)
	}
	write(t, name, "operators: daemon\nlease: 1s\n")
	if s.h.rereadSettings(t.Context()); s.h.settings() != got {
		t.Errorf("a mistake counts: %+v", s.h.settings())
	}
	if said := s.log.String(); !strings.Contains(said, "the previous settings stay in use") || !strings.Contains(said, "head.yaml:2:8") {
		t.Errorf("it says\n%s", said)
	}
}

// Nodes hear of another patience: their sessions end, and they come again. Who brings back
// what he took to a cluster goes on, and so do all when it is what it was.
func TestPatienceReadAgain(t *testing.T) {
	s := newSite(t)
	d := s.desk("ws1", "b")
	socket, tcp := s.dir, s.addr
	s.addr = socket
	abroad := s.desk("slurm:hpc", "-")
	s.addr = tcp
	goesOn := func(d *desk) {
		t.Helper()
		s.send(d.c, &wire.Ping{N: 1})
		expect[*wire.Pong](t, d.c)
	}
	name := filepath.Join(s.dir, "head.yaml")
	write(t, name, "patience: 240m\n")
	s.h.rereadSettings(t.Context())
	goesOn(d)
	write(t, name, "patience: 1h\n")
	s.h.rereadSettings(t.Context())
	streamEnds(t, d.c)
	goesOn(abroad)
	await(t, func() (gone bool) {
		s.h.do(func() { gone = s.h.nodes.byName["ws1"] == 0 })
		return gone
	})
	_, hello, err := s.greet(s.addr, helloOf("ws1"))
	if err != nil || hello.Patience == nil || *hello.Patience != 3600 {
		t.Errorf("it is told %+v, %v", hello, err)
	}
}
