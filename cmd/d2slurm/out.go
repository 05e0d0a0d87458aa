package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"distribute/lib/ask"
	"distribute/lib/batchfile"
	"distribute/lib/cli"
	"distribute/lib/dial"
	"distribute/lib/job"
	"distribute/lib/slurm"
	"distribute/lib/unit"
)

// An out makes a folder of a batch.
type out struct {
	c       *cli.Cmd
	head    string
	dir     string
	name    string // of the cluster; "": the base name of the folder
	batch   string // the id that the batch of a file gets, or its name; "": as the file says
	unique  bool   // the next free name of the head's, if it has a batch of that name
	ids     string // a file of the ids of jobs, or -
	upload  string // where to, as rsync has it
	modules []string
	runtime string
	secrets []string    // of --secret
	values  job.Secrets // of all secrets of the batch
}

func (o *out) run(ctx context.Context) error {
	dir, err := o.check()
	if err != nil {
		return err
	}
	if len(o.c.Args) != 1 || !ask.IsFile(o.c.Args[0]) {
		return o.fromHead(ctx, dir)
	}
	if o.c.Given("H") && !o.unique {
		return cli.Usagef("-H goes with jobs of a head, or with -U: a batch file needs no head otherwise")
	}
	f, err := batchfile.ReadFile(o.c.Args[0])
	if err != nil {
		return err
	}
	if o.batch != "" {
		id, err := job.NameBatch(f.Namespace, o.batch)
		if err != nil {
			return cli.Errorf(cli.Input, "-b: %w", err)
		}
		f.Namespace, f.Name = id.Namespace(), id.Name()
	}
	if o.ids != "" {
		if err := o.only(f); err != nil {
			return err
		}
	}
	if o.unique {
		id, err := o.free(ctx, f.ID())
		if err != nil {
			return err
		}
		f.Name = id.Name()
	}
	names, err := ask.SecretNames(o.secrets)
	if err != nil {
		return err
	}
	if err := f.AddSecrets(names); err != nil {
		return cli.Errorf(cli.Input, "--secret: %w", err)
	}
	if o.values, err = ask.Secrets(o.c, f.Spec.Secrets, o.secrets, f.SecretPlace); err != nil {
		return err
	}
	b, err := ask.Collect(ctx, o.c, f)
	if err != nil {
		return err
	}
	notes, err := o.write(ctx, dir, b, job.NewToken(), true)
	if err != nil {
		return err
	}
	if !o.unique {
		o.tellKnown(ctx, f.ID())
	}
	return o.tell(ctx, dir, b, notes)
}

// askWithin is how long a head is asked for what is only a hint.
const askWithin = 5 * time.Second

// tellKnown says that the head, if there is one, has the batch of the file already: its jobs would
// run twice, and their results come home only as another batch.
func (o *out) tellKnown(ctx context.Context, id job.BatchID) {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	h, err := ask.Dial(ctx, o.c, o.head)
	if err != nil {
		return
	}
	defer h.Close()
	if b, err := known(ctx, h, id); err == nil && b != nil {
		o.c.Talk("%[1]s is on the head already, with %[2]s, %[3]d done: all run again by this folder, and come home as another batch (d2slurm -r -b NAME); d2slurm -o DIR %[1]s takes those that wait",
			id, unit.Count(b.Jobs, "job"), b.Done)
	}
}

// free is the first of the batch's numbered names of which the head knows no batch.
func (o *out) free(ctx context.Context, id job.BatchID) (job.BatchID, error) {
	h, err := ask.Dial(ctx, o.c, o.head)
	if err != nil {
		return "", err
	}
	defer h.Close()
	for n := 1; ; n++ {
		name := id.Numbered(n)
		if known, err := knows(ctx, h, name); err != nil {
			return "", h.Failed(ctx, err)
		} else if !known {
			return name, nil
		}
	}
}

// write makes the folder, and returns what is to be said of it.
func (o *out) write(ctx context.Context, dir string, b *job.Batch, id job.Token, unknown bool) ([]string, error) {
	bytes := int64(0)
	for _, src := range b.Sources {
		bytes += src.Size
	}
	b.Secrets = o.values
	copying := o.c.Progress("writing the folder", bytes, unit.FormatBytes)
	e := &slurm.Export{Batch: b, ID: id, Name: o.name, Modules: o.modules, Runtime: o.runtime, Unknown: unknown}
	notes, err := e.Write(ctx, dir, copying.Add)
	copying.Done()
	switch {
	case errors.Is(err, fs.ErrExist):
		return nil, o.isThere()
	case errors.Is(err, job.ErrChanged), errors.Is(err, slurm.ErrBatch):
		return nil, cli.Errorf(cli.Input, "%w", err)
	}
	return notes, err
}

func (o *out) isThere() error {
	return cli.Errorf(cli.Input, "%s is there already: name another folder, or remove it when nothing of it is wanted any more", unit.Quote(o.dir))
}

// tell says what there is to say of a folder, sends it where it is wanted, and prints
// the ids of its jobs.
func (o *out) tell(ctx context.Context, dir string, b *job.Batch, notes []string) error {
	for _, n := range notes {
		o.c.Talk("%s", n)
	}
	if o.upload == "" {
		o.c.Talk("%s: %s; submit them with submit.sh in it", strconv.Quote(o.dir), unit.Count(len(b.Jobs), "job"))
	} else if err := o.send(ctx, dir); err != nil {
		return err
	}
	for i := range b.Jobs {
		if _, err := fmt.Fprintln(o.c.Stdout, b.ID().Job(b.Jobs[i].Name)); err != nil {
			return err
		}
	}
	return nil
}

