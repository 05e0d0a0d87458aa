package noded

import (
	"strconv"
	"strings"

	"distribute/lib/job"
	"distribute/lib/mpi"
	"distribute/lib/proc"
)

// byMPI has the ranks of an order be started by mpirun, which is one process with all of the
// order's share, and prints what they print.
func byMPI(o *proc.Order) {
	var cpus, gpus []string
	for _, r := range o.Ranks {
		var numbers []string
		for _, n := range r.CPUs {
			numbers = append(numbers, strconv.Itoa(n))
		}
		cpus = append(cpus, strings.Join(numbers, ","))
		cards, _ := job.ParamOf(r.Env, "CUDA_VISIBLE_DEVICES")
		gpus = append(gpus, cards)
	}
	o.Argv = mpi.Argv(len(o.Ranks), strings.Join(cpus, ";"), strings.Join(gpus, ";"), o.Argv)
	o.Env, o.Ranks = job.Environ(mpi.Env, o.Ranks[0].Env), nil
}
