// Dpull brings results home. See dpull(1).
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"

	"distribute/lib/ask"
	"distribute/lib/cli"
	"distribute/lib/unit"
)

const usage = `usage: dpull [-nqv] [-H head] [-i expression] [-o directory] [-x expression]
             [operand ...]`

func main() { cli.Main(usage, run) }

func run(ctx context.Context, c *cli.Cmd) error {
	include, exclude := c.Strings("i"), c.Strings("x")
	head, dir := c.String("H", ""), c.String("o", ".")
	dry := c.Bool("n")
	c.Bool("q")
	c.Bool("v")
	if err := c.Parse(); err != nil {
		return err
	}
	p := &puller{Puller: ask.Puller{Cmd: c, Head: *head, Dry: *dry}, dir: *dir}
	p.Brought = func(id string) error {
		_, err := fmt.Fprintln(c.Stdout, id)
		return err
	}
	var err1, err2 error
	p.Choice.Include, err1 = compile("-i", *include)
	p.Choice.Exclude, err2 = compile("-x", *exclude)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	if !*dry {
		if err := os.MkdirAll(*dir, 0o777); err != nil {
			return fmt.Errorf("-o %q cannot be made: %w", *dir, err)
		}
	}
	root, err := os.OpenRoot(*dir)
	if err != nil && !(*dry && errors.Is(err, os.ErrNotExist)) {
		return fmt.Errorf("-o %q cannot be used: %w", *dir, err)
	}
	if root != nil {
		defer root.Close()
	}
	p.Root = root
	p.Progress = c.Progress("pulling", 0, unit.FormatBytes)
	err = p.all(ctx)
	p.Progress.Done()
	return p.verdict(err)
}

func compile(option string, list []string) ([]*regexp.Regexp, error) {
	var out []*regexp.Regexp
	for _, s := range list {
		re, err := regexp.Compile(s)
		if err != nil {
			return nil, cli.Usagef("%s %q: %w", option, s, err)
		}
		out = append(out, re)
	}
	return out, nil
}

// all pulls what the operands mean, or what the ids on stdin do, as they come.
func (p *puller) all(ctx context.Context) error {
	if len(p.Cmd.Args) == 0 {
		p.idle = true
		return p.stream(ctx)
	}
	ops, err := ask.Read(p.Cmd, true)
	if err != nil {
		return err
	}
	if ops.None {
		p.idle = true
		return nil
	}
	return ask.Again(ctx, p.Cmd, func(progress func()) error { return p.Pull(ctx, ops, progress) })
}

// A puller pulls what the command line means.
type puller struct {
	ask.Puller
	dir  string // the directory of -o
	idle bool   // it is no surprise if there is nothing to do
}

// newIDs returns the channel of ids that wait. dpull asks for all of them at once, since the head reads
// the logs of their batches for each request.
func newIDs() chan string { return make(chan string, 100_000) }

// stream pulls the jobs whose ids come on stdin.
func (p *puller) stream(ctx context.Context) error {
	ids, end := newIDs(), make(chan error, 1)
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		defer close(ids)
		for id, err := range p.Cmd.EachID() {
			if err != nil {
				end <- err
				return
			}
			select {
			case ids <- id:
			case <-ctx.Done():
				end <- ctx.Err()
				return
			}
		}
		end <- nil
	}()
	err := ask.Again(ctx, p.Cmd, p.groups(ctx, ids))
	if err != nil {
		// A read of stdin that nobody wants ends with the process.
		cancel()
		return err
	}
	cancel()
	return <-end
}

// groups makes what pulls ids as they come, as many at once as there are.
func (p *puller) groups(ctx context.Context, ids <-chan string) func(func()) error {
	var group []string
	return func(progress func()) error {
		for {
			if len(group) == 0 {
				if group = gather(ids); group == nil {
					return nil
				}
				p.Another()
			}
			if err := ask.CheckIDs(group); err != nil {
				return err
			}
			if err := p.Pull(ctx, &ask.Operands{Args: group}, progress); err != nil {
				return err
			}
			group = nil
		}
	}
}

// gather waits for an id and takes those behind it that are there already.
func gather(ids <-chan string) []string {
	id, ok := <-ids
	if !ok {
		return nil
	}
	group := []string{id}
	for len(group) < cap(ids) {
		select {
		case id, ok := <-ids:
			if !ok {
				return group
			}
			group = append(group, id)
		default:
			return group
		}
	}
	return group
}

// verdict says what there is to say in the end, and which status it comes to.
func (p *puller) verdict(err error) error {
	if err != nil {
		return errors.Join(append(p.Problems, err)...)
	}
	if p.Dry && p.Met > 0 {
		p.Cmd.Talk("would move %d files, %s", p.Files, unit.FormatBytes(p.Bytes))
	}
	if p.Waiting > 0 {
		p.Cmd.Talk("jobs that are not over, and not pulled: %d", p.Waiting)
	}
	if p.Empty > 0 {
		p.Cmd.Talk("jobs that left nothing: %d", p.Empty)
	}
	switch {
	case p.Skipped > 0 && p.Dry:
		p.Cmd.Talk("jobs that left what could not come home: %d", p.Skipped)
	case p.Skipped > 0:
		p.Cmd.Talk("jobs that left what could not come home: %d; what and why stands in %s", p.Skipped, unit.Quote(filepath.Join(p.dir, p.List)))
	}
	switch {
	case len(p.Problems) > 0:
		return errors.Join(p.Problems...)
	case p.Met == 0 && !p.idle:
		return cli.Errorf(cli.No, "no job fits")
	case p.Met > p.Empty+p.Waiting && p.Chosen == 0 && !p.Choice.All():
		return cli.Errorf(cli.No, "no file fits -i and -x (dpull -nv without them names all)")
	}
	return nil
}
