package presence

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// How often logind is asked, which costs two processes, and for how long it is
// waited for.
const (
	logindEvery  = 30 * time.Second
	freshEvery   = 5 * time.Second
	answerWithin = 5 * time.Second
	maxSessions  = 1000
)

// A logind asks loginctl(1).
type logind struct{ root, path string }

func (l *logind) look(ctx context.Context, m Moment) Reading {
	program := find("loginctl", l.path)
	if program == "" {
		return Reading{Err: absence("loginctl is not installed")}
	}
	if _, err := os.Stat(l.root + "/run/systemd/seats"); err != nil {
		return Reading{Err: absence("logind does not run")}
	}
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	list, err := ask(ctx, program, "list-sessions", "--no-legend")
	if err != nil && strings.Contains(err.Error(), "not been booted with systemd") {
		return Reading{Err: absence("logind does not run")}
	}
	if err != nil {
		return Reading{Err: err}
	}
	var ids []string
	for line := range strings.Lines(string(list)) {
		if f := strings.Fields(line); len(f) > 0 && isSession(f[0]) && len(ids) < maxSessions {
			ids = append(ids, f[0])
		}
	}
	if len(ids) == 0 {
		return Reading{}
	}
	var words []string
	for _, p := range properties {
		words = append(words, "-p", p)
	}
	shown, err := ask(ctx, program, append(append([]string{"show-session"}, words...), ids...)...)
	if err != nil && len(shown) == 0 {
		return Reading{Err: err} // one that has ended meanwhile is no error of the others
	}
	return inFront(m, string(shown))
}

// properties are what is asked of each session.
var properties = []string{"Id", "Name", "Class", "Type", "Seat", "TTY", "State", "Active", "IdleHint", "IdleSinceHint", "LockedHint"}

// isSession says whether a word can be the id of a session: it is an operand.
func isSession(word string) bool {
	return len(word) < 100 && !strings.HasPrefix(word, "-") && strings.Trim(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == ""
}

// inFront is the most recent of what sessions show. They are groups of lines, with
// an empty one between them.
func inFront(m Moment, shown string) (last Reading) {
	for text := range strings.SplitSeq(shown, "\n\n") {
		s := map[string]string{}
		for line := range strings.Lines(text) {
			if name, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "="); ok {
				s[name] = value
			}
		}
		if r := session(m, s); r.Seen && (!last.Seen || r.Last > last.Last) {
			last = r
		}
	}
	return last
}

// session is what one session says. Only a desktop tells when it is idle: of a
// terminal the time of the hint is when it was read from last.
func session(m Moment, s map[string]string) (r Reading) {
	if !strings.HasPrefix(s["Class"], "user") || s["State"] == "closing" || s["LockedHint"] == "yes" {
		return r
	}
	usec, _ := strconv.ParseInt(s["IdleSinceHint"], 10, 64)
	since := m.Uptime - m.Now.Sub(time.UnixMicro(usec))
	name := s["Name"]
	if slices.Contains([]string{"x11", "wayland", "mir"}, s["Type"]) {
		switch {
		case s["Seat"] != "" && s["Active"] != "yes":
			return r // another one is in front
		case s["IdleHint"] != "yes":
			since = m.Uptime
		case usec == 0:
			return r
		}
		return Reading{Seen: true, Last: since, What: fmt.Sprintf("session %s (%s, %s)", s["Id"], name, s["Type"])}
	}
	if usec == 0 {
		return r // it has no terminal
	}
	return Reading{Seen: true, Last: since, What: fmt.Sprintf("session %s (%s, %s)", s["Id"], name, s["TTY"])}
}

// ask runs a program that only tells, with nothing of the environment that changes
// what it says. Its error is what it complained of.
func ask(ctx context.Context, program string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = []string{"LC_ALL=C.UTF-8", "SYSTEMD_COLORS=0", "SYSTEMD_PAGER="}
	cmd.WaitDelay = time.Second
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &bounded{&out}, &bounded{&complaint}
	err := cmd.Run()
	switch text, _, _ := strings.Cut(strings.TrimSpace(complaint.String()), "\n"); {
	case err == nil:
	case ctx.Err() != nil:
		err = fmt.Errorf("%s does not answer", filepath.Base(program))
	case text != "":
		err = fmt.Errorf("%s: %s", filepath.Base(program), text)
	default:
		err = fmt.Errorf("%s: %w", filepath.Base(program), err)
	}
	return out.Bytes(), err
}

// bounded takes as much as a megabyte, and passes over the rest.
type bounded struct{ *bytes.Buffer }

func (b *bounded) Write(p []byte) (int, error) {
	b.Buffer.Write(p[:min(len(p), max(0, 1<<20-b.Len()))])
	return len(p), nil
}

// find is an executable file of that name, "" if there is none in path.
func find(name, path string) string {
	for _, dir := range filepath.SplitList(path) {
		full := filepath.Join(dir, name)
		if info, err := os.Stat(full); err == nil && filepath.IsAbs(full) && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return full
		}
	}
	return ""
}
