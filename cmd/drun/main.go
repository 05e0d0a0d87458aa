// Drun runs the jobs of a batch on this machine. See drun(1).
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"

	"distribute/lib/ask"
	"distribute/lib/batchfile"
	"distribute/lib/cli"
	"distribute/lib/desk"
	"distribute/lib/job"
	"distribute/lib/lab"
	"distribute/lib/proc"
)

const usage = `usage: drun [-knqv] [-c capability ...] [-o directory] [--secret variable ...]
            file [job ...]
       drun [-knqv] [-c capability ...] [-H head] [-o directory]
            [--secret variable ...] [id ...]`

func main() {
	if proc.IsSupervisor() { // of a job, which is this program too
		if err := proc.Supervise(desk.MakeRoomFor); err != nil {
			panic(err)
		}
		return
	}
	cli.Main(usage, run)
}

// endWithTerminal makes a hangup, as of a terminal that is closed, the same as SIGTERM, unless it
// is ignored as by nohup(1). The head in this process would take it for a wish to read its settings.
func endWithTerminal() {
	if signal.Ignored(syscall.SIGHUP) {
		return
	}
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	go func() {
		<-hangup
		syscall.Kill(os.Getpid(), syscall.SIGTERM)
	}()
}

// A runner is what the command line asks for.
type runner struct {
	*cli.Cmd
	*lab.Lab
	b    *job.Batch
	from *ask.Head // that has the batch; nil: a file has
	out  string    // below which results are put
	keep bool

	secrets []string // of --secret
}

func run(ctx context.Context, c *cli.Cmd) (err error) {
	flag, has, dir := c.String("H", ""), c.Strings("c"), c.String("o", ".")
	keep, dry, secrets := c.Bool("k"), c.Bool("n"), c.Strings("-secret")
	c.Bool("q")
	c.Bool("v")
	if err := c.Parse(); err != nil {
		return err
	}
	for _, word := range *has {
		if err := job.CheckName(word); err != nil {
			return cli.Usagef("-c: %w", err)
		}
	}
	r := &runner{Cmd: c, out: *dir, keep: *keep, secrets: *secrets}
	if len(c.Args) > 0 && ask.IsFile(c.Args[0]) {
		if c.Given("H") {
			return cli.Usagef("-H goes with jobs of a head: no head is asked for a batch file")
		}
		err = r.ofFile(ctx)
	} else {
		err = r.ofHead(ctx, *flag)
	}
	if err != nil || r.b == nil {
		return err
	}
	if r.Lab, err = lab.New(ctx, c, r.out, *has); err != nil {
		return err
	}
	if err := errors.Join(r.free(), r.Fits(r.b)); err != nil {
		return err
	}
	if !*dry {
		endWithTerminal()
		return r.run(ctx)
	}
	for i := range r.b.Jobs {
		if _, err := fmt.Fprintln(c.Stdout, r.b.ID().Job(r.b.Jobs[i].Name)); err != nil {
			return err
		}
	}
	return nil
}

// ofFile finds the batch of a batch file, of which operands may choose jobs.
func (r *runner) ofFile(ctx context.Context) error {
	f, err := batchfile.ReadFile(r.Args[0])
	if err != nil {
		return err
	}
	words := r.Args[1:]
	switch {
	case slices.Contains(words, "-") && len(words) > 1:
		return cli.Usagef("- stands alone behind the file")
	case slices.Contains(words, "-"):
		if words, err = r.IDs(); err != nil || len(words) == 0 {
			return err
		}
	}
	if len(words) > 0 {
		if _, err := f.Choose(words); err != nil {
			return cli.Errorf(cli.NoSuch, "%w", err)
		}
	}
	names, err := ask.SecretNames(r.secrets)
	if err != nil {
		return err
	}
	if err := f.AddSecrets(names); err != nil {
		return cli.Errorf(cli.Input, "--secret: %w", err)
	}
	values, err := ask.Secrets(r.Cmd, f.Spec.Secrets, r.secrets, f.SecretPlace)
	if err != nil {
		return err
	}
	if r.b, err = ask.Collect(ctx, r.Cmd, f); err == nil {
		r.b.Secrets = values
	}
	return err
}

// ofHead asks the head for the batch of the jobs that the operands mean.
func (r *runner) ofHead(ctx context.Context, flag string) error {
	ops, err := ask.Read(r.Cmd, true)
	if err != nil || ops.None {
		return err
	}
	if r.from, err = ask.Dial(ctx, r.Cmd, flag); err == nil {
		r.b, err = r.from.Describe(ctx, ops)
	}
	if err == nil {
		r.b.Secrets, err = ask.Secrets(r.Cmd, r.b.Spec.Secrets, r.secrets, func(string) string { return string(r.b.ID()) })
	}
	return err
}

// free says which results have no place: there is something already.
func (r *runner) free() error {
	var taken []error
	for i := range r.b.Jobs {
		place := filepath.Join(r.out, string(r.b.ID().Job(r.b.Jobs[i].Name)))
		if _, err := os.Lstat(place); err == nil && len(taken) < 10 {
			taken = append(taken, cli.Errorf(cli.Input, "%s is there already: remove it, or name another place with -o", place))
		}
	}
	return errors.Join(taken...)
}
