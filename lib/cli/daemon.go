package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"syscall"
)

// Log is the log of a daemon, a line for each record on stderr. Where that is the
// journal of systemd, a line begins with its priority as sd-daemon(3) has it, and
// says neither level nor time, which the journal keeps itself.
func (c *Cmd) Log(verbose bool) *slog.Logger {
	if verbose {
		return c.LogFrom(slog.LevelDebug)
	}
	return c.LogFrom(slog.LevelInfo)
}

// LogFrom is Log with what is of that level and above.
func (c *Cmd) LogFrom(level slog.Level) *slog.Logger {
	if isJournal(c.Stderr, c.Getenv("JOURNAL_STREAM")) {
		return slog.New(newJournal(c.Stderr, level))
	}
	return slog.New(slog.NewTextHandler(c.Stderr, &slog.HandlerOptions{Level: level}))
}

// isJournal says whether w is the stream that systemd.exec(5) names in
// $JOURNAL_STREAM, as device:inode: who has been given another in its place
// inherits the variable, too.
func isJournal(w io.Writer, stream string) bool {
	f, ok := w.(interface{ Stat() (os.FileInfo, error) })
	if !ok || stream == "" {
		return false
	}
	info, err := f.Stat()
	if err != nil {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && stream == fmt.Sprintf("%d:%d", st.Dev, st.Ino)
}

// priorities are those of syslog(3), each from a level on.
var priorities = [...]struct {
	from     slog.Level
	priority string
}{{slog.LevelError, "<3>"}, {slog.LevelWarn, "<4>"}, {slog.LevelInfo, "<6>"}, {slog.LevelDebug, "<7>"}}

// A journal has a handler for each priority, in that order.
type journal [len(priorities)]slog.Handler

func newJournal(w io.Writer, level slog.Level) *journal {
	var j journal
	options := &slog.HandlerOptions{Level: level, ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		_, level := a.Value.Any().(slog.Level)
		if len(groups) == 0 && (a.Key == slog.TimeKey && a.Value.Kind() == slog.KindTime || a.Key == slog.LevelKey && level) {
			return slog.Attr{}
		}
		return a
	}}
	for i := range j {
		j[i] = slog.NewTextHandler(prefixed{w, priorities[i].priority}, options)
	}
	return &j
}

func (j *journal) Enabled(ctx context.Context, level slog.Level) bool {
	return j[0].Enabled(ctx, level)
}

// Handle writes the record in one piece.
func (j *journal) Handle(ctx context.Context, r slog.Record) error {
	for i, p := range priorities {
		if r.Level >= p.from {
			return j[i].Handle(ctx, r)
		}
	}
	return j[len(j)-1].Handle(ctx, r)
}

// WithAttrs is of slog.Handler.
func (j *journal) WithAttrs(attrs []slog.Attr) slog.Handler {
	return j.each(func(h slog.Handler) slog.Handler { return h.WithAttrs(attrs) })
}

// WithGroup is of slog.Handler.
func (j *journal) WithGroup(name string) slog.Handler {
	return j.each(func(h slog.Handler) slog.Handler { return h.WithGroup(name) })
}

func (j *journal) each(change func(slog.Handler) slog.Handler) *journal {
	var changed journal
	for i, h := range j {
		changed[i] = change(h)
	}
	return &changed
}

// prefixed writes each piece after a prefix.
type prefixed struct {
	w      io.Writer
	prefix string
}

func (p prefixed) Write(b []byte) (int, error) {
	n, err := p.w.Write(append([]byte(p.prefix), b...))
	return max(0, n-len(p.prefix)), err
}

// Ready tells systemd that the daemon has come up, if that has started it and
// waits to be told: sd_notify(3) without its library. Without effect otherwise.
func (c *Cmd) Ready(log *slog.Logger) {
	if err := c.ready(); err != nil {
		log.Error("systemd cannot be told that it is up", "why", err)
	}
}

func (c *Cmd) ready() error {
	path := c.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return nil
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = io.WriteString(conn, "READY=1")
	return err
}
