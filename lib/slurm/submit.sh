#!/bin/bash
# submit.sh: submits every job of this folder that was not yet. It may be run again at
# any time. See d2slurm(1).
#
# D2SLURM_ARRAY is how many tasks an array may have, if it is not to be as the
# cluster says; D2SLURM_AFTER how many jobs one may wait for (1000).
# shellcheck disable=SC2015 # what follows && || only says what is wrong
set -u
unset CDPATH

stop() {
	say "$*"
	exit 1
}
say() { printf 'submit.sh: %s\n' "$*" >&2; }

cd -- "$(dirname -- "${BASH_SOURCE[0]}")" || exit 1
case $PWD in *\\*) stop 'Slurm takes no folder with a backslash in its path: rename it, and run this again' ;; esac
output=${PWD//%/%%}/slurm # to Slurm a % in the path of a file is a pattern
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

# How many jobs one may wait for before others wait for it.
most_after=${D2SLURM_AFTER:-1000}
case $most_after in *[!0-9]* | 0*) stop 'D2SLURM_AFTER is a number from 1' ;; esac

# What is not in Slurm: how many jobs of how many, as words GROUP:FIRST-LAST, and those groups
# between blanks. Once ended is set nothing more is submitted.
left=0 total=0 lacking='' refused=' ' ended='' told=''

# explain TEXT: says what to do when sbatch refused. What may be refused for its own options
# keeps no other from being submitted.
explain() {
	case $1 in
	'' | *imed\ out* | *"Zero Bytes"* | *"eset by peer"* | *"Unexpected message"*)
		ended=1
		say "it is not known whether sbatch was heard: look with squeue --me. If Slurm has it, add its line ($(cat submitting), its id) to" \
			'submitted.tsv; then remove the file submitting, and run this again'
		return
		;;
	esac
	rm -f submitting
	case $1 in
	*SubmitJob* | *policy* | *"Job/step already"* | *"Unable to contact"* | *temporarily*)
		ended=1
		say 'the cluster takes no more now: what was submitted is noted, so run this again later. If none of your jobs is in squeue --me,' \
			'these ask for more than you may have: ask for less, and export the batch again; or mend plan.sh'
		;;
	*"job array"*) say "arrays may have fewer than $most tasks here: D2SLURM_ARRAY=100 ./submit.sh" ;;
	*account*) say 'give the batch an account of yours ("slurm: {account: NAME}"), and export it again; or mend plan.sh' ;;
	*partition*) say 'give the batch a partition that is there (sinfo; "slurm: {partition: NAME}"), and export it again; or mend plan.sh' ;;
	*"not available"*) say 'no node has what the jobs ask for (sinfo -N -l): ask for less, and export the batch again; or mend plan.sh' ;;
	*) say 'mend the options in plan.sh, or in the batch file and export it again, and run this again' ;;
	esac
}

