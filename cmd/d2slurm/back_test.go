package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"distribute/lib/cli"
	"distribute/lib/job"
	"distribute/lib/slurm"
)

// A job of which the head will be told what became of it is noted, and once.
func TestNoted(t *testing.T) {
	dir := t.TempDir()
	b := &back{p: &place{dir: dir}}
	works := []*work{
		{job: &slurm.FolderJob{Job: "ended"}, say: &job.Result{}},
		{job: &slurm.FolderJob{Job: "again"}, say: &job.Result{}},
		{job: &slurm.FolderJob{Job: "runs"}},
	}
	if err := b.note(t.Context(), works, map[string]bool{"again": true}); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(filepath.Join(dir, slurm.HomeFile)); string(text) != "ended\n" {
		t.Errorf("noted is %q, %v", text, err)
	}
}

// What could not begin on the cluster has not failed, also where it is never begun twice;
// what has run there, and could not say how it ended, waits to be given up.
func TestNotBegunThere(t *testing.T) {
	s, err := slurm.ReadSubmitted(strings.NewReader("0\t0\t1\t5\n"))
	if err != nil {
		t.Fatal(err)
	}
	r := slurm.ReadRecords("== sacct\n5_0|FAILED|75:0|1768212000|1768212001|n1\n5_1|FAILED|74:0|1768212000|1768212090|n1\n== 0\n", s.IDs())
	b := &back{folder: &slurm.Folder{}, submitted: s, records: r}
	works := []*work{{job: &slurm.FolderJob{Job: "a"}}, {job: &slurm.FolderJob{Job: "b", Index: 1}}}
	b.judge(works, nil)
	if say := works[0].say; say == nil || say.Fate != job.FateUnstarted || works[0].left {
		t.Errorf("what could not begin is %+v", say)
	}
	if say := works[1].say; say != nil {
		t.Errorf("what has run is %+v", say)
	}
}

// A task is cancelled in Slurm when the head has its job back, and not before: it would come home as
// cancelled on the cluster, and not as given back.
func TestCancelledWhenBack(t *testing.T) {
	s, err := slurm.ReadSubmitted(strings.NewReader("0\t0\t3\t5\n"))
	if err != nil {
		t.Fatal(err)
	}
	r := slurm.ReadRecords("== sacct\n5_[0-3]|RUNNING|0:0|1768212000|Unknown|n1\n== 0\n", s.IDs())
	b := &back{folder: &slurm.Folder{}, submitted: s, records: r, giveUp: true}
	var works []*work
	for i, name := range []string{"back", "lost", "refused", "other"} {
		works = append(works, &work{job: &slurm.FolderJob{Job: name, Index: i}})
	}
	b.judge(works, nil)
	works[0].done, works[2].refused = true, true
	c := &cli.Cmd{Name: "d2slurm", Stdout: io.Discard, Stderr: io.Discard, Getenv: func(string) string { return "" }}
	c.Run(t.Context(), usage, func(ctx context.Context, c *cli.Cmd) error {
		b.c = c
		return b.report(ctx, works, nil)
	})
	if got := strings.Join(b.cancel, " "); got != "5_0 5_2" {
		t.Errorf("cancelled are %q", got)
	}
}

