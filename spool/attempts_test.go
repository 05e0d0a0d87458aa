package spool

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"distribute/lib/job"
)

// Each attempt of a job is told once, in the order in which they started, as it ended.
func TestReadAttempts(t *testing.T) {
	one, zero := 1, 0
	of := func(rec job.Record, kind job.Kind, change func(*job.Record)) job.Record {
		rec = job.Record{Kind: kind, Job: rec.Job, Attempt: rec.Attempt, Try: rec.Try, Node: rec.Node}
		if change != nil {
			change(&rec)
		}
		return rec
	}
	lost := func(r *job.Record) { r.Fate, r.Reason = job.FateLost, "ws1 is gone" }
	exits := func(n *int) func(*job.Record) {
		return func(r *job.Record) { r.Exit, r.Runtime, r.Started, r.Ended = n, 5, time.Unix(10, 0), time.Unix(15, 0) }
	}
	first, second, third := start("a", 1), start("a", 2), start("a", 3)
	retry := job.Record{Kind: job.KindRetry, Job: "a"}
	cancelled := job.Record{Kind: job.KindCancelled, Job: "a", Outcome: job.Outcome{Reason: "by ana"}}
	for name, c := range map[string]struct {
		log  []job.Record
		want string
	}{
		"none":                 {nil, ""},
		"one runs":             {[]job.Record{first}, "1 running"},
		"lost":                 {[]job.Record{first, of(first, job.KindBack, lost)}, "1 queued lost: ws1 is gone"},
		"lost, told later":     {[]job.Record{first, of(first, job.KindBack, lost), second, of(first, job.KindLate, exits(&one))}, "1 queued lost: ws1 is gone 5s, 2 running"},
		"failed, tried again":  {[]job.Record{first, of(first, job.KindBack, exits(&one)), second, of(second, job.KindDone, exits(&zero))}, "1 failed 5s, 2 done after exit 1 on ws1 5s"},
		"failed, dretry":       {[]job.Record{first, of(first, job.KindFailed, exits(&one)), retry, second}, "1 failed 5s, 2 running"},
		"cancelled":            {[]job.Record{first, cancelled}, "1 cancelled by ana"},
		"cancelled, waiting":   {[]job.Record{first, of(first, job.KindBack, lost), cancelled}, "1 queued lost: ws1 is gone"},
		"cancelled, retried":   {[]job.Record{first, cancelled, retry, second}, "1 cancelled by ana, 2 running"},
		"failed, cancelled":    {[]job.Record{first, of(first, job.KindFailed, exits(&one)), retry, cancelled, retry, cancelled, retry}, "1 failed 5s"},
		"lost, not built":      {[]job.Record{first, of(first, job.KindBack, lost), {Kind: job.KindFailed, Job: "a", Outcome: job.Outcome{Reason: "build failed"}}, retry, second}, "1 queued lost: ws1 is gone, 2 running"},
		"not built":            {[]job.Record{first, of(first, job.KindBack, func(r *job.Record) { r.Fate, r.Reason = job.FateBuildFailed, "build failed" })}, "1 failed build failed"},
		"found again, later":   {[]job.Record{first, of(first, job.KindBack, lost), second, of(second, job.KindBack, lost), of(first, job.KindAdopt, nil)}, "1 running, 2 queued lost: ws1 is gone"},
		"found running":        {[]job.Record{first, of(first, job.KindBack, lost), of(first, job.KindAdopt, nil)}, "1 running"},
		"an earlier one done":  {[]job.Record{first, of(first, job.KindBack, lost), second, of(first, job.KindDone, exits(&zero))}, "1 done 5s, 2 cancelled another attempt was done first"},
		"handed back":          {[]job.Record{first, of(first, job.KindBack, func(r *job.Record) { r.Fate = job.FateNodePaused }), second, of(second, job.KindBack, func(r *job.Record) { r.Fate = job.FateEvicted }), third}, "1 queued node paused, 2 queued evicted, 3 running"},
		"failed without a new": {[]job.Record{first, of(first, job.KindBack, lost), {Kind: job.KindFailed, Job: "a", Outcome: job.Outcome{Reason: "build failed"}}}, "1 queued lost: ws1 is gone"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHead(t)
			b := submit(t, h, "ns/b", []string{"a", "b"})
			commit(t, h, b, slices.Clone(c.log)...)
			var got []string
			err := h.ReadAttempts(b.ID, -1, func(r *job.Row) error {
				for _, a := range r.Attempts() {
					text := strings.TrimSuffix(fmt.Sprintf("%d %s %s", a.Attempt, a.State, a.Reason), " ")
					if a.Runtime > 0 {
						text += fmt.Sprintf(" %gs", a.Runtime)
					}
					if a.ID != "ns/b/a" || a.Started.IsZero() || a.State != job.Running && a.Ended.IsZero() {
						t.Errorf("%s: %s from %v to %v", a.ID, text, a.Started, a.Ended)
					}
					got = append(got, text)
				}
				return nil
			})
			if text := strings.Join(got, ", "); err != nil || text != c.want {
				t.Errorf("%v, %q; want %q", err, text, c.want)
			}
		})
	}
}