# send WHAT ARGUMENT ...: submits, and notes it as WHAT with its id. It fails if sbatch refuses.
send() {
	local what=$1 answer said
	shift
	printf '%s\n' "$what" | tr '\t' ' ' >submitting && sync submitting || {
		rm -f submitting
		stop 'nothing can be written here: is the disk full?'
	}
	if ! answer=$(sbatch --parsable --chdir="$PWD" --kill-on-invalid-dep=yes "$@" 2>sbatch.err 9>&-); then
		said=$(<sbatch.err)
		if [ "$said" != "$told" ] || [ -z "$said" ]; then
			printf '%s\n' "${said:-sbatch failed and said nothing}" >&2
			explain "$said"
		fi
		rm -f sbatch.err
		told=$said
		[ -n "$ended" ] || rm -f submitting
		return 1
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

# after GROUP:FIRST-LAST ...: the jobs of Slurm that are those, a line each.
after() {
	printf '%s\n' "$@" | awk -F '[\t:-]' '
		NR == FNR { group[NR] = $1; first[NR] = $2; last[NR] = $3; id[NR] = $4; n = NR; next }
		{
			for (k = 1; k <= n; k++)
				if (group[k] == $1 && first[k] <= $3 + 0 && last[k] >= $2 + 0) {
					if ($2 + 0 <= first[k] && last[k] <= $3 + 0) print id[k]
					else for (i = first[k]; i <= last[k]; i++) if ($2 + 0 <= i && i <= $3 + 0) print id[k] "_" i - first[k]
				}
		}' submitted.tsv -
}

# afters GROUP OPTION ...: what a group waits for, of the lines of after on standard input,
# as ids in the array waits. So many that they are no argument are waited for by jobs that do
# nothing else, each for some of them. It fails if one of these is refused.
afters() {
	local group=$1 option some key options=() at=0
	shift
	for option; do
		case $option in
		--account=* | --partition=* | --qos=* | --reservation=* | --wckey=*) options+=("$option") ;;
		esac
	done
	mapfile -t waits
	[ ${#waits[@]} -gt "$most_after" ] || return 0
	local all=("${waits[@]}")
	waits=()
	for (( ; at < ${#all[@]}; at += most_after)); do
		some=$(printf ':%s' "${all[@]:at:most_after}")
		key=$group-$(printf '%s' "$some" | cksum | tr ' ' -)
		id=$(awk -F '\t' -v key="$key" '$1 == "after" && $2 == key { id = $4 } END { print id }' submitted.tsv)
		[ -n "$id" ] || send after$'\t'"$key"$'\t' --output=/dev/null --time=1 --job-name=after --export=NONE "${options[@]}" \
			--dependency="afterok$some" --wrap=: || return 1
		waits+=("$id")
	done
}

# build CPUS MEMORY GPUS OPTION ...
build() {
	local cpus=$1 memory=$2 gpus=$3
	shift 3
	[ ! -e built ] || return 0
	built=$(awk -F '\t' '$1 == "build" { id = $4 } END { print id }' submitted.tsv)
	[ -n "$built" ] && return
	if ! send $'build\t\t' --output="$output/build.out" "$@" ./run.sh "$PWD" build 0 "$cpus" "$memory" "$gpus" 0; then
		ended=1 # all wait for it
		return
	fi
	built=$id
}

# lacks GROUP FIRST JOBS: notes that a group is not submitted from its job FIRST on.
lacks() {
	refused+="$1 " left=$((left + $3 - $2)) lacking+=" $1:$2-$(($3 - 1))"
}

# group NUMBER JOBS LIMIT CPUS MEMORY GPUS RANKS NEEDS OPTION ...: limit and needs may be empty.
group() {
	local number=$1 jobs=$2 limit=$3 cpus=$4 memory=$5 gpus=$6 ranks=$7 needs=$8 first last after='' need
	shift 8
	total=$((total + jobs))
	first=$(awk -F '\t' -v g="$number" '$1 == g && $3 >= n { n = $3 + 1 } END { print n + 0 }' submitted.tsv)
	[ "$first" -lt "$jobs" ] || return 0
	for need in $needs; do
		case $refused in *" ${need%%:*} "*)
			lacks "$number" "$first" "$jobs"
			return
			;;
		esac
	done
	[ -z "$built" ] || after=:$built
	if [ -n "$needs" ] && [ -z "$ended" ]; then
		# shellcheck disable=SC2086 # they are words
		if afters "$number" "$@" < <(after $needs); then
			after+=$(printf ':%s' "${waits[@]}")
		else
			lacks "$number" "$first" "$jobs"
			return
		fi
	fi
	for (( ; first < jobs; first = last + 1)); do
		last=$((first + most - 1))
		[ "$last" -lt "$jobs" ] || last=$((jobs - 1))
		if [ -n "$ended" ] || ! send "$number"$'\t'"$first"$'\t'"$last" --output="$output/%A_%a.out" \
			--array="0-$((last - first))${limit:+%$limit}" ${after:+"--dependency=afterok$after"} "$@" \
			./run.sh "$PWD" "$number" "$first" "$cpus" "$memory" "$gpus" "$ranks"; then
			lacks "$number" "$first" "$jobs"
			return
		fi
	done
}

built=''
# shellcheck source=/dev/null
. ./plan.sh
[ "$left" = 0 ] || stop "Slurm has $((total - left)) of $total jobs. It lacks those (group:first-last, as in plan.sh)$lacking:" \
	'what it has is in submitted.tsv and is not submitted again when this is run again'