// The build is cancelled with the last job that waits for it.
func TestBuildCancelled(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "scancel"), []byte("#!/bin/sh\necho \"$@\" >'"+dir+"/said'\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	s, err := slurm.ReadSubmitted(strings.NewReader("build\t\t\t4\n0\t0\t2\t5\n"))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		build string // what Slurm says of it
		done  bool
		told  map[string]bool
		want  string
	}{
		{"RUNNING", true, map[string]bool{"home": true}, "5_0 5_1 4\n"},
		{"COMPLETED", true, map[string]bool{"home": true}, "5_0 5_1\n"},
		{"RUNNING", false, map[string]bool{"home": true}, "5_0\n"},
		{"RUNNING", true, nil, "5_0 5_1\n"},
	} {
		r := slurm.ReadRecords("== sacct\n4|"+tt.build+"|0:0|1768212000|Unknown|n1\n5_[0-1]|PENDING|0:0|Unknown|Unknown|\n5_2|COMPLETED|0:0|1768212000|1768212090|n1\n== 0\n", map[int64]bool{4: true, 5: true})
		list := []slurm.FolderJob{{Job: "a"}, {Job: "b", Index: 1}, {Job: "home", Index: 2}}
		b := &back{folder: &slurm.Folder{Jobs: list}, submitted: s, records: r, p: &place{dir: dir}, giveUp: true, kill: true}
		works := []*work{{job: &list[0]}, {job: &list[1]}}
		b.judge(works, tt.told)
		works[0].done, works[1].done = true, tt.done
		c := &cli.Cmd{Name: "d2slurm", Stdout: io.Discard, Stderr: io.Discard, Getenv: func(string) string { return "" }}
		c.Run(t.Context(), usage, func(ctx context.Context, c *cli.Cmd) error {
			b.c = c
			return b.report(ctx, works, tt.told)
		})
		if said, err := os.ReadFile(filepath.Join(dir, "said")); string(said) != tt.want {
			t.Errorf("with a build that is %s: cancelled are %q, want %q (%v)", tt.build, said, tt.want, err)
		}
	}
}

// Of a folder of which only the build was submitted, and all jobs were given up before, the build is
// asked for.
func TestOnlyBuildCancelled(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"sacct":    "exit 1",
		"scontrol": "echo JobId=4 JobName=b JobState=RUNNING",
		"scancel":  "echo \"$@\" >'" + dir + "/said'",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	s, err := slurm.ReadSubmitted(strings.NewReader("build\t\t\t4\n"))
	if err != nil {
		t.Fatal(err)
	}
	c := &cli.Cmd{Name: "d2slurm", Stdout: io.Discard, Stderr: io.Discard, Getenv: func(string) string { return "" }}
	p, err := placeOf(t.Context(), c, dir)
	if err != nil {
		t.Fatal(err)
	}
	told := map[string]bool{"a": true}
	b := &back{folder: &slurm.Folder{Jobs: []slurm.FolderJob{{Job: "a"}}}, submitted: s, p: p, kill: true}
	c.Run(t.Context(), usage, func(ctx context.Context, c *cli.Cmd) error {
		b.c = c
		if err := b.look(ctx, nil); err != nil {
			t.Error(err)
		}
		b.judge(nil, told)
		return b.report(ctx, nil, told)
	})
	if said, err := os.ReadFile(filepath.Join(dir, "said")); string(said) != "4\n" {
		t.Errorf("cancelled are %q (%v)", said, err)
	}
}

// Where the controller of Slurm does not answer, no task can be held, and a task that waits may begin.
func TestNotHeld(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"sacct":    "echo '5_0|PENDING|0:0|Unknown|Unknown|None assigned'",
		"scontrol": "[ \"$1\" != hold ] || : >'" + dir + "/asked'; exit 1",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	s, err := slurm.ReadSubmitted(strings.NewReader("0\t0\t0\t5\n"))
	if err != nil {
		t.Fatal(err)
	}
	c := &cli.Cmd{Name: "d2slurm", Stdout: io.Discard, Stderr: io.Discard, Getenv: func(string) string { return "" }}
	p, err := placeOf(t.Context(), c, dir)
	if err != nil {
		t.Fatal(err)
	}
	b := &back{folder: &slurm.Folder{}, submitted: s, p: p, giveUp: true}
	works := []*work{{job: &slurm.FolderJob{Job: "a", Dir: "jobs/a"}}}
	if err := b.look(t.Context(), works); err != nil {
		t.Fatal(err)
	}
	if err := b.hold(t.Context(), works); err != nil {
		t.Fatal(err)
	}
	b.judge(works, nil)
	if say := works[0].say; say == nil || say.Fate != job.FateLost {
		t.Errorf("what may begin is %+v", say)
	}
	if _, err := os.Stat(filepath.Join(dir, "asked")); err == nil {
		t.Error("Slurm was asked to hold a task")
	}
}
