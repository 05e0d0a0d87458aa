package presence

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// The source terminals goes by the access times of consoles and pseudo-terminals:
// the kernel sets them, to 8 seconds, when somebody has typed.
type terminals struct {
	root  string
	name  func(uid int) string
	names map[int]string   // of users: looking one up may cost a process
	atime map[string]int64 // of each terminal at the last look, in seconds
}

var terminal = regexp.MustCompile(`^/dev/(tty|pts/)[0-9]+$`)

func (t *terminals) look(_ context.Context, m Moment) (last sighting, err error) {
	before := t.atime
	t.atime = map[string]int64{}
	uid := -1
	for _, dir := range []string{"/dev/", "/dev/pts/"} {
		names, err := namesIn(t.root + dir)
		if err != nil {
			return sighting{}, err
		}
		for _, name := range names {
			name = dir + name
			var st unix.Stat_t
			if !terminal.MatchString(name) || unix.Lstat(t.root+name, &st) != nil {
				continue
			}
			// Nobody has typed at a console of root whose times are all of the boot.
			if dir == "/dev/" && st.Uid == 0 && st.Atim.Sec <= st.Ctim.Sec {
				continue
			}
			t.atime[name] = st.Atim.Sec
			at := m.Uptime - m.Now.Sub(time.Unix(st.Atim.Sec, 0))
			// After the clock was set back only a change of a time to come is activity.
			if was, known := before[name]; at > m.Uptime && known && was == st.Atim.Sec {
				continue
			}
			if at > last.at {
				last, uid = sighting{at, strings.TrimPrefix(name, "/dev/")}, int(st.Uid)
			}
		}
	}
	if last.at > 0 {
		if t.names[uid] == "" {
			t.names = map[int]string{uid: t.name(uid)}
		}
		last.what = fmt.Sprintf("terminal %s (%s)", last.what, t.names[uid])
	}
	return last, nil
}
