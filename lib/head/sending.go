package head

import (
	"io"
	"sync"

	"distribute/lib/job"
	"distribute/lib/unit"
)

// A sendingOf is a submission of a user.
type sendingOf struct {
	uid int
	ref job.Token
}

// Sendings are the submissions that are under way. A tool that has lost its
// stream comes back with the same submission, perhaps before the head knows that
// the stream is lost: then the old one ends, and what came over it is taken up.
type sendings struct {
	mu sync.Mutex // guards of
	of map[sendingOf]*sending
}

type sending struct {
	stream io.Closer
	over   chan struct{}
}

// begin hangs up on who sends the same submission already, waits until that is
// over, and returns what is to be called at the end of this one.
func (s *sendings) begin(of sendingOf, stream io.Closer) (end func()) {
	mine := &sending{stream, make(chan struct{})}
	for {
		s.mu.Lock()
		before := s.of[of]
		if before == nil {
			if s.of == nil {
				s.of = map[sendingOf]*sending{}
			}
			s.of[of] = mine
		}
		s.mu.Unlock()
		if before == nil {
			break
		}
		before.stream.Close()
		<-before.over
	}
	return func() {
		s.mu.Lock()
		delete(s.of, of)
		s.mu.Unlock()
		close(mine.over)
	}
}

// dropUploads removes beginnings of inputs, because their room is needed.
func (h *Head) dropUploads(bytes int64) bool {
	dropped, err := h.store.DropUploads(bytes)
	if err != nil {
		h.log.Warn("cannot remove all partial uploads", "why", err)
	}
	if dropped > 0 {
		h.log.Info("partial uploads removed to make room on the disk", "bytes", unit.FormatBytes(dropped))
	}
	return dropped > 0
}
