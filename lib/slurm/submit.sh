#!/bin/bash
# submit.sh: submits every job of this folder that was not yet. It may be run again at
# any time. See d2slurm(1).
#
# D2SLURM_ARRAY is how many tasks an array may have, if it is not to be as the
# cluster says.
# shellcheck disable=SC2015 # what follows && || only says what is wrong
set -u
unset CDPATH

stop() {
	printf 'submit.sh: %s\n' "$*" >&2
	exit 1
}

cd -- "$(dirname -- "${BASH_SOURCE[0]}")" || exit 1
command -v sbatch >/dev/null || stop 'there is no sbatch here: run this where jobs are submitted from'
mkdir -p jobs slurm || stop 'nothing can be written here: is the disk full?'
exec 9>lock || stop 'nothing can be written here: is the disk full?'
flock -n 9
[ $? -ne 1 ] || stop 'another submit.sh works on this folder: let it end'
if [ -s submitting ]; then
	stop "an earlier run was cut while it submitted $(cat submitting): look with 'squeue --me -o \"%A %j %V\"' whether Slurm has it," \
		"add its line to submitted.tsv with its id if so, remove the file submitting, and run this again"
fi
touch submitted.tsv || stop 'nothing can be written here: is the disk full?'

most=${D2SLURM_ARRAY:-$(scontrol show config 2>/dev/null | sed -n 's/^MaxArraySize *= *//p')}
case $most in
'' | *[!0-9]* | 0)
	printf 'submit.sh: the cluster does not say how large an array may be: 1000 tasks are taken\n' >&2
	most=1000
	;;
esac

# explain TEXT: what to do when sbatch refused.
explain() {
	case $1 in
	*imed\ out*)
		stop "it is not known whether sbatch was heard: look with squeue --me. If Slurm has it, add its line ($(cat submitting), its id) to" \
			'submitted.tsv; then remove the file submitting, and run this again'
		;;
	esac
	rm -f submitting
	case $1 in
	*SubmitJob* | *policy* | *"Job/step already"* | *"Unable to contact"* | *temporarily*)
		stop 'the cluster takes no more now: what was submitted is noted, so run this again later'
		;;
	*"job array"*) stop "arrays may have fewer than $most tasks here: D2SLURM_ARRAY=100 ./submit.sh" ;;
	*account*) stop 'give the batch an account of yours ("slurm: {account: NAME}"), and export it again; or mend plan.sh' ;;
	*partition*) stop 'give the batch a partition that is there (sinfo; "slurm: {partition: NAME}"), and export it again; or mend plan.sh' ;;
	*"not available"*) stop 'no node has what the jobs ask for (sinfo -N -l): ask for less, and export the batch again; or mend plan.sh' ;;
	*) stop 'mend the options in plan.sh, or in the batch file and export it again, and run this again' ;;
	esac
}

# send WHAT ARGUMENT ...: submits, and notes it as WHAT with its id.
send() {
	local what=$1 answer said
	shift
	printf '%s\n' "$what" | tr '\t' ' ' >submitting || stop 'nothing can be written here: is the disk full?'
	if ! answer=$(sbatch --parsable --chdir="$PWD" --kill-on-invalid-dep=yes "$@" 2>sbatch.err 9>&-); then
		said=$(<sbatch.err)
		printf '%s\n' "${said:-sbatch failed and said nothing}" >&2
		explain "$said"
	fi
	cat sbatch.err >&2
	id=${answer%%;*}
	case $id in
	'' | *[!0-9]*) stop "sbatch printed \"$answer\", which is no id of a job: look with squeue --me, and at the file submitting" ;;
	esac
	printf '%s\t%s\n' "$what" "$id" >>submitted.tsv && sync submitted.tsv && rm -f submitting sbatch.err ||
		stop "Slurm has $(cat submitting) as $id, which cannot be noted: is the disk full?"
	printf '%s\n' "$id"
}

# after GROUP:FIRST-LAST ...: the dependencies on those jobs.
after() {
	local word
	for word; do
		awk -F '\t' -v g="${word%%:*}" -v r="${word#*:}" 'BEGIN { split(r, at, "-"); a = at[1] + 0; b = at[2] + 0 }
			$1 == g && $2 <= b && $3 >= a {
				if (a <= $2 && $3 <= b) printf ":%s", $4
				else for (i = $2; i <= $3; i++) if (a <= i && i <= b) printf ":%s_%d", $4, i - $2
			}' submitted.tsv
	done
}

# build CPUS MEMORY GPUS OPTION ...
build() {
	local cpus=$1 memory=$2 gpus=$3
	shift 3
	[ ! -e built ] || return 0
	built=$(awk -F '\t' '$1 == "build" { id = $4 } END { print id }' submitted.tsv)
	[ -n "$built" ] && return
	send $'build\t\t' --output=slurm/build.out "$@" ./run.sh "$PWD" build 0 "$cpus" "$memory" "$gpus"
	built=$id
}

# group NUMBER JOBS LIMIT CPUS MEMORY GPUS NEEDS OPTION ...: limit and needs may be empty.
group() {
	local number=$1 jobs=$2 limit=$3 cpus=$4 memory=$5 gpus=$6 needs=$7 first last after=''
	shift 7
	first=$(awk -F '\t' -v g="$number" '$1 == g && $3 >= n { n = $3 + 1 } END { print n + 0 }' submitted.tsv)
	[ -z "$built" ] || after=:$built
	# shellcheck disable=SC2086 # they are words
	[ -z "$needs" ] || after+=$(after $needs)
	for (( ; first < jobs; first = last + 1)); do
		last=$((first + most - 1))
		[ "$last" -lt "$jobs" ] || last=$((jobs - 1))
		send "$number"$'\t'"$first"$'\t'"$last" --output=slurm/%A_%a.out --array="0-$((last - first))${limit:+%$limit}" \
			${after:+"--dependency=afterok$after"} "$@" ./run.sh "$PWD" "$number" "$first" "$cpus" "$memory" "$gpus"
	done
}

built=''
# shellcheck source=/dev/null
. ./plan.sh
