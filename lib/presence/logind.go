package presence

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The source logind asks loginctl(1) for the sessions of users.
type logind struct {
	root  string
	since map[string]int64 // of each session by its id: the time of the idle hint at the last look, in microseconds
}

func (l *logind) look(ctx context.Context, m Moment) (last sighting, err error) {
	program, err := exec.LookPath("loginctl")
	if err != nil {
		return last, absent("loginctl is not installed")
	}
	if _, err := os.Stat(l.root + "/run/systemd/seats"); err != nil {
		return last, absent("logind does not run")
	}
	list, err := ask(ctx, program, "list-sessions", "--no-legend")
	if err != nil && strings.Contains(err.Error(), "not been booted with systemd") {
		return last, absent("logind does not run")
	}
	if err != nil {
		return last, err
	}
	show := []string{"show-session", "--"}
	for line := range strings.Lines(list) {
		if f := strings.Fields(line); len(f) > 0 {
			show = append(show, f[0])
		}
	}
	if len(show) == 2 {
		return last, nil
	}
	shown, err := ask(ctx, program, show...)
	if err != nil && shown == "" { // else one session has ended since it was listed
		return last, err
	}
	before := l.since
	l.since = map[string]int64{}
	// Each session is lines of NAME=VALUE; an empty line is between two.
	for text := range strings.SplitSeq(shown, "\n\n") {
		s := map[string]string{}
		for line := range strings.SplitSeq(text, "\n") {
			name, value, _ := strings.Cut(line, "=")
			s[name] = value
		}
		since, _ := strconv.ParseInt(s["IdleSinceHint"], 10, 64)
		l.since[s["Id"]] = since
		found := session(m, s, since)
		// After the clock was set back only a change of a time to come is activity.
		if was, known := before[s["Id"]]; found.at > m.Uptime && known && was == since {
			continue
		}
		if found.at > last.at {
			last = found
		}
	}
	return last, nil
}

// session tells when the user of a session was active, from the properties that
// loginctl shows. Of a desktop they say whether it is idle; of a terminal the time of
// the idle hint, since, is when somebody typed last, and 0 without a terminal.
func session(m Moment, s map[string]string, since int64) sighting {
	desktop := slices.Contains([]string{"x11", "wayland", "mir"}, s["Type"])
	where := s["TTY"]
	if desktop {
		where = s["Type"]
	}
	what := fmt.Sprintf("session %s (%s, %s)", s["Id"], s["Name"], where)
	switch {
	case !strings.HasPrefix(s["Class"], "user") || s["State"] == "closing" || s["LockedHint"] == "yes":
	case desktop && s["Seat"] != "" && s["Active"] != "yes": // another session is in front
	case desktop && s["IdleHint"] != "yes":
		return sighting{m.Uptime, what}
	case since > 0:
		return sighting{m.Uptime - m.Now.Sub(time.UnixMicro(since)), what}
	}
	return sighting{}
}

// answerWithin is how long loginctl may take.
var answerWithin = 5 * time.Second

// ask runs loginctl, and returns what it prints. The error is its first line on
// stderr, if it prints one.
func ask(ctx context.Context, program string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = []string{"LC_ALL=C.UTF-8", "SYSTEMD_COLORS=0", "SYSTEMD_PAGER="}
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	var exit *exec.ExitError
	if ctx.Err() != nil {
		err = errors.New("loginctl does not answer")
	} else if errors.As(err, &exit) && len(exit.Stderr) > 0 {
		text, _, _ := strings.Cut(string(exit.Stderr), "\n")
		err = fmt.Errorf("loginctl: %s", text)
	}
	return string(out), err
}
