#!/bin/sh
# start.sh RANKS RANK CPUS GPUS WORD...: has mpirun start so many ranks by the script RANK, which
# is rank.sh. The exit status is that of the first rank that failed; 85 if none did and some have
# saved their state; and else that of mpirun.
ended=$(mktemp) || exit 70
ranks=$1 rank=$2
shift 2
# Ranks may have to do something at these, and this shell has to outlast that.
trap : HUP INT QUIT ABRT ALRM TERM USR1 USR2 XCPU
# shellcheck disable=SC2016 # for the inner shell
DISTRIBUTE_ENDED=$ended /bin/sh -c 'DISTRIBUTE_MPIRUN=$$ exec mpirun "$@"' mpirun -n "$ranks" /bin/sh -c "$rank" rank.sh "$@"
status=$?
saved=$(grep -vm 1 '^85$' "$ended" || head -n 1 "$ended")
rm -f "$ended"
exit "${saved:-$status}"
