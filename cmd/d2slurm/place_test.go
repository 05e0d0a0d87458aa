package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"distribute/lib/cli"
)

// A host that answers no longer ends a run: the next one, as of cron(8), would find the folder in use.
func TestSilenceEndsSSH(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"ssh":   "case \"$*\" in *-G*) echo serveraliveinterval 0 ;; *) echo \"ssh $*\" >>'" + dir + "/log'; echo rsync ;; esac\n",
		"rsync": "echo \"rsync $* $RSYNC_RSH\" >>'" + dir + "/log'\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	t.Setenv("RSYNC_RSH", "")
	t.Setenv("XDG_CACHE_HOME", dir)
	c := &cli.Cmd{Getenv: os.Getenv, Stderr: io.Discard}
	p, err := placeOf(t.Context(), c, "ana@hpc:runs")
	if err != nil {
		t.Fatal(err)
	}
	if err := p.copy(t.Context(), []string{"a"}); err != nil {
		t.Fatal(err)
	}
	if err := (&out{c: c, upload: "ana@hpc:runs"}).send(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	log, err := os.ReadFile(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(log)), "\n")
	if len(lines) != 3 {
		t.Fatalf("started were %q", lines)
	}
	for _, l := range lines {
		if !strings.Contains(l, "ServerAliveInterval=15") || !strings.Contains(l, "ServerAliveCountMax=3") {
			t.Errorf("without a limit of silence: %s", l)
		}
	}
}
