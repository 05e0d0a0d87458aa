package main

import (
	"context"
	"time"

	"distribute/lib/hours"
	"distribute/lib/inventory"
	"distribute/lib/presence"
)

// presenceConfig is when the node pauses by itself.
func presenceConfig(f *inventory.File) presence.Config {
	return presence.Config{AutoPause: f.AutoPause, Hours: f.Hours, Sources: f.Presence}
}

// presenceFacts says for dnoded -n whether the node would be paused by itself now, and
// what each source of presence says.
func presenceFacts(ctx context.Context, f *inventory.File) (facts []inventory.Fact) {
	add := func(what, value, why string) {
		facts = append(facts, inventory.Fact{What: what, Value: value, Why: why})
	}
	now := time.Now()
	if until, text, in := hours.Within(f.Hours, now); in {
		add("hours", "now", text+", until "+until.Format("Mon 15:04"))
	} else if len(f.Hours) > 0 {
		add("hours", "not now", "next "+hours.Next(f.Hours, now).Format("Mon 15:04"))
	}
	w := presence.New(presenceConfig(f), presence.Host{})
	if why := w.Look(ctx); why != "" {
		add("auto_pause", "now", why)
	} else if f.AutoPause > 0 {
		add("auto_pause", "not now", "nobody is seen")
	}
	for _, a := range w.Answers() {
		add("presence", a.Source, a.Text)
	}
	return facts
}
