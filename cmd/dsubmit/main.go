// Dsubmit gives a batch of jobs to the head. See dsubmit(1).
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"distribute/lib/account"
	"distribute/lib/ask"
	"distribute/lib/batchfile"
	"distribute/lib/cli"
	"distribute/lib/job"
	"distribute/lib/unit"
	"distribute/lib/wire"
)

const usage = `usage: dsubmit [-aknQquvw] [-b batch] [-H head] [-m user] [-s ids] [--private]
               [--secret variable ...] file
       dsubmit [-ajknQquvw] [-e variable ...] [-H head] [-i path ...] [-J name]
               [-m user] [-R request ...] [-T template ...] [--private]
               [--secret variable ...] -b batch [-- command ...]`

func main() { cli.Main(usage, run) }

// A submission is what the command line asks for.
type submission struct {
	*cli.Cmd
	head, name, ids, jobName    *string
	matrix                      *string // who is told when it is over
	inputs, requests, templates *[]string
	env, secrets                *[]string
	private                     *bool // only its owner and operators see it
	objects                     *bool // lines are JSON objects
	dry, quiet, unique, waiting *bool
	adds                        *bool    // to the batch of that name
	queue                       *bool    // also what no node could ever run
	held                        *bool    // its jobs wait until they are released
	words                       []string // of the command line
	begun                       bool     // a large input was begun to be sent
}

func run(ctx context.Context, c *cli.Cmd) error {
	s := &submission{Cmd: c, head: c.String("H", ""), name: c.String("b", ""), ids: c.String("s", ""), matrix: c.String("m", ""),
		jobName: c.String("J", ""), inputs: c.Strings("i"), requests: c.Strings("R"), templates: c.Strings("T"), env: c.Strings("e"), objects: c.Bool("j"),
		words: c.Args, adds: c.Bool("a"), dry: c.Bool("n"), quiet: c.Bool("q"), unique: c.Bool("u"), waiting: c.Bool("w"), queue: c.Bool("Q"), held: c.Bool("k"),
		secrets: c.Strings("-secret"), private: c.Bool("-private")}
	c.Bool("v")
	if err := c.Parse(); err != nil {
		return err
	}
	if c.Given("m") && !job.IsMatrixUser(*s.matrix) {
		return cli.Usagef(`-m: %q is no Matrix user: write it as "@user:server"`, *s.matrix)
	}
	if *s.adds && *s.unique {
		return cli.Usagef("-a adds to the batch of that name, and -u makes another: leave one of them out")
	}
	if *s.held && (*s.adds || *s.waiting) {
		return cli.Usagef("-k holds the jobs of a new batch, which -a adds none to and -w would wait for: leave it out")
	}
	f, err := s.file()
	if errors.Is(err, errNothing) {
		s.talk("%v", err)
		return nil
	}
	if err != nil {
		return err
	}
	if c.Given("m") {
		f.Spec.Matrix = *s.matrix
	}
	values, err := ask.Secrets(c, f.Spec.Secrets, *s.secrets, f.SecretPlace)
	if err != nil {
		return err
	}
	b, err := ask.Collect(ctx, c, f)
	if err != nil {
		return err
	}
	b.Secrets = values
	if *s.dry {
		s.talk("%s: %s; %s of %s; not submitted", b.ID(), sized(b), unit.Count(len(b.Sources), "input file"), unit.FormatBytes(total(b)))
		if err := s.tellNodes(ctx, b); err != nil {
			return err
		}
		_, err := fmt.Fprintln(c.Stdout, b.ID())
		return err
	}
	id, err := s.submit(ctx, b)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(c.Stdout, id); err != nil {
		return fmt.Errorf("%s is submitted, and its id cannot be printed: %w", id, err)
	}
	if !*s.waiting {
		return nil
	}
	return s.wait(ctx, id)
}

// errNothing says that what was to name jobs is empty, which is no work.
var errNothing = errors.New("no lines, so there is nothing to submit")

// talk says something that is not a mistake, unless -q was given.
func (s *submission) talk(format string, a ...any) {
	if !*s.quiet {
		s.Talk(format, a...)
	}
}

// file is the batch as it is asked for, in either form.
func (s *submission) file() (*batchfile.File, error) {
	if !s.Dashed && len(s.Args) == 0 && *s.name != "" {
		*s.objects = true
	}
	secrets, err := ask.SecretNames(*s.secrets)
	if err != nil {
		return nil, err
	}
	if s.Dashed || *s.objects {
		return s.template(secrets)
	}
	switch {
	case len(s.Args) != 1:
		return nil, cli.Usagef("one batch file is wanted, and %d operands were given", len(s.Args))
	case s.Given("e") || s.Given("i") || s.Given("J") || s.Given("R") || s.Given("T"):
		return nil, cli.Usagef("-e, -i, -J, -R and -T go with a command, not with a batch file")
	}
	read := batchfile.ReadFile
	if *s.adds || *s.name != "" { // the head, or -b, decides on the name
		read = batchfile.ReadOlder
	}
	f, err := read(s.Args[0])
	if err != nil {
		return nil, err
	}
	if *s.name != "" {
		if f.Namespace, f.Name, err = s.id(f.Namespace); err != nil {
			return nil, err
		}
	}
	f.Spec.Private = f.Spec.Private || *s.private
	if err := f.AddSecrets(secrets); err != nil {
		return nil, cli.Errorf(cli.Input, "--secret: %w", err)
	}
	if *s.ids != "" {
		err = s.only(f)
	}
	return f, err
}

