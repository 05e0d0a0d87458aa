#!/bin/sh
# rank.sh CPUS GPUS WORD...: a rank that mpirun has started, as Open MPI's and MPICH's do: with
# the cpus and GPUs that are its own, which stand in lists by its number with a ; between, and
# with the variables that ranks have.
k=${OMPI_COMM_WORLD_RANK:-${PMIX_RANK:-${PMI_RANK:-}}}
on=$1 cards=$2 ended=$DISTRIBUTE_ENDED mpirun=$DISTRIBUTE_MPIRUN
shift 2
case "$*" in
*"$ended:"*)
	for word; do
		shift
		[ "$word" != "$ended:" ] || word=:
		set -- "$@" "$word"
	done
	;;
esac
[ -z "${DISTRIBUTE_PIDS:-}" ] || echo $$ >>"$DISTRIBUTE_PIDS"
unset DISTRIBUTE_ENDED DISTRIBUTE_MPIRUN DISTRIBUTE_PIDS
case $k in
'' | *[!0-9]*) echo 'the mpirun of this node tells no rank, as those of Open MPI and MPICH do' >&2 && exit 70 ;;
esac
export DISTRIBUTE_RANK="$k" RANK="$k" LOCAL_RANK="$k"
i=0
while [ "$i" -lt "$k" ]; do on=${on#*;} cards=${cards#*;} i=$((i + 1)); done
on=${on%%;*} cards=${cards%%;*}
for v in CUDA_VISIBLE_DEVICES HIP_VISIBLE_DEVICES ROCR_VISIBLE_DEVICES; do
	eval "[ -z \"\${$v:-}\" ] || export $v=\$cards"
done
[ -z "$on" ] || ! command -v taskset >/dev/null || set -- taskset -c "$on" "$@"

trap : HUP INT QUIT ABRT ALRM TERM USR1 USR2 XCPU
"$@" </dev/null
status=$?
echo "$status" >>"$ended" || ended=
left=$(pgrep -g $$)
# mpirun may wait for ever after a failure. What ends it then has no descriptor of the rank, since
# that of MPICH would wait for it; only bash can close those above 9.
# shellcheck disable=SC2016 # for the inner shell
case $status in
0 | 85) ;;
*)
	"$(command -v bash || echo /bin/sh)" -c '[ -z "${BASH_VERSION:-}" ] || for f in /proc/$$/fd/*; do
			[ "${f##*/}" -le 2 ] || eval "exec ${f##*/}>&-"
		done
		sleep 10 && kill -KILL "$0"' "$mpirun" </dev/null >/dev/null 2>&1 &
	;;
esac
# It also waits for those that the rank has left, if they still can print.
for p in $left; do [ "$p" = $$ ] || kill -KILL "$p"; done 2>/dev/null
case $status in
0) ;;
# mpirun would end the others, which may not have saved their state yet.
85) [ -z "$ended" ] || exit 0 ;;
143) ;; # by a SIGTERM, which mpirun has sent or got: that of Open MPI 5 may hang after another
# That of MPICH lets others wait for ever for a rank that failed before MPI_Init, unless it is
# told in its own words; that of Open MPI 5 may crash or hang then.
*)
	# shellcheck disable=SC2016 # for bash, as other shells have no number of a file above 9
	if [ -z "${PMI_FD:-}" ] || ! bash -c 'printf "cmd=abort exitcode=%d\n" "$0" >&"$PMI_FD"' "$status"; then
		kill "$mpirun"
	fi 2>/dev/null
	;;
esac
exit "$status"
