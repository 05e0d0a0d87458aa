package main

import (
	"context"
	"time"

	"distribute/lib/account"
	"distribute/lib/cli"
	"distribute/lib/hours"
	"distribute/lib/inventory"
	"distribute/lib/presence"
)

// standStill is when the node pauses by itself.
func standStill(f *inventory.File) presence.Config {
	return presence.Config{AutoPause: f.AutoPause, Hours: f.Hours, Sources: f.Presence}
}

// whoIsThere is what each source that counts says now of people at this machine.
func whoIsThere(ctx context.Context, c *cli.Cmd, f *inventory.File) (facts []inventory.Fact) {
	if until, text, in := hours.Within(f.Hours, time.Now()); in {
		facts = append(facts, inventory.Fact{What: "hours", Value: "now", Why: text + ", until " + until.Format("Mon 15:04")})
	} else if len(f.Hours) > 0 {
		facts = append(facts, inventory.Fact{What: "hours", Value: "not now", Why: "next " + hours.Next(f.Hours, time.Now()).Format("Mon 15:04")})
	}
	if f.AutoPause == 0 {
		return facts
	}
	w := presence.New(standStill(f), presence.Host{Path: c.Getenv("PATH"), Name: account.UserName})
	v, err := w.Look(ctx, true)
	if err != nil {
		return append(facts, inventory.Fact{What: "auto_pause", Value: "now", Why: err.Error()})
	}
	now := inventory.Fact{What: "auto_pause", Value: "not now", Why: "nobody is seen"}
	if v.Here {
		now.Value, now.Why = "now", v.What
	}
	facts = append(facts, now)
	for _, s := range w.Say() {
		facts = append(facts, inventory.Fact{What: "presence", Value: s.Source, Why: s.Text})
	}
	return facts
}