// template is the batch of a command with lines, with secrets of these names.
func (s *submission) template(secrets []string) (*batchfile.File, error) {
	switch {
	case len(s.Command) == 0 && (s.Dashed || !*s.objects):
		return nil, cli.Usagef("a command is wanted after --")
	case len(s.Args) > 0:
		return nil, cli.Usagef("%q is not wanted with a command or -j", s.Args[0])
	case *s.name == "":
		return nil, cli.Usagef("-b is wanted: the name of the batch")
	case *s.ids != "":
		return nil, cli.Usagef("-s goes with a batch file, not with a command")
	}
	me, err := account.Name(os.Getuid())
	if err != nil && !errors.Is(err, account.ErrUnknown) {
		return nil, cli.Errorf(cli.Later, "your name, which is the namespace, cannot be looked up now: %w", err)
	}
	ns, name, err := s.id(me)
	if err != nil {
		return nil, err
	}
	t := &batchfile.Template{Namespace: ns, Name: name, Command: s.Command, Job: *s.jobName,
		Inputs: *s.inputs, Requests: *s.requests, Templates: *s.templates, Objects: *s.objects, Dir: ".", Secrets: secrets, Private: *s.private}
	if t.Env, err = s.variables(); err != nil {
		return nil, err
	}
	var lines []string
	if t.NeedsLines() {
		if s.StdinTTY() && *s.objects {
			return nil, cli.Usagef("neither a file nor a command after -- is given, and no lines of JSON come on stdin, which is a terminal")
		}
		if s.StdinTTY() {
			return nil, cli.Usagef("the command has places to fill, and no lines come on stdin: seq 20 | dsubmit …")
		}
		if lines, err = batchfile.ReadLines(s.Stdin); err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(lines, func(l string) bool { return strings.TrimSpace(l) != "" }) {
			return nil, errNothing
		}
	} else if s.StdinComes() {
		s.talk("nothing of what comes on stdin is read: no word of the command has a place for it, as {}")
	}
	f, err := t.File(lines)
	if err == nil && f.Note != "" {
		s.talk("%s", f.Note)
	}
	return f, err
}

// variables are those of -e; a name alone is the one of that name here.
func (s *submission) variables() (list []string, err error) {
	for _, v := range *s.env {
		if !strings.Contains(v, "=") {
			value, there := os.LookupEnv(v)
			if !there {
				return nil, cli.Usagef("-e %s: there is no such variable here: give it a value, as -e %[1]s=…", v)
			}
			v += "=" + batchfile.Literal(value)
		}
		list = append(list, v)
	}
	return list, nil
}

// id takes -b apart; without a namespace in it, it is ns.
func (s *submission) id(ns string) (namespace, name string, err error) {
	id, err := job.NameBatch(ns, *s.name)
	if old, perr := job.ParseBatchID(string(id)); err != nil && *s.adds && perr == nil {
		id, err = old, nil // the head knows whether there is an older batch of that name
	}
	if err != nil {
		return "", "", cli.Errorf(cli.Input, "-b: %w", err)
	}
	return id.Namespace(), id.Name(), nil
}

// only leaves in the batch the jobs that -s names.
func (s *submission) only(f *batchfile.File) error {
	in := s.Stdin
	if *s.ids != "-" {
		file, err := os.Open(*s.ids)
		if err != nil {
			return err
		}
		defer file.Close()
		in = file
	} else if s.StdinTTY() {
		return cli.Usagef("-s - reads ids from stdin, which is a terminal")
	}
	lines, err := batchfile.ReadLines(in)
	if err != nil {
		return err
	}
	named, err := f.Choose(lines)
	switch {
	case named == 0:
		return errNothing
	case err != nil:
		return cli.Errorf(cli.Input, "-s: %w", err)
	}
	return nil
}

// total is the size of all different inputs.
func total(b *job.Batch) (n int64) {
	for _, src := range b.Sources {
		n += src.Size
	}
	return n
}

// wait waits until every job of the batch is over.
func (s *submission) wait(ctx context.Context, id job.BatchID) error {
	notDone := 0
	err := ask.Again(ctx, s.Cmd, func(progress func()) error {
		h, err := ask.Dial(ctx, s.Cmd, *s.head)
		if err != nil {
			return err
		}
		defer h.Close()
		progress()
		notDone = 0
		ops := &ask.Operands{Args: []string{string(id)}}
		return ask.Rows(ctx, h, wire.Query{Of: "jobs", All: true, Follow: true, Until: "over"}, ops, func(r *job.Row) error {
			if r.State != job.Done {
				notDone++
			}
			return nil
		})
	})
	if err == nil && notDone > 0 {
		are := "are"
		if notDone == 1 {
			are = "is"
		}
		err = cli.Errorf(cli.No, "%s of %s %s not done (dquery %s state=failed,cancelled)", unit.Count(notDone, "job"), id, are, id)
	}
	return err
}
