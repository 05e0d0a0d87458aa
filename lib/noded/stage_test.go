package noded

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"time"

	"distribute/lib/job"
	"distribute/lib/wire"
)

// A strict handler panics on an illegal move of an attempt.
type strict struct{ slog.Handler }

func (s strict) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelError || s.Handler.Enabled(ctx, l)
}

func (s strict) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == illegalMove {
		panic(r.Message)
	}
	return s.Handler.Handle(ctx, r)
}

func strictLog(h slog.Handler) *slog.Logger { return slog.New(strict{h}) }

// Every move that is not in this list is refused, and leaves the attempt and what the
// head knows as they were.
func TestStages(t *testing.T) {
	legal := map[stage][]stage{
		stageGiven:    {stageFetching, stageBuilding, stageStalled, stageReady, stageAdopted, stageExited, stageOver},
		stageFetching: {stageBuilding, stageStalled, stageReady, stageOver},
		stageBuilding: {stageStalled, stageReady, stageOver},
		stageStalled:  {stageFetching, stageBuilding, stageReady, stageOver},
		stageReady:    {stageStalled, stageRunning, stageOver},
		stageRunning:  {stageReady, stageStuck, stageExited, stageOver},
		stageAdopted:  {stageExited, stageOver},
		stageStuck:    {stageExited, stageOver},
		stageExited:   {stagePacking, stageOver},
		stagePacking:  {stageOver},
	}
	for from := range numStages {
		for to := range numStages {
			n := testDaemon(1)
			a, _ := waits(n, 1)
			a.stage, a.phase = from, "as before"
			refused := func() (refused bool) {
				defer func() { refused = recover() != nil }()
				n.setStage(a, to)
				return false
			}()
			ok := from == to || slices.Contains(legal[from], to)
			if refused == ok || ok && a.stage != to || !ok && (a.stage != from || a.phase != "as before") {
				t.Errorf("from %s to %s: refused %v, and it is %s in phase %s", from, to, refused, a.stage, a.phase)
			}
		}
	}
}

// What the head is told of an attempt follows from its stage, and from what is frozen.
func TestPhases(t *testing.T) {
	n := testDaemon(1)
	a, _ := waits(n, 1)
	for i, c := range []struct {
		do   func()
		want job.Phase
	}{
		{func() {}, job.PhaseWaiting},
		{func() { n.setStage(a, stageFetching) }, job.PhaseSending},
		{func() { n.setStage(a, stageStalled) }, job.PhaseSending},
		{func() { n.setStage(a, stageBuilding) }, job.PhaseBuilding},
		{func() { n.setStage(a, stageReady) }, job.PhaseBuilding},
		{func() { n.setStage(a, stageRunning) }, job.PhaseRunning},
		{func() { n.pause.frozen = true; n.tellPhase(a) }, job.PhasePaused},
		{func() { n.pause.frozen, a.own = false, ownFrozen; n.tellPhase(a) }, job.PhasePaused},
		{func() { a.own = ownNone; n.tellPhase(a) }, job.PhaseRunning},
		{func() { n.setStage(a, stageStuck) }, job.PhaseStuck},
		{func() { n.pause.frozen = true; n.tellPhase(a) }, job.PhaseStuck},
		{func() { n.setStage(a, stageExited) }, job.PhaseStuck},
		{func() { n.setStage(a, stagePacking) }, job.PhaseReturning},
		{func() { n.setStage(a, stageOver) }, job.PhaseReturning},
	} {
		if c.do(); a.phase != c.want {
			t.Errorf("%d: in stage %s the head is told %s, and not %s", i, a.stage, a.phase, c.want)
		}
	}
}

// How long an attempt has run is told with each phase, and in the list, without pauses.
func TestRan(t *testing.T) {
	n := testDaemon(1)
	at := time.Hour
	n.Uptime = func() time.Duration { return at }
	n.link.out = newOutbox()
	a, _ := waits(n, 1)
	for i, c := range []struct {
		after time.Duration
		do    func()
		ran   float64
	}{
		{0, func() { n.setStage(a, stageFetching) }, 0},
		{time.Minute, func() { n.setStage(a, stageBuilding) }, 0},
		{time.Minute, func() { n.setStage(a, stageReady) }, 0},
		{time.Minute, func() { n.setStage(a, stageRunning) }, 0.001},
		{10 * time.Second, func() {}, 10},
		{5 * time.Second, func() { n.pause.frozen = true; n.tellPhase(a) }, 15},
		{8 * time.Hour, func() { a.own = ownFrozen; n.tellPhase(a) }, 15},
		{8 * time.Hour, func() { n.pause.frozen, a.own = false, ownNone; n.tellPhase(a) }, 15},
		{time.Second, func() {}, 16},
		{time.Second, func() { n.setStage(a, stageReady) }, 0},
		{time.Second, func() { n.setStage(a, stageRunning) }, 0.001},
		{16 * time.Second, func() {}, 16},
		{4 * time.Second, func() { n.setStage(a, stageStuck) }, 20},
	} {
		at += c.after
		c.do()
		if item := n.list()[0].(*wire.Item); item.Ran != c.ran {
			t.Errorf("%d: the list has that it ran for %g seconds, and not %g", i, item.Ran, c.ran)
		}
		for _, m := range n.link.out.take() {
			if p := m.(*wire.Phase); p.Ran != c.ran {
				t.Errorf("%d: with phase %s the head is told that it ran for %g seconds, and not %g", i, p.Phase, p.Ran, c.ran)
			}
		}
	}
}

// The first stop counts; it takes the place of a pause, and of a request to leave.
func TestEndings(t *testing.T) {
	for _, c := range []struct {
		from, to ending
		want     ending
	}{
		{endNot, endPaused, endPaused},
		{endPaused, endStopped, endStopped},
		{endAsked, endMemory, endMemory},
		{endAsked, endStopped, endStopped},
		{endMemory, endStopped, endMemory},
		{endStopped, endMemory, endStopped},
		{endStopped, endPaused, endStopped},
		{endAsked, endPaused, endAsked},
	} {
		a := &attempt{end: c.from, why: "before"}
		if changed := a.setEnding(c.to, "after"); a.end != c.want || changed != (c.want != c.from) || (a.why == "after") != changed {
			t.Errorf("from %d to %d: %d, %v, %q", c.from, c.to, a.end, changed, a.why)
		}
	}
}
