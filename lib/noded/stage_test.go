package noded

import (
	"context"
	"log/slog"
	"slices"
	"testing"

	"distribute/lib/job"
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
