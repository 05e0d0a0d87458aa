package head

import (
	"distribute/lib/job"
	"distribute/spool"
)

// often is how often a job of the batch is tried again.
func (b *simBatch) often(name string) int {
	for _, j := range b.known() {
		if j.Name == name && j.Retries != nil {
			return *j.Retries
		}
	}
	return b.spec.Retries
}

// triesAtRest checks that each job was tried again as often as it may be when it
// failed, and not more often. A batch that was given up after so many failed jobs
// tries none again.
func (w *world) triesAtRest(s *spool.Spool, b *simBatch) {
	fails := map[string]int{}
	_, err := s.Events(b.id, 0, -1, func(rec *job.Record) error {
		switch may := b.often(rec.Job); {
		case rec.Kind == job.KindRetry:
			fails[rec.Job] = 0
		case rec.Kind == job.KindBack && rec.Fate == job.FateEnded:
			if fails[rec.Job]++; fails[rec.Job] > may {
				w.wrong("%s of %s is tried again for the %dth time, and may be %d times", rec.Job, b.id, fails[rec.Job], may)
			}
		case rec.Kind == job.KindFailed && rec.Exit != nil && rec.Fate != job.FateLost && fails[rec.Job] < may && b.spec.StopAfter == 0:
			w.wrong("%s of %s has failed after %d of %d tries more", rec.Job, b.id, fails[rec.Job], may)
		}
		return nil
	})
	if err != nil {
		w.wrong("I8: the log of %s: %v", b.id, err)
	}
}
