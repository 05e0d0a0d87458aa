// Dnotify tells people when a batch is over, fails, or a node is lost. See
// dnotify(1).
package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

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
	file, operator := c.String("m", ""), c.String("O", "")
	quiet, verbose := c.Bool("q"), c.Bool("v")
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
	told, err := openSent(*dir)
	if err != nil {
		return err
	}
	defer told.close()
	// What is told is seen where it is told; of Matrix the log is all that is here.
	level := slog.LevelWarn
	switch {
	case *verbose:
		level = slog.LevelDebug
	case *file != "" && !*quiet:
		level = slog.LevelInfo
	}
	out := &outbox{told: told, log: c.LogFrom(level), wake: make(chan struct{}, 1), due: map[string]bool{}}
	switch {
	case *file != "":
		m := &byMatrix{file: *file, told: told}
		if *dir != "" {
			m.device = device(*dir)
		}
		if err := m.read(); err != nil {
			return credentialsError(err)
		}
		defer m.close()
		out.way = m
	case c.Dashed:
		out.way = &byCommand{argv: c.Command, out: c.Stdout, talk: c.Stderr}
	default:
		out.way = &byPrint{c.Stdout}
	}
	w := &watch{c: c, ops: ops, all: *all, told: told, out: out, matrix: *file != "", operator: *operator,
		failing: map[job.BatchID]time.Time{}, lost: map[string]time.Time{}, nodes: len(ops.Args) == 0 && (*file == "" || *operator != "")}
	if w.sessions, err = ask.NewSessions(c, *head); err != nil {
		return err
	}
	defer w.sessions.Close()
	signalled := ctx
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var sender sync.WaitGroup
	sender.Go(func() { stop(out.run(ctx)) })
	err = ask.Again(ctx, c, func(progress func()) error { return w.session(ctx, progress) })
	if err == nil {
		out.end()
	} else {
		stop(err)
	}
	sender.Wait()
	if signalled.Err() != nil && len(ops.Args) == 0 { // nothing else would end it
		return nil
	}
	if signalled.Err() != nil {
		return signalled.Err()
	}
	if err == nil || errors.Is(err, context.Canceled) {
		if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
			return cause
		}
	}
	return err
}

// device is who sends what the memory in dir tells of.
func device(dir string) string {
	host, _ := os.Hostname() // without one the directory is all
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	return fmt.Sprintf("dnotify-%x", sha256.Sum256([]byte(host+"\x00"+dir)))[:24]
}

// credentialsError is the error of a file that people have to change.
func credentialsError(err error) error {
	if errors.Is(err, matrix.ErrCredentials) {
		return cli.Errorf(cli.Input, "%w", err)
	}
	return err
}
