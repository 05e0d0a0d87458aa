// Dnotify tells people when a batch is over, fails, or a node is lost. See
// dnotify(1).
package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"distribute/lib/ask"
	"distribute/lib/cli"
	"distribute/lib/job"
	"distribute/lib/matrix"
)

const usage = `usage: dnotify [-aqv] [-D directory] [-H head] [-m file] [-O user]
               [operand ...] [-- command ...]`

func main() { cli.Main(usage, run) }

func run(ctx context.Context, c *cli.Cmd) error {
	all, head, dir := c.Bool("a"), c.String("H", ""), c.String("D", "")
	file, operator, quiet := c.String("m", ""), c.String("O", ""), c.Bool("q")
	c.Bool("v")
	if err := c.Parse(); err != nil {
		return err
	}
	switch {
	case c.Dashed && len(c.Command) == 0:
		return cli.Usagef("a command is wanted after --")
	case c.Dashed && *file != "":
		return cli.Usagef("-m and a command exclude each other: a message goes one way")
	case c.Given("O") && *file == "":
		return cli.Usagef("-O names a user of Matrix, which -m says how to reach")
	case c.Given("O") && !job.IsMatrixUser(*operator):
		return cli.Usagef(`-O: %q is no Matrix user: write it as "@user:server"`, *operator)
	}
	ops, err := ask.Read(c, false)
	if err != nil || ops.None {
		return err
	}
	cursor, err := openCursor(*dir)
	if err != nil {
		return err
	}
	defer cursor.close()
	level := slog.LevelWarn
	if *file != "" && !*quiet { // of what Matrix is told nothing else is seen here
		level = slog.LevelInfo
	}
	within, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	s := &sender{cursor: cursor, log: c.LogFrom(level), stop: stop, last: map[string]chan struct{}{}}
	switch {
	case *file != "":
		m, err := matrix.Open(*file, device(*dir), *operator)
		if errors.Is(err, matrix.ErrCredentials) {
			return cli.Errorf(cli.Input, "%w", err)
		} else if err != nil {
			return err
		}
		defer m.Close()
		s.send = func(ctx context.Context, n *message) error {
			return m.Send(ctx, n.to, n.id(), strings.TrimSuffix(n.text, "\n"))
		}
	case c.Dashed:
		s.tries = maxTries
		s.send = func(ctx context.Context, n *message) error { return byCommand(ctx, c, n) }
	default:
		s.send = func(_ context.Context, n *message) error {
			_, err := io.WriteString(c.Stdout, n.text+"\n")
			if err != nil {
				stop(err)
			}
			return err
		}
	}
	w := &watch{args: ops.Args, named: len(ops.Args) > 0, all: *all, matrix: *file != "", operator: *operator,
		nodes: len(ops.Args) == 0 && (*file == "" || *operator != ""), fresh: cursor.fresh,
		dial: func(ctx context.Context) (*ask.Head, error) {
			h, err := ask.Dial(ctx, c, *head)
			if err == nil {
				h.TellNewer(ctx, c, ops)
			}
			return h, err
		},
		known: maps.Clone(cursor.told), send: func(m *message) { s.add(within, m) }, advance: s.advance}
	if err = w.find(ctx); err == nil {
		err = ask.Again(within, c, func(progress func()) error { return w.session(within, progress) })
	}
	if err != nil {
		stop(err)
	}
	s.sending.Wait()
	if ctx.Err() != nil && !w.named { // nothing else would end it
		return nil
	}
	return context.Cause(within)
}

// device is one for each directory of a cursor: by the device and the id a server knows a
// message that it has.
func device(dir string) string {
	if dir == "" {
		return ""
	}
	host, _ := os.Hostname() // without one the directory is all
	path, _ := filepath.Abs(dir)
	return idOf("device", host, path)
}