// check checks the command line, and returns the path of the folder.
func (o *out) check() (string, error) {
	file := len(o.c.Args) == 1 && ask.IsFile(o.c.Args[0])
	switch {
	case o.ids != "" && !file:
		return "", cli.Usagef("-s goes with a batch file: name the jobs of a head themselves")
	case o.c.Given("b") && !file:
		return "", cli.Usagef("-b goes with a batch file: jobs of a head have their names")
	case o.unique && !file:
		return "", cli.Usagef("-U goes with a batch file: jobs of a head have their names")
	}
	if strings.ContainsAny(o.dir+o.upload, "\n\r\x00") {
		return "", cli.Usagef("a folder for Slurm cannot have a line break in its name")
	}
	if host, to, remote := o.destination(); remote {
		o.upload = host + ":" + fromHome(to)
	} else if to != "" {
		for _, name := range []string{slurm.SubmittedFile, slurm.KnownFile} {
			if _, err := os.Lstat(filepath.Join(to, name)); err == nil {
				return "", cli.Errorf(cli.Input, "at %s %s: name another place", unit.Quote(o.upload), occupied)
			}
		}
	}
	dir, err := filepath.Abs(o.dir)
	if err != nil {
		return "", err
	}
	if o.name == "" {
		if o.name = filepath.Base(dir); job.CheckName(o.name) != nil {
			return "", cli.Usagef("-N is wanted: %s cannot be the name of a cluster", strconv.Quote(o.name))
		}
	}
	for _, m := range o.modules {
		if strings.ContainsAny(m, "\n\r\x00") {
			return "", cli.Usagef("-M %s has more than one line: give -M for each", unit.Quote(m))
		}
	}
	if o.runtime != "" && o.runtime != "apptainer" && o.runtime != "singularity" && !filepath.IsAbs(o.runtime) {
		return "", cli.Usagef("-A %s: apptainer, singularity or an absolute path is wanted", unit.Quote(o.runtime))
	}
	return dir, nil
}

// only leaves in the batch the jobs that are named.
func (o *out) only(f *batchfile.File) error {
	in := o.c.Stdin
	if o.ids != "-" {
		file, err := os.Open(o.ids)
		if err != nil {
			return err
		}
		defer file.Close()
		in = file
	} else if o.c.StdinTTY() {
		return cli.Usagef("-s - reads ids from stdin, which is a terminal")
	}
	lines, err := batchfile.ReadLines(in)
	if err != nil {
		return err
	}
	switch named, err := f.Choose(lines); {
	case err != nil:
		return cli.Errorf(cli.Input, "-s: %w", err)
	case named == 0:
		return cli.Errorf(cli.Input, "-s names no job: nothing to take to the cluster")
	}
	return nil
}

// destination is where the folder is sent to: a path on a host, or here.
func (o *out) destination() (host, path string, remote bool) {
	host, path, remote = strings.Cut(o.upload, ":")
	if !remote || strings.Contains(host, "/") {
		return "", o.upload, false
	}
	return host, path, true
}

// occupied is why a folder is not sent to a place where another one is in use, of which Slurm or a
// head has jobs: the notes of that one would be taken for notes of the new one.
const occupied = "is a folder of which jobs were submitted"

// send copies the folder to where it is to be submitted. That no other is in use there is
// found out in the same login.
func (o *out) send(ctx context.Context, dir string) error {
	args, env := []string{"-a", "-s"}, os.Environ()
	if host, to, remote := o.destination(); remote {
		if o.c.Getenv("RSYNC_RSH") == "" {
			env = append(env, "RSYNC_RSH="+strings.Join(append([]string{"ssh"}, dial.Patience(ctx, host)...), " "))
		}
		check := "[ ! -e \"$0/" + slurm.SubmittedFile + "\" ] && [ ! -e \"$0/" + slurm.KnownFile + "\" ] || { echo " + occupied + " >&2; exit 1; }; exec rsync \"$@\""
		args = append(args, "--rsync-path=sh -c "+quote(check)+" "+quote(to))
	}
	cmd := exec.CommandContext(ctx, "rsync", append(args, "--", dir+"/", o.upload+"/")...)
	cmd.Env = env
	said, err := cmd.CombinedOutput()
	if err != nil && strings.Contains(string(said), occupied) { // rsync's own status may hide the other
		return cli.Errorf(cli.Input, "the folder %s is whole here, and was not sent: at %s %s: send it to another place, with rsync -a -s -- %s DESTINATION",
			unit.Quote(o.dir), unit.Quote(o.upload), occupied, quote(o.dir+"/"))
	}
	o.c.Stderr.Write(said)
	if err != nil {
		return cli.Errorf(cli.Unreachable, "the folder %s is whole here, and was not sent to %s (rsync: %w): send it with rsync -a -s -- %s %s",
			unit.Quote(o.dir), unit.Quote(o.upload), err, quote(o.dir+"/"), quote(o.upload+"/"))
	}
	if len(o.values) > 0 { // they are needed there alone
		return os.Remove(filepath.Join(dir, slurm.SecretsFile))
	}
	return nil
}
