package presence

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A terminals goes by when each console and pseudo-terminal was read from last,
// which the kernel notes when somebody has typed, to 8 seconds.
type terminals struct {
	root string
	name func(uid int) string
	at   map[string]int64 // when each was read from, in seconds, as it was seen last
}

func (t *terminals) look(_ context.Context, m Moment) Reading {
	var last Reading
	at := map[string]int64{}
	for _, in := range []struct{ dir, prefix string }{{"/dev", "tty"}, {"/dev/pts", ""}} {
		names, err := namesIn(t.root + in.dir)
		if err != nil {
			return Reading{Err: err}
		}
		for _, name := range names {
			digits, ok := strings.CutPrefix(name, in.prefix)
			if !ok || digits == "" || strings.Trim(digits, "0123456789") != "" {
				continue
			}
			full := path.Join(in.dir, name)
			var st unix.Stat_t
			if unix.Lstat(t.root+full, &st) != nil {
				continue
			}
			// A console that nobody has used was made with the machine's start.
			if in.prefix != "" && st.Uid == 0 && st.Atim.Sec <= st.Ctim.Sec {
				continue
			}
			at[full] = st.Atim.Sec
			when, ok := t.typed(m, full, &st)
			if ok && (!last.Seen || when > last.Last) {
				last = Reading{Seen: true, Last: when, What: fmt.Sprintf("terminal %s (%s)", strings.TrimPrefix(full, "/dev/"), t.name(int(st.Uid)))}
			}
		}
	}
	t.at = at
	return last
}

// typed is when a terminal was typed at, after the machine's start. Of a time to
// come, which a clock that was set back makes, only a change says something.
func (t *terminals) typed(m Moment, full string, st *unix.Stat_t) (when time.Duration, ok bool) {
	was, known := t.at[full]
	ago := m.Now.Sub(time.Unix(st.Atim.Sec, 0))
	if ago < 0 {
		return m.Uptime, !known || was != st.Atim.Sec
	}
	return m.Uptime - ago, true
}

// namesIn is the names in a directory; none if it is not there.
func namesIn(dir string) ([]string, error) {
	d, err := os.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.Readdirnames(-1)
}
