package job

import (
	"fmt"
	"slices"
	"strings"
)

// MaxRequests is how many different requests the jobs of a batch may make. A decision of
// the head takes longer with each.
const MaxRequests = 256

// Requests collects the different requests that the jobs of one batch make of nodes. Time and
// disk make no other request.
type Requests struct {
	seen map[request]struct{}
}

// A request is what a job asks of its node.
type request struct {
	Resources
	capabilities string // besides those of the batch
}

// Add adds what a job of a batch with that specification asks for. It returns an error if the
// jobs make more than [MaxRequests] requests with it.
func (r *Requests) Add(spec *Spec, j *Job) error {
	req := request{Resources: spec.Resources}
	if j.Resources != nil {
		req.Resources = *j.Resources
	}
	req.Time, req.Disk = 0, 0
	if len(j.Capabilities) > 0 {
		own := slices.DeleteFunc(slices.Clone(j.Capabilities), func(c string) bool { return slices.Contains(spec.Capabilities, c) })
		slices.Sort(own)
		req.capabilities = strings.Join(slices.Compact(own), "\x00")
	}
	if _, there := r.seen[req]; there {
		return nil
	}
	if len(r.seen) == MaxRequests {
		return fmt.Errorf("with job %.100q its jobs make more than %d different requests for cpus, memory, gpus, ranks, what is counted, and capabilities, which is the limit (round amounts up, or make several batches of it)", j.Name, MaxRequests)
	}
	if r.seen == nil {
		r.seen = map[request]struct{}{}
	}
	r.seen[req] = struct{}{}
	return nil
}
