package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"distribute/lib/job"
	"distribute/lib/proc"
	"distribute/lib/wire"
)

// logs is what the build and the jobs print, on its way to stderr: as the node tells
// it while they run, and what is left of it, of short ones all, from where it lies
// when they are over.
type logs struct {
	h *head

	mu    sync.Mutex // guards the rest
	of    map[uint64]*printing
	begun map[job.Token]*printing
	build *printing
}

// A printing is what one attempt has printed.
type printing struct {
	name string
	seen int64  // bytes of it
	over bool   // all of it was shown
	rest []byte // of the last line, as far as it has come
}

func newLogs(h *head) *logs {
	return &logs{h: h, of: map[uint64]*printing{}, begun: map[job.Token]*printing{}}
}

// follow asks for what an attempt prints once it runs, and for what the build prints
// for which it waits.
func (l *logs) follow(s *session, p *wire.Phase, name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var of *printing
	switch {
	case p.Phase == job.PhaseBuilding && l.build == nil:
		l.build = &printing{name: "build"}
		of = l.build
	case p.Phase == job.PhaseRunning && l.begun[p.Attempt] == nil:
		l.showBuild()
		of = &printing{name: name}
		l.begun[p.Attempt] = of
	default:
		return
	}
	x := uint64(len(l.of) + 1)
	l.of[x] = of
	s.put(&wire.Tail{X: x, Attempt: p.Attempt, Build: p.Phase == job.PhaseBuilding, Follow: true})
}

// showBuild shows what is left of what the build printed, which is over.
func (l *logs) showBuild() {
	if l.build == nil {
		return
	}
	if at, _ := filepath.Glob(filepath.Join(l.h.dir, "node", "builds", "*", "output")); len(at) == 1 {
		l.finish(l.build, at[0])
	}
}

// ended shows what is left of what an attempt printed, whose result lies there.
func (l *logs) ended(t job.Token, name, dir string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.begun[t]
	if p == nil {
		p = &printing{name: name}
		l.begun[t] = p
	}
	l.showBuild()
	l.finish(p, filepath.Join(dir, job.OutputName(name)))
}

func (l *logs) finish(p *printing, file string) {
	if p.over {
		return
	}
	f, err := os.Open(file)
	if err != nil {
		return
	}
	defer f.Close()
	if _, err := f.Seek(p.seen, io.SeekStart); err != nil {
		return
	}
	part := make([]byte, 64<<10)
	for {
		n, err := f.Read(part)
		l.show(p, part[:n])
		if err != nil {
			break
		}
	}
	p.over = true
	if len(p.rest) > 0 {
		l.h.c.Talk("%s: %s", p.name, p.rest)
	}
}

// maxShown is how many bytes of a line are shown at once.
const maxShown = 64 << 10

// show shows the lines that are whole.
func (l *logs) show(p *printing, text []byte) {
	p.seen += int64(len(text))
	p.rest = append(p.rest, text...)
	for {
		line, rest, whole := bytes.Cut(p.rest, []byte{'\n'})
		if !whole && len(p.rest) < maxShown {
			return
		}
		l.h.c.Talk("%s: %s", p.name, line)
		p.rest = rest
	}
}

// take shows what has come.
func (l *logs) take(d *wire.Data) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := l.of[d.X]; p != nil && !p.over {
		l.show(p, d.Payload)
	}
}

// shell is an order as a line for a shell, which does the same again.
func shell(o *proc.Order) string {
	words := []string{"cd", quote(o.Cwd), "&&"}
	env := []string{"env", "-i"}
	id := "build"
	for _, kv := range append(o.Env[:len(o.Env):len(o.Env)], proc.Marker+"="+o.Token) {
		name, value, _ := strings.Cut(kv, "=")
		env = append(env, name+"="+quote(value))
		switch name {
		case "TMPDIR":
			words = append(words, "mkdir", "-p", quote(value), "&&")
		case "DISTRIBUTE_ID":
			id = value
		}
	}
	words = append(words, env...)
	for _, w := range o.Argv {
		words = append(words, quote(w))
	}
	return strings.Join(words, " ") + " # " + id
}

// quote is a word as a shell reads it.
func quote(s string) string {
	plain := s != "" && strings.IndexFunc(s, func(r rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+./,:=@%", r)
	}) < 0
	if plain {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
