package durable

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// FailVar is the environment variable that [Step] reads, once, when it is
// first called.
const FailVar = "D_FAIL"

// FailStatus is the exit status of a program that the action "exit" has ended.
const FailStatus = 99

// ErrStep is the error of a step whose action is "err".
var ErrStep = errors.New("failed on purpose (" + FailVar + ")")

// points is what FailVar says: nil before the first Step, off when it says
// nothing. It is state of the process because the variable is.
var points atomic.Pointer[steps]

var off = new(steps)

// steps is FailVar, parsed.
type steps struct {
	bad error // why the variable cannot be understood

	mu     sync.Mutex // guards what follows
	points []point
	list   bool
	names  []string // passed so far, each once, when list is set
	seen   map[string]bool
	file   string // where names go too
}

// point is one name of FailVar and what happens there.
type point struct {
	name   string // a step's name, or "*" for every step
	action string
	sleep  time.Duration
	file   string // that a step waits for
	pass   int    // which time it happens, from 1; 0 is always
	passed int
}

// Step marks a place where a crash leaves something that has to be right
// afterwards: between two system calls of a write path. A crash test stops the
// program there and looks at what is left. Programs in use do not set FailVar
// and have no [Observer], and a Step then returns nil at the cost of two atomic
// loads.
//
// FailVar is a list, separated by commas, of NAME:ACTION or NAME:ACTION:N,
// where NAME is a step or * for all, N says that only the Nth pass counts
// (from 1), and ACTION is one of
//
//	err         the step returns ErrStep
//	full        the step returns ENOSPC
//	io          the step returns EIO
//	exit        the program exits at once with FailStatus
//	kill        the program kills itself with SIGKILL
//	panic       the step panics
//	sleep=2s    the step takes that long and then returns nil
//	wait=FILE   the step returns nil once FILE is there
//
// or the single word list, which makes Steps tell the names passed, or
// list=FILE, which also appends each to FILE, a line each, when first passed.
// Every Step of a program whose FailVar makes no sense fails and says so.
//
//	if err := durable.Step("submit.rename"); err != nil {
//		return err
//	}
func Step(name string) error {
	if o := observer.Load(); o != nil && o.Step != nil {
		if err := o.Step(name); err != nil {
			return err
		}
	}
	p := points.Load()
	if p == off {
		return nil
	}
	if p == nil {
		points.CompareAndSwap(nil, parseSteps(os.Getenv(FailVar)))
		p = points.Load()
	}
	return p.at(name)
}

// Steps returns the names of the steps passed so far, each once, in the order
// of their first pass, if FailVar is list.
func Steps() []string {
	p := points.Load()
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.names...)
}

func parseSteps(text string) *steps {
	if text == "" {
		return off
	}
	s := &steps{seen: make(map[string]bool)}
	for word := range strings.SplitSeq(text, ",") {
		file, toFile := strings.CutPrefix(word, "list=")
		if word == "list" || toFile {
			s.list, s.file = true, file
			if !toFile {
				s.file = ""
			}
			continue
		}
		p, err := parsePoint(word)
		if err != nil {
			s.bad = fmt.Errorf("%s: %q: %w", FailVar, word, err)
			return s
		}
		s.points = append(s.points, p)
	}
	return s
}

func parsePoint(word string) (point, error) {
	part := strings.Split(word, ":")
	if len(part) < 2 || len(part) > 3 || part[0] == "" {
		return point{}, errors.New("want NAME:ACTION or NAME:ACTION:N")
	}
	p := point{name: part[0], action: part[1]}
	if len(part) == 3 {
		n, err := strconv.Atoi(part[2])
		if err != nil || n < 1 {
			return point{}, errors.New("the pass must be a number from 1")
		}
		p.pass = n
	}
	if length, ok := strings.CutPrefix(p.action, "sleep="); ok {
		d, err := time.ParseDuration(length)
		if err != nil {
			return point{}, err
		}
		p.action, p.sleep = "sleep", d
		return p, nil
	}
	if file, ok := strings.CutPrefix(p.action, "wait="); ok && file != "" {
		p.action, p.file = "wait", file
		return p, nil
	}
	switch p.action {
	case "err", "full", "io", "exit", "kill", "panic":
		return p, nil
	}
	return point{}, errors.New("the action must be err, full, io, exit, kill, panic, sleep=LENGTH or wait=FILE")
}

func (s *steps) at(name string) error {
	if s == off {
		return nil
	}
	if s.bad != nil {
		return s.bad
	}
	p, err := s.pass(name)
	if err != nil || p.action == "" {
		return err
	}
	return p.act(name)
}

// pass notes that the step was reached and returns the point that is due.
func (s *steps) pass(name string) (point, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.list && !s.seen[name] {
		s.seen[name] = true
		s.names = append(s.names, name)
		if err := appendName(s.file, name); err != nil {
			return point{}, err
		}
	}
	var due point
	for i := range s.points {
		p := &s.points[i]
		if p.name != name && p.name != "*" {
			continue
		}
		p.passed++
		if due.action == "" && (p.pass == 0 || p.pass == p.passed) {
			due = *p
		}
	}
	return due, nil
}

func appendName(file, name string) error {
	if file == "" {
		return nil
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o666)
	if err != nil {
		return err
	}
	_, err = f.WriteString(name + "\n")
	return errors.Join(err, f.Close())
}

func (p point) act(name string) error {
	switch p.action {
	case "exit":
		os.Exit(FailStatus)
	case "kill":
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
		time.Sleep(time.Hour) // the signal comes first
	case "sleep":
		time.Sleep(p.sleep)
		return nil
	case "wait":
		for _, err := os.Stat(p.file); err != nil; _, err = os.Stat(p.file) {
			time.Sleep(10 * time.Millisecond)
		}
		return nil
	case "panic":
		panic(name + ": failed on purpose (" + FailVar + ")")
	case "full":
		return fmt.Errorf("%s: %w: %w", name, ErrStep, syscall.ENOSPC)
	case "io":
		return fmt.Errorf("%s: %w: %w", name, ErrStep, syscall.EIO)
	}
	return fmt.Errorf("%s: %w", name, ErrStep)
}
