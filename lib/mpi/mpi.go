// Package mpi has the ranks of a job be started by mpirun, as programs expect that were built
// with Open MPI, MPICH, or another MPI whose mpirun is like one of these.
package mpi

import (
	_ "embed"
	"slices"
	"strconv"
)

// Start and Rank are scripts for sh. The first runs mpirun; the second begins one rank, with its
// own cpus and GPUs, and ends the others if it fails.
var (
	//go:embed start.sh
	Start string
	//go:embed rank.sh
	Rank string
)

// Env has mpirun run also as root, begin as many ranks as it is told, whatever it takes the
// machine for, leave their cpus to [Rank], and need no program that reaches other machines.
// It is less than what a batch sets. DISTRIBUTE_MPIRUN marks all that is no rank, which
// lib/proc asks to save nothing.
var Env = []string{
	"DISTRIBUTE_MPIRUN=",
	"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", "PRTE_ALLOW_RUN_AS_ROOT=1", "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1",
	"OMPI_MCA_rmaps_base_oversubscribe=1", "PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe",
	"OMPI_MCA_hwloc_base_binding_policy=none", "PRTE_MCA_hwloc_default_binding_policy=none",
	"OMPI_MCA_plm_rsh_agent=sh", "PRTE_MCA_plm_ssh_agent=sh", "HYDRA_LAUNCHER=fork", "HYDRA_RMK=user", "I_MPI_HYDRA_BOOTSTRAP=fork", "I_MPI_HYDRA_RMK=user",
}

// Argv is the command that has mpirun start so many ranks of another, with lists of the cpus and
// GPUs of each, between which stands a semicolon; an empty list is any.
func Argv(ranks int, cpus, gpus string, argv []string) []string {
	return slices.Concat([]string{"/bin/sh", "-c", Start, "start.sh", strconv.Itoa(ranks), Rank, cpus, gpus}, argv)
}
