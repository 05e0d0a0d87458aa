package noded

import (
	"fmt"
	"math/rand/v2"
	"net"
	"path/filepath"
	"strconv"
	"sync"

	"distribute/lib/job"
	"distribute/lib/proc"
)

// ranksOf is the first processes of a job of several ranks, each with its part of the share of
// its node, from what each asks for and the environment that one with a part has.
func (n *daemon) ranksOf(s *share, asked job.Resources, output func(k int) string, env func(on *daemon, part *share, own []string) []string) (list []proc.Rank) {
	for _, p := range s.portions(n) {
		for i := range p.share.ranks {
			k, part := len(list), p.share.rank(i, p.share.ranks)
			list = append(list, proc.Rank{Env: env(p.on, part, rankEnv(k, asked.Ranks, s.port)), Output: output(k), CPUs: part.on, Memory: asked.MostMemory()})
		}
	}
	return list
}

// rank is what one of so many ranks has of a share.
func (s *share) rank(k, of int) *share {
	part := *s
	part.cpus, part.memory, part.gpus = s.cpus/of, s.memory/int64(of), s.gpus/job.GPUs(of)
	if part.on = nil; len(s.on) >= of*part.cpus {
		part.on = s.on[k*part.cpus : (k+1)*part.cpus]
	}
	cards, n := s.cards.Indexes(), part.gpus.Cards()
	part.cards = job.CardsOf(part.gpus, cards[min(k*n, len(cards)):min((k+1)*n, len(cards))])
	return &part
}

// rankEnv tells a rank which it is, and where the first one can be met. RANK and the like are
// what torchrun sets, and what programs look for that Open MPI or others may have started.
func rankEnv(k, of, port int) []string {
	rank, ranks := strconv.Itoa(k), strconv.Itoa(of)
	return []string{"DISTRIBUTE_RANK=" + rank, "DISTRIBUTE_RANKS=" + ranks, "MASTER_ADDR=127.0.0.1", "MASTER_PORT=" + strconv.Itoa(port),
		"RANK=" + rank, "WORLD_SIZE=" + ranks, "LOCAL_RANK=" + rank, "LOCAL_WORLD_SIZE=" + ranks}
}

// outputs are the files into which an attempt prints.
func (a *attempt) outputs() []string {
	all := []string{a.Output()}
	if s := a.Started(); s != nil {
		for k := 1; k < s.Ranks; k++ {
			all = append(all, a.RankOutput(k))
		}
	}
	return all
}

// failedOutput is the file of what the rank printed that has failed, or else of what the
// attempt did.
func (a *attempt) failedOutput(r *job.Result) string {
	if r.Rank != nil {
		return a.RankOutput(*r.Rank)
	}
	return a.Output()
}

// printedFiles are those in the attempt's directory, by the paths that they have at home.
func (a *attempt) printedFiles() map[string]string {
	ranks := 0
	if s := a.Started(); s != nil {
		ranks = s.Ranks
	}
	return job.PrintedFiles(a.Job.Name(), ranks, func(k int) string { return filepath.Base(a.RankOutput(k)) })
}

// Where nothing else is said the ports of a node for its jobs of several ranks are those that
// torchrun begins with.
const (
	firstPort = 29500
	lastPort  = 29999
)

// ports are those of this machine, of which each job of several ranks has one: all nodes that
// one process is share them.
var ports = &portPool{used: map[int]bool{}}

type portPool struct {
	mu   sync.Mutex // guards used
	used map[int]bool
}

// reservePort is a port of the range that no other job of ours has and at which nobody listens,
// searched from a random one on: another dnoded may be on the machine. It is tried at all
// addresses, as torchrun and others listen, whatever they were told.
func (p *portPool) reservePort(first, last int) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	all, from := last-first+1, rand.IntN(last-first+1)
	for i := range all {
		port := first + (from+i)%all
		if p.used[port] {
			continue
		}
		l, err := net.Listen("tcp", ":"+strconv.Itoa(port))
		if err != nil {
			continue
		}
		l.Close()
		p.used[port] = true
		return port, nil
	}
	return 0, fmt.Errorf("no port from %d to %d is free for its ranks", first, last)
}

// claimPort marks a port as used that a job of an earlier daemon has; 0 is none.
func (p *portPool) claimPort(port int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if port != 0 {
		p.used[port] = true
	}
}

// releasePort gives it back.
func (p *portPool) releasePort(port int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.used, port)
}

// reservePort is a port for an attempt of several ranks.
func (n *daemon) reservePort() (int, error) {
	first, last := n.given().Ports[0], n.given().Ports[1]
	if first == 0 {
		first, last = firstPort, lastPort
	}
	return ports.reservePort(first, last)
}

// failedItself says that one of several ranks has failed. When all are asked to end, as at the
// limit of time, which of them was the first says nothing.
func failedItself(st *proc.Status) bool {
	return st.Rank != nil && st.Error == "" && (st.Stopped == "" || st.Stopped == proc.StoppedMemory) && !st.Evicted
}

// rankFailed is why a job of several ranks has failed, from how its failing rank has ended
// and what else is known.
func rankFailed(rank, of int, o *job.Outcome) string {
	which := fmt.Sprintf("rank %d of %d", rank, of)
	if o.Reason != "" {
		return o.Reason + " (" + which + ")"
	}
	return which + ": " + o.Words()
}
