#!/bin/sh
# start.sh RANKS RANK CPUS GPUS WORD...: has mpirun start so many ranks by the script RANK, which
# is rank.sh. The exit status is that of the first rank that failed; 85 if each has ended with
# that or 0, and some have saved their state; and else that of mpirun.
ended=$(mktemp) || exit 70
ranks=$1 rank=$2
shift 2
case " $* " in
*' : '*) # mpirun would begin another program there; rank.sh has the word again
	for word; do
		shift
		[ "$word" != : ] || word=$ended:
		set -- "$@" "$word"
	done
	;;
esac
# Ranks may have to do something at these, and this shell has to outlast that.
trap : HUP INT QUIT ABRT ALRM TERM USR1 USR2 XCPU
# shellcheck disable=SC2016 # for the inner shell
DISTRIBUTE_ENDED=$ended /bin/sh -c 'DISTRIBUTE_MPIRUN=$$ exec mpirun "$@"' mpirun -n "$ranks" /bin/sh -c "$rank" rank.sh "$@"
status=$?
first=$(grep -Evm 1 '^(0|85)$' "$ended")
if [ -z "$first" ] && { [ "$status" = 85 ] || grep -q '^85$' "$ended"; }; then
	if [ "$(grep -c . "$ended")" = "$ranks" ]; then
		first=85
	else # the rest was killed, as at MPI_Abort
		case $status in 0 | 85) first=137 ;; esac
	fi
fi
rm -f "$ended"
exit "${first:-$status}"
