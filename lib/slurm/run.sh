#!/bin/bash
# run.sh FOLDER GROUP FIRST CPUS MEMORY GPUS RANKS: runs one job of a folder of d2slurm(1),
# as a task of an array; GROUP is "build" for what all jobs wait for. Slurm starts it. With
# RANKS the job is so many processes, and the amounts are those of each.
# Functions are named to others; what follows && || only says what is wrong.
# shellcheck disable=SC2015,SC2317
[ "${BASH_VERSINFO[0]}${BASH_VERSINFO[1]}" -lt 44 ] || set -u # for older ones an empty array is unset
umask 022
unset CDPATH BASH_ENV SLURM_EXPORT_ENV

code=75 # the job has not begun
fail() {
	printf 'd2slurm: %s\n' "$*" >&2
	exit "$code"
}

[ $# -eq 7 ] || fail 'this is started by submit.sh'
cd -- "$1" || fail "the folder is not on this node: is it on a disk that all nodes see?"
root=$PWD group=$2 first=$3 ranks=$7 mpi=() mpi_start='' mpi_rank=''
case $4 in
tasks) cpus=${SLURM_NTASKS:-1} ;;
node) cpus=${SLURM_CPUS_ON_NODE:-$(nproc)} ;;
*) cpus=$4 ;;
esac

# opened DIR ACTION: the action, for which directories on the way to DIR that are closed to
# their owner are opened. A link on the way that leads out of this directory is not followed.
opened() {
	local at=. rest=${1#./}/ closed=() mode status=0
	while [ -d "$at" ]; do
		if [ -L "$at" ] && [[ $(readlink -f -- "$at")/ != "$(readlink -f .)"/* ]]; then
			printf 'd2slurm: the build has left a link in place of the directory %s, which leads out of the directory of the job\n' "$at" >&2
			status=1 && break
		fi
		if ! [ -w "$at" ] || ! [ -x "$at" ]; then
			mode=$(stat -Lc %a -- "$at") && chmod u+rwx -- "$at" || { status=1 && break; }
			closed=("$mode" "$at" ${closed[@]+"${closed[@]}"})
		fi
		[ -n "$rest" ] || break
		at+=/${rest%%/*} rest=${rest#*/}
	done
	[ "$status" != 0 ] || "${@:2}" || status=$?
	set -- ${closed[@]+"${closed[@]}"}
	while [ $# -gt 0 ]; do
		chmod "$1" -- "$2"
		shift 2
	done
	return "$status"
}

# unchanged SUM: the input of that sum, which jobs share, is as the first of them got it, or has that
# sum. How the first got it cannot be noted where there is no room.
unchanged() {
	local at=$root/inputs/$1 is was=''
	is=$(find "$at" -printf '%s %T@')
	(set -C && printf '%s\n' "$is" >"$at.was")
	read -r was <"$at.was"
	[ -n "$was" ] && [ "$was" = "$is" ] && return
	[ "$(sha256sum <"$at")" = "$1  -" ] || return
	printf '%s\n' "$is" >"$at.was" || :
} 2>/dev/null

# look SUM MODE SHARED PATH TIME notes in changed the first input that is not.
look() { [ "$3" = 0 ] || [ -n "$changed" ] || unchanged "$1" || changed=${4//[[:cntrl:]\\\"]/?}; }

# place SUM MODE SHARED PATH TIME puts an input at its path. A large one that no copy can share is
# linked, read-only, with the time that all links have.
place() {
	local at=./$4
	opened "${at%/*}" place_there "$@"
}
place_there() {
	local from=$root/inputs/$1 to=./$4
	[ -d "${to%/*}" ] || mkdir -p -- "${to%/*}" || return
	! [ -e "$to" ] && ! [ -L "$to" ] || rm -rf -- "$to" || return
	if [ "$3" = 1 ]; then
		cp --reflink=always -- "$from" "$to" 2>/dev/null && chmod "$2" "$to" && touch -d "$5" "$to" && return
		rm -f -- "$to"
		unchanged "$1" || { printf 'd2slurm: a job has changed the input %s, which all share\n' "$4" >&2 && return 1; }
		ln -- "$from" "$to" 2>/dev/null && return
	fi
	cp -- "$from" "$to" && chmod "$2" "$to" && touch -d "$5" "$to"
}

# mounted DIR... lists in points what is mounted there or below, the last first.
mounted() {
	local dir at line lines=()
	points=()
	mapfile -t lines </proc/self/mountinfo # at once: others mount and unmount meanwhile
	for dir; do
		[ ! -L "$dir" ] && dir=$(readlink -f -- "$dir") || continue
		for line in ${lines[@]+"${lines[@]}"}; do
			at=${line#* * * * } at=${at%% *}
			printf -v at %b "${at//\\/\\0}" # a blank is \040 there
			case $at in "$dir" | "$dir"/*) points=("$at" ${points[@]+"${points[@]}"}) ;; esac
		done
	done
}

# unmount DIR... unmounts what was left mounted there or below, or fails.
unmount() {
	local at points
	mounted "$@"
	[ ${#points[@]} -gt 0 ] || return 0
	for at in "${points[@]}"; do
		{ umount -l -- "$at" || fusermount3 -uz -- "$at" || fusermount -uz -- "$at"; } >/dev/null 2>&1
	done
	mounted "$@"
	[ ${#points[@]} -eq 0 ] || { printf 'd2slurm: something is mounted at %s: unmount it\n' "${points[@]}" >&2 && return 1; }
}

# remove DIR... removes them, and nothing that is mounted below. It lets what is in them be
# removed, and changes no file: one may be a link of an input of all jobs.
remove() {
	unmount "$@" || return
	find "$@" -xdev -type d ! -perm -700 -exec chmod u+rwx {} \; 2>/dev/null
	rm -rf --one-file-system -- "$@"
}

# keep is place where the build has left nothing.
keep() {
	local at=./$4
	opened "${at%/*}" keep_there "$@"
}
keep_there() { [ -e "./$4" ] || [ -L "./$4" ] || place_there "$@"; }

# marks prints the marks of each file in this directory, with its path, as words that end with a
# zero: before a program runs, and with "new" after it, when a file that was left alone has one of
# those that it had. What was renamed or replaced has another inode, and the time of the last change
# of the inode tells of a write after which size and time were set back. That time is left out of
# the mark of a file with several names, as each new name sets it, and the mode of an input that is
# shared with other jobs, which may need another.
marks() {
	local linked=(-printf '3 %i %s %T@ %p\0') once=(-printf '1 %i %m %s %T@ %C@ %p\0') named=(-printf '2 %i %m %s %T@ %p\0')
	if [ "${1:-}" = new ]; then
		find . -xdev ! -type d \( -links 1 "${once[@]}" -o "${named[@]}" \) "${linked[@]}"
	else
		find . -xdev ! -type d \( -links 1 "${once[@]}" "${named[@]}" -o "${linked[@]}" \)
	fi
}

# same prints the paths of the files that are as they were when $tmp/marks was written, each with a
# zero after it. The job may have removed its TMPDIR.
same() {
	{ cat "$tmp/marks" && marks new 2>/dev/null; } | LC_ALL=C sort -z -T "$tmp" | LC_ALL=C uniq -zd | LC_ALL=C sed -z 's#^[^/]*/#./#'
}

# all_opened MODE ACTION: the action, for which all directories here that do not permit MODE to their
# owner are opened. Those that cannot be entered are one after the other: others may be below.
all_opened() {
	local line closed=() names status=0
	while IFS= read -r -d '' line; do
		closed+=("$line")
	done < <(find . -xdev -type d ! -perm "-$1" -printf '%m %p\0' \( -perm -500 -exec chmod u+w {} + -o -exec chmod u+rwx {} \; \) 2>/dev/null)
	"${@:2}" || status=$?
	set -- ${#closed[@]}
	while [ "$1" -gt 0 ]; do
		names=() line=${closed[$1 - 1]%% *}
		while [ "$1" -gt 0 ] && [ "${closed[$1 - 1]%% *}" = "$line" ]; do
			names+=("${closed[$1 - 1]#* }")
			set -- $(($1 - 1))
		done
		printf '%s\0' "${names[@]}" | xargs -0 chmod "$line" -- 2>/dev/null
	done
	return "$status"
}

# unplace INPUTS: removes those that the build has left alone, as each job gets its own.
unplace() {
	local at
	local -A left=()
	while IFS= read -r -d '' at; do left[$at]=1; done < <(same)
	while [ $# -gt 0 ]; do
		[ -z "${left[./$4]:-}" ] || rm -f -- "./$4"
		shift 5
	done
}

# unbuild removes what the job has left alone, and directories of the build that are empty then. They
# are looked for here, too: the job may have put a link in place of one.
unbuild() {
	same | xargs -0 rm -f --
	[ ${#build[@]} -eq 0 ] || { find . -xdev -type d -print0 && cd -- "$root/build" && find . -type d -print0; } |
		LC_ALL=C sort -zr -T "$tmp" | LC_ALL=C uniq -zd | xargs -0 rmdir --
} 2>/dev/null

# needed prints which job that this one needs has not ended well, if there is one. Slurm itself does not
# know it: what it has forgotten, as it does minutes after the end, has ended well for it. That all have
# is noted, for the other jobs of the group, for a minute: a user may remove any status.json. A job that
# begins again, or fails, removes the notes.
needed() {
	local in at name said
	[ -z "$(find "$root/groups/$group.met" -mmin -1)" ] || return 0
	while IFS=: read -r in at; do
		while read -r name; do
			said=''
			read -r said <"$root/jobs/$name/status.json"
			case $said in *'"reason":'*) said='' ;; esac
			case $said in '{"exit":0,'*) ;; *) printf '%s' "$name" && return ;; esac
		done < <(sed -n "$((${at%-*} + 1)),$((${at#*-} + 1))p" "$root/groups/$in")
	done <"$root/groups/$group.needs" && : >"$root/groups/$group.met"
} 2>/dev/null

# each ACTION INPUTS: the action with each input, of which there are five words.
each() {
	local action=$1 list=("${@:2}") i
	for ((i = 0; i < ${#list[@]}; i += 5)); do
		"$action" "${list[@]:i:5}" || return
	done
}

# What the batch says, and the job.
kind='' name='' namespace='' batch='' runtime='' uncontained=''
mounts=() argv=() build=() env=() secret_names=() secrets=() batch_inputs=() job_inputs=()
# shellcheck source=/dev/null
. ./batch.sh || fail 'batch.sh is missing: export the batch again'

# What a cluster's administrators write need not bear set -u, which would end this without a word.
set +u
if ! type module >/dev/null 2>&1; then
	for file in /etc/profile.d/{lmod,z00_lmod,modules}.sh; do
		# shellcheck source=/dev/null
		[ ! -r "$file" ] || . "$file" >/dev/null 2>&1
	done
fi
# shellcheck source=/dev/null
. ./modules.sh || fail 'modules.sh failed: mend its module lines'
[ "${BASH_VERSINFO[0]}${BASH_VERSINFO[1]}" -lt 44 ] || set -u
[ "$PWD" = "$root" ] || cd -- "$root" || fail 'the folder is gone'

# An attempt that was killed has left its directory, which the next one on the same node removes. It is
# locked while a process of the attempt lives. Another node that sees the disk may not see the lock. The
# lock goes last: a removal may be cut, too.
disk=${SLURM_TMPDIR:-${TMPDIR:-/tmp}} here=$(uname -n)
for tmp in "$disk"/d2slurm.??????; do
	[ ! -L "$tmp" ] && [ -O "$tmp" ] && [ -f "$tmp/.lock" ] && [ -O "$tmp/.lock" ] && read -r said <"$tmp/.lock" && [ "$said" = "$here" ] || continue
	(flock -n 5 && remove "$tmp/job" "$tmp") 5<"$tmp/.lock"
done 2>/dev/null
tmp=$(mktemp -d "$disk/d2slurm.XXXXXX") || fail 'there is no room for temporary files'
short='' work=$tmp mark=.begun-${tmp##*.}-${SLURMD_NODENAME:-${HOSTNAME:-}}
# A subshell that is ended as it starts runs this, too.
trap 'case $BASHPID in "$$") remove "$tmp/job" "$tmp"; rm -rf -- ${short:+"$short"} ;; esac' EXIT
# What is beside job is this script's. How the job ends has its room there: a job may fill the disk.
mkdir "$tmp/job" && echo '   ' >"$tmp/.exit" && echo >"$tmp/.how" || fail 'there is no room for temporary files'
exec 5>"$tmp/.lock"
flock -n 5 2>/dev/null && printf '%s\n' "$here" >&5 # last: one that names no node is not removed
# A socket has 107 bytes, of which Python appends 32 to TMPDIR. Where nothing can be made in
# /tmp, most jobs do without.
if [ "$(printf '%s/job' "$tmp" | wc -c)" -gt 75 ] && short=$(mktemp -d /tmp/d-XXXXXX 2>/dev/null); then
	ln -s -- "$tmp" "$short/t" && work=$short/t
fi

if [ "$group" = build ]; then
	[ ! -e built ] || exit 0
	job='' dir=$root/build print=$root/build_output.txt marked=$root
	argv=("${build[@]}")
	rm -f .begun-* && remove "$root/build" && mkdir build && : >"$mark" && cd build || fail 'the directory of the build cannot be made'
	each place "${batch_inputs[@]}" || fail 'an input cannot be put in its place'
	all_opened 500 marks >"$tmp/marks" || fail 'there is no room for temporary files'
	if [ "$kind" = python ]; then
		mkdir -p input distribute_save
		[ -e initial_files ] || ln -s input initial_files
	fi
else
	job=$(sed -n "$((first + ${SLURM_ARRAY_TASK_ID:-0} + 1))p" "groups/$group")
	[ -n "$job" ] || fail "group $group has no such job: export the batch again"
	at=$root/jobs/$job dir=$root/jobs/$job/work print=$root/jobs/$job/output.txt marked=$root/jobs/$job
	# shellcheck source=/dev/null
	. "./run/$job.sh" || fail "run/$job.sh is missing: export the batch again"
	# What the cluster itself has ended it may run again.
	if [ -e "$at/status.json" ] && ! grep -q '"terminated":true' "$at/status.json"; then
		printf 'd2slurm: %s is over already; to run it again, remove %s/status.json\n' "$job" "$at" >&2
		# What needs it runs if it has ended well. With its own status it could be begun again for ever:
		# a cluster may have failed jobs of some statuses run once more (RequeueExit).
		read -r said <"$at/status.json"
		case $said in *'"reason":'*) ;; '{"exit":0,'*) exit 0 ;; esac
		exit "$code"
	fi
	# Values of secrets are in a file that only its owner can read, and in no argument of a program.
	# shellcheck source=/dev/null
	[ ${#secret_names[@]} -eq 0 ] || . ./secrets.sh 2>/dev/null ||
		fail 'secrets.sh, with the values of secrets, is missing: it is removed when all jobs are home; export the batch again'
	[ ${#secrets[@]} -eq 0 ] || env+=("${secrets[@]}")
	[ ${#build[@]} -eq 0 ] || [ -e built ] || fail 'the build has not ended well: see build_output.txt'
	need=$(needed)
	[ -z "$need" ] || fail "it needs $need, which has not ended well here"
	[ ! -e "$at" ] || rm -f groups/*.met # others may need it, and wait again
	remove "$at" && mkdir -p -- "$dir" && : >"$at/$mark" && cd -- "$dir" || fail "$dir cannot be made"
	[ ${#build[@]} -eq 0 ] || cp -a --no-preserve=links --reflink=auto -- "$root/build/." . || fail 'what was built cannot be copied'
	chmod u+rwx . # which the build may have closed
	each keep "${batch_inputs[@]}" && each place "${job_inputs[@]}" || fail 'an input cannot be put in its place'
	all_opened 500 marks >"$tmp/marks" || fail 'there is no room for temporary files'
	case $kind in
	python)
		mkdir -p input && rm -rf distribute_save && mkdir distribute_save || fail 'no directories can be made'
		[ -e initial_files ] || ln -s input initial_files
		argv=(python3 "${argv[@]}" "$cpus")
		;;
	apptainer)
		mkdir -p input && rm -rf distribute_save home mounts && mkdir distribute_save home mounts || fail 'no directories can be made'
		;;
	esac
fi

# Who submitted leaves nothing here: what a job sees is the cluster's and this. Slurm names
# GPUs to NVIDIA's programs, to AMD's, or to both; no card has the name NoDevFiles or -1.
cards() { case ${1:-} in NoDevFiles | -1) ;; *) printf '%s' "${1:-}" ;; esac; }
gpus=$(cards "${CUDA_VISIBLE_DEVICES:-}") amd=$(cards "${ROCR_VISIBLE_DEVICES:-}") libraries=--nv
[ ! -e /dev/kfd ] || [ -e /dev/nvidiactl ] || libraries=--rocm
if [ -n "$amd" ] && { [ -z "$gpus" ] || [ "$libraries" = --rocm ]; }; then
	gpus=$amd libraries=--rocm # which count anew from 0, by which the others would find none
	unset CUDA_VISIBLE_DEVICES HIP_VISIBLE_DEVICES
elif [ -n "$gpus" ]; then
	export CUDA_DEVICE_ORDER=PCI_BUS_ID HIP_VISIBLE_DEVICES=$gpus
	unset ROCR_VISIBLE_DEVICES
else
	export CUDA_VISIBLE_DEVICES='' HIP_VISIBLE_DEVICES='' ROCR_VISIBLE_DEVICES=''
fi
[ -z "$gpus" ] || gpus=${gpus//[!,]/}, # a comma for each
gpus=${#gpus}
export DISTRIBUTE_NAMESPACE=$namespace DISTRIBUTE_BATCH=$batch DISTRIBUTE_NODE=slurm:$name DISTRIBUTE_CPUS=$cpus DISTRIBUTE_MEMORY=$5 \
	DISTRIBUTE_GPUS=$gpus DISTRIBUTE_INPUT=$dir/input DISTRIBUTE_SAVE=$dir/distribute_save OMP_NUM_THREADS=${SLURM_CPUS_PER_TASK:-$cpus} TMPDIR=$work/job \
	DISTRIBUTE_ATTEMPT=${SLURM_ARRAY_JOB_ID:-${SLURM_JOB_ID:-0}}_${SLURM_ARRAY_TASK_ID:-0}
[ -z "$job" ] || export DISTRIBUTE_ID=$namespace/$batch/$job DISTRIBUTE_JOB=$job

# What a script prints that comes from Windows does not tell why it has not begun.
windows=''
case "$kind ${argv[0]:-}" in
apptainer*) ;;
*/*)
	first=''
	[ ! -f "${argv[0]}" ] || IFS= read -r -n 256 first <"${argv[0]}"
	case $first in '#!'*$'\r') windows='lines of its script end with a carriage return, as on Windows: dos2unix takes them away' ;; esac
	;;
esac 2>/dev/null

# An apptainer job sees what it does at home; its directory is named in short, as
# Apptainer's own grammar gives colons and commas a meaning.
if [ "$kind" = apptainer ] && [ "$group" != build ]; then
	if [ -z "$runtime" ]; then
		runtime=apptainer
		command -v apptainer >/dev/null || ! command -v singularity >/dev/null || runtime=singularity
	fi
	how=(exec)
	[ ${#argv[@]} -gt 0 ] || { how=(run --app distribute) argv=("$cpus"); }
	[ "$gpus" = 0 ] || how+=("$libraries")
	[ "$uncontained" = 1 ] || how+=(--containall --workdir "$tmp/job" --home home:/home/job)
	how+=(--bind input:/input --bind distribute_save:/distribute_save)
	for i in "${!mounts[@]}"; do
		mkdir "mounts/$i" || fail 'no directories can be made'
		how+=(--bind "mounts/$i:${mounts[i]}")
	done
	argv=("$runtime" "${how[@]}" ../../../image.sif "${argv[@]}")
	for v in "${!DISTRIBUTE_@}" OMP_NUM_THREADS "${!CUDA_@}" "${!HIP_@}" "${!ROCR_@}"; do
		value=${!v}
		case $v in
		DISTRIBUTE_INPUT) value=/input ;;
		DISTRIBUTE_SAVE) value=/distribute_save ;;
		esac
		export "APPTAINERENV_$v=$value" "SINGULARITYENV_$v=$value"
	done
	export APPTAINERENV_TMPDIR=/tmp SINGULARITYENV_TMPDIR=/tmp
	export APPTAINER_NO_EVAL=1 SINGULARITY_NO_EVAL=1 # no shell expands values
	env=("${env[@]/#/APPTAINERENV_}" "${env[@]/#/SINGULARITYENV_}")
fi

# The ranks of a program of MPI are mpirun's, which finds the allocation by itself, and prints
# what they print.
if [ "$ranks" -gt 0 ] && [ ${#mpi[@]} -gt 0 ]; then
	IFS=, read -ra each <<<"${CUDA_VISIBLE_DEVICES:-${ROCR_VISIBLE_DEVICES:-}}"
	own=$((${#each[@]} / ranks)) dealt=''
	for ((k = 0; k < ranks; k++)); do dealt+=\;$(IFS=, && printf '%s' "${each[*]:k*own:own}"); done
	export "${mpi[@]}" DISTRIBUTE_PIDS="$tmp/.ranks" DISTRIBUTE_GPUS=$own DISTRIBUTE_RANKS="$ranks" WORLD_SIZE="$ranks" LOCAL_WORLD_SIZE="$ranks" MASTER_ADDR=127.0.0.1 \
		MASTER_PORT=$((29500 + (${SLURM_JOB_ID:-0} * 7) % 500))
	argv=(/bin/sh -c "$mpi_start" start.sh "$ranks" "$mpi_rank" '' "${dealt#;}" "${argv[@]}")
	ranks=0
fi

# What the batch sets is for the job, and may be secret: anybody on the node can read the
# arguments of a program, and nobody else its variables. So become sets them, and env is
# given only those that bash does not pass on as they are: its own, and those that it or a
# module has made read-only.
own=() vars=()
fixed=" $(readonly -p | sed -n 's/^declare -[A-Za-z]* \([A-Za-z0-9_]*\).*/\1/p' | tr '\n' ' ')"
for v in "${env[@]}"; do
	case ${v%%=*} in
	_ | SHLVL | EXECIGNORE | RANDOM | SRANDOM | SECONDS | LINENO | EPOCHSECONDS | EPOCHREALTIME | HISTCMD | \
		FUNCNAME | DIRSTACK | GROUPS | PIPESTATUS) own+=("$v") ;;
	BASH_ENV) vars+=("$v") ;;
	BASH | BASHPID | BASH_*) own+=("$v") ;;
	*) case $fixed in *" ${v%%=*} "*) own+=("$v") ;; *) vars+=("$v") ;; esac ;;
	esac
done
for v in ${own[@]+"${own[@]}"}; do
	case " ${secret_names[*]-} " in *" ${v%%=*} "*) fail "the secret ${v%%=*} can only be given in arguments, which others see: bash or a module has it for itself; use another name" ;; esac
done
[ ${#own[@]} -eq 0 ] || argv=(env "${own[@]}" "${argv[@]}")
argv=("${#vars[@]}" "${vars[@]%%=*}" "${vars[@]}" "${argv[@]}")

# become COUNT NAME... NAME=VALUE... WORD...: replaces this shell by the program that the
# words name, with these variables. It has none of its own, as each may have the name of one
# that is set; an array cannot be exported. What a locale lacks is not for the job's output.
become() {
	[ "$1" = 0 ] || { unset -v "${@:2:$1}" || :; export "${@:2+$1:$1}"; } 2>/dev/null
	shift "$((1 + 2 * $1))"
	exec -- "$@"
}

# signalled ACTION: the action at each signal that is for the job. Slurm sends one to each process
# of the job, to the ranks, or to this script alone.
signalled() { trap -- "$1" HUP INT QUIT ABRT ALRM TERM USR1 USR2 XCPU; }

# printing FILE MARK opens descriptor 9 for what a job prints, and makes MARK if that cannot be written.
# What opens the file itself again, as "echo x > /dev/stderr" does, would truncate it, so that is a pipe.
printing() {
	exec 7>"$1" # now: the job may remove the directory
	exec 9> >(signalled '' && { cat >&7 || : >"$2"; } 2>/dev/null)
	exec 7>&-
	writer=$! pipe=$(readlink "/proc/$BASHPID/fd/9")
}

# printed returns when all of that is in the file. A process that the job has left, and that
# still has the pipe, is killed, as on a node; one that cannot be killed, or seen, is waited for
# ten seconds. The writer has it too at its start, which may be later than the end of a short job.
# While the pipe can be read, the writer has something to do: there is output, or its end.
printed() {
	local n=0 holder
	{ exec 8<"/proc/$BASHPID/fd/9"; } 2>/dev/null
	exec 9>&-
	while [ "$n" -lt 500 ] && kill -0 "$writer" 2>/dev/null; do
		sleep 0.02 # which Slurm may end, too
		kill -0 "$writer" 2>/dev/null || break
		for holder in $(find /proc/[0-9]*/fd -lname "${pipe//[][]/?}" -perm -u=w 2>/dev/null | cut -d/ -f3 | grep -vx "$writer"); do
			kill -KILL "$holder" 2>/dev/null
		done
		read -r -t 0 -u 8 || n=$((n + 1))
	done
	exec 8<&-
}

# rank PRINT TMP GPUS: one of several, as srun starts it. Its words come by a file: anybody
# there can read those of srun, and an env may hold a secret. The first that fails tells
# how. Its cards are its part of those of the job, of which all have as many.
rank() {
	local k=$SLURM_PROCID n=$SLURM_NTASKS print=$1 tmp=$2 cards own exit word argv=()
	IFS=, read -ra cards <<<"$3"
	while IFS= read -r -d '' word; do argv+=("$word"); done <"$tmp/argv"
	own=$((${#cards[@]} / n))
	cards=("${cards[@]:k*own:own}")
	own=$(IFS=, && printf '%s' "${cards[*]}")
	[ "$k" = 0 ] || print=${print%.txt}.$k.txt
	export DISTRIBUTE_RANK=$k DISTRIBUTE_RANKS=$n RANK=$k WORLD_SIZE=$n LOCAL_RANK=$k LOCAL_WORLD_SIZE=$n DISTRIBUTE_GPUS=${#cards[@]}
	for v in CUDA_VISIBLE_DEVICES HIP_VISIBLE_DEVICES ROCR_VISIBLE_DEVICES; do
		[ -z "${!v:-}" ] || export "$v=$own"
	done
	for v in "${!DISTRIBUTE_@}" RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT "${!CUDA_@}" "${!HIP_@}" "${!ROCR_@}"; do
		case $v in DISTRIBUTE_INPUT | DISTRIBUTE_SAVE) continue ;; esac
		export "APPTAINERENV_$v=${!v}" "SINGULARITYENV_$v=${!v}"
	done
	export -nf rank become signalled printing printed
	signalled :
	echo "$BASHPID" >>"$tmp/.ranks"
	printing "$print" "$tmp/.unkept"
	echo >"$tmp/.how.$k"
	exec 8>&2 2<>"$tmp/.how.$k"
	(become "${argv[@]}") >&9 2>&1 </dev/null 8>&- 9>&-
	exit=$?
	exec 2>&8 8>&-
	printed
	if [ "$exit" != 0 ] && ln -- "$tmp/.how.$k" "$tmp/.failed" 2>/dev/null; then
		printf '%-5d %-3d\n' "$k" "$exit" 3<>"$tmp/.rank" >&3 # an exported function loses the 1 of 1<>
	fi
	{ printf 'after\n' && times && sed -n 's/^write_bytes: //p' "/proc/$BASHPID/io"; } >"$tmp/used.$k" 2>/dev/null
	return "$exit"
}

# Where ranks meet: at a port of this node on which nobody listens.
unkept=$tmp/.unkept
if [ "$ranks" -gt 0 ]; then
	echo '         ' >"$tmp/.rank" || fail 'there is no room for temporary files'
	port=$((29500 + (${SLURM_JOB_ID:-0} * 7) % 500))
	while (: <>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do port=$((port + 1)); done
	export MASTER_ADDR=127.0.0.1 MASTER_PORT=$port
	export -f rank become signalled printing printed
	printf '%s\0' "${argv[@]}" >"$tmp/argv"
	argv=(0 srun --nodes=1 --ntasks="$ranks" --cpus-per-task="$cpus" --kill-on-bad-exit=1 --export=ALL --input=none --quiet --
		"$BASH" -c 'rank "$@"' - "$print" "$tmp" "${CUDA_VISIBLE_DEVICES:-${ROCR_VISIBLE_DEVICES:-}}")
	rank0=$print print=$tmp/srun.txt unkept=/dev/null
fi

# used notes the processor time, and what was written, of all that has ended here.
used() {
	{ times && sed -n 's/^write_bytes: //p' "/proc/$$/io"; } >"$tmp/used" 2>/dev/null
	used=$(<"$tmp/used")
}

# usage is what the job has used, as members of its status. Its memory is known where
# Slurm has put it into a group of its own; ranks are in another one than this script, below
# that of the whole job.
usage() {
	local group peak=''
	group=$(sed -n 's/^0:://p' "/proc/$$/cgroup" 2>/dev/null)
	case $group in
	*/job_"${SLURM_JOB_ID:-none}"/*)
		[ "$ranks" -eq 0 ] || group=${group%%"/job_$SLURM_JOB_ID/"*}/job_$SLURM_JOB_ID
		peak=$(cat "/sys/fs/cgroup$group/memory.peak" 2>/dev/null)
		;;
	*)
		group=$(sed -n 's/^[0-9]*:memory://p' "/proc/$$/cgroup" 2>/dev/null)
		case $group in
		*/job_"${SLURM_JOB_ID:-none}"/*)
			[ "$ranks" -eq 0 ] || group=${group%%"/job_$SLURM_JOB_ID/"*}/job_$SLURM_JOB_ID
			peak=$(cat "/sys/fs/cgroup/memory$group/memory.max_usage_in_bytes" 2>/dev/null)
			;;
		esac
		;;
	esac
	{ printf '%s\nafter\n%s\n' "$before" "$used" && cat "$tmp"/used.* 2>/dev/null; } | LC_ALL=C awk -v peak="$peak" 'BEGIN { sign = -1 }
		{ gsub(",", "."); n++ }
		$1 == "after" { sign = 1; n = 0 }
		n == 2 { for (i = 1; i <= 2; i++) { split($i, t, /[ms]/); cpu += sign * (t[1] * 60 + t[2]) } }
		n == 3 { written += sign * $1 }
		END { printf ",\"cpu_time\":%.3f,\"written\":%.0f%s", cpu, written, peak ~ /^[0-9]+$/ ? ",\"memory_peak\":" peak : "" }'
}

now() { date -u +%Y-%m-%dT%H:%M:%S.%NZ; }
began=$(now) asked=''
used
before=$used
code=74 # it has, and how it ended is not written
printing "$print" "$unkept"
# listen starts a process that only a signal to each process of the job ends, or the end of this script.
listener=''
listen() {
	exec 6> >(signalled : && ulimit -c 0 && exec cat >/dev/null 2>&1 8>&- 9>&-)
	listener=$!
}
# heard reports whether each process has got a signal. The listener gets it shortly before this script, or after.
heard() {
	local n=0
	[ -n "$listener" ] || return
	while kill -0 "$listener"; do
		[ "$n" -lt 25 ] || return
		sleep 0.02
		n=$((n + 1))
	done 2>/dev/null
	listen
}
# passed has the job get a signal that this script alone may have got. With ranks these get it: srun
# kills them at most signals. Whether each of their processes has got it is not known here, and where
# Slurm has signalled the process group of this script, a job that has left it has not. Ranks of mpirun
# are in this step: if each process has got it, they have, or mpirun passes it on to them.
passed() {
	[ -n "$pid" ] || return 0
	if [ ${#mpi[@]} -gt 0 ] && heard; then
		return
	elif [ ${#mpi[@]} -gt 0 ] || [ -s "$tmp/.ranks" ]; then
		pkill "-$1" -P "$(paste -sd , "$tmp/.ranks" 2>/dev/null)" 2>/dev/null
	elif ! heard || ! pgrep -g 0 -P "$pid" >/dev/null; then
		pkill "-$1" -P "$pid"
	fi
}
# asked has the job end. Slurm may ask before it has begun.
asked() {
	asked=1
	while ! passed TERM && kill -0 "$pid"; do sleep 0.02; done 2>/dev/null
}
pid=''
for v in HUP INT QUIT ABRT ALRM USR1 USR2 XCPU; do
	# shellcheck disable=SC2064 # which it is now
	trap "passed $v" "$v"
done
trap asked TERM
exec 8>&2 2<>"$tmp/.how" # of a signal the shell tells there
(
	signalled :
	(become "${argv[@]}") >&9 2>&1 </dev/null 8>&- 9>&-
	printf '%-3d\n' $? 1<>"$tmp/.exit"
) &
pid=$!
[ -z "$asked" ] || asked
listen
while kill -0 "$pid" 2>/dev/null; do wait "$pid"; done
pid=''
exec 2>&8 8>&-
printed
exit=''
read -r exit 2>/dev/null <"$tmp/.exit"
if [ -z "$exit" ]; then
	exit=137
	[ -z "$asked" ] || { exit=143 && echo Terminated 1<>"$tmp/.how"; } # before its first command
fi 2>/dev/null
[ ! -e "$tmp/.unkept" ] || [ "$exit" != 0 ] || exit=74
failed=''
if [ "$ranks" -gt 0 ]; then
	: >"$tmp/.how"
	read -r failed rank_exit <"$tmp/.rank"
	if [ -n "$rank_exit" ]; then
		exit=$rank_exit
		mv "$tmp/.failed" "$tmp/.how"
	fi
fi
[ -n "$asked" ] || [ "$exit" != 143 ] || sleep 0.1 # this script may be asked after the job was
signalled ''
exec 6>&-
used

points=()
[ "$group" != build ] || mounted "$dir"
if [ ${#points[@]} -gt 0 ]; then
	unmount "$dir"
	fail "the build has left something mounted at ${points[0]}, which no job would have"
fi
unmount "${at:-$dir}" "$tmp"

# Slurm begins a job again on another node if this one has not answered. What is there is of that attempt.
# A disk that does not answer either may be waited for at each step from here on.
mine() {
	local file
	for file in "$marked"/.begun-*; do
		[ ! -e "$file" ] || [ "$file" = "$marked/$mark" ] || fail 'Slurm has begun it again on another node'
	done
}

# full DIR tells whether nothing more can be written there, for want of room or by a quota. What
# is removed after a job has ended makes room for its status: without a look before that, one
# that has ignored a failed write would be done without a word.
full() {
	local said file
	if said=$(LC_ALL=C mktemp "$1/.full-XXXXXX" 2>&1); then
		file=$said
		said=$(LC_ALL=C dd if=/dev/zero of="$file" bs=65536 count=1 conv=fsync 2>&1)
		rm -f -- "$file"
	fi
	case $said in *': No space left on device'* | *': Disk quota exceeded'*) return 0 ;; esac
	return 1
}
changed=''
[ "$exit" != 0 ] || each look "${batch_inputs[@]}" "${job_inputs[@]}"
cut=''
[ "$group" = build ] || ! full "$at" || cut='the disk was full, or a quota reached, when it ended'
# Jobs would go on with what a build has not written.
if [ "$group" = build ] && full "$root"; then
	mine
	remove "$root/build"
	printf '\nd2slurm: the disk was full, or a quota reached, when the build ended\n' >>"$print"
	fail 'the build failed, as the disk was full, or a quota reached: see build_output.txt'
fi

# What ran may have removed its own directory, closed it, or put something else there.
own() {
	[ -d "$1" ] && [ ! -L "$1" ] && chmod u+rwx -- "$1" || return
	cd -- "$1" || return
}

remove "$tmp/job" # which may have filled a disk
cd -- "$root" || fail 'the folder is gone'
if [ "$group" = build ]; then
	[ "$exit" = 0 ] || fail "the build failed with exit status $exit: see build_output.txt"
	[ -z "$changed" ] || fail "the build has changed its input $changed, which is shared and read-only"
	mine
	own "$dir" || fail 'the build has removed its own directory, or has put something else in its place'
	all_opened 700 unplace "${batch_inputs[@]}"
	cd -- "$root" || fail 'the folder is gone'
	[ ! -L build/initial_files ] || rm -f build/initial_files
	[ "$kind" != python ] || rmdir build/distribute_save 2>/dev/null
	find build ! -type f ! -type d ! -type l -delete 2>/dev/null # jobs get none
	mine
	printf '%s\n' "${SLURM_JOB_ID:-0}" >built || fail 'the build cannot be noted'
	exit 0
fi

mine
if own "$at" && own "$dir"; then
	all_opened 700 unbuild
	[ "$kind" != apptainer ] || remove home mounts
fi
mine
own "$at" || { remove "$at" && mkdir -p -- "$at" && cd -- "$at"; } || fail "$at cannot be made"
[ "$ranks" -eq 0 ] || [ -n "$failed" ] || [ "$exit" = 0 ] || cat "$print" >>"$rank0" # why srun has started none
remove status.json status.json.new
# signal NUMBER prints what a signal is called at home, where those without a name have their number.
signal() {
	local name
	name=$(kill -l "$1")
	case $name in '' | RT*) name=$1 ;; esac
	printf 'SIG%s' "$name"
}
ended='"exit":'$exit',"signal":""'
# The shell tells of a signal, and else the status of the job is its own.
if [ "$exit" -gt 128 ] && [ -n "$(cat "$tmp/.how" 2>/dev/null)" ]; then
	ended='"exit":null,"signal":"'$(signal $((exit - 128)))'"'
fi
[ -z "$asked" ] || [ "$exit" = 0 ] || ended+=',"terminated":true'
case $exit in 126 | 127) ;; *) windows='' ;; esac
if [ -n "$changed" ] && [ "$exit" = 0 ]; then
	ended+=",\"reason\":\"the shared input \\\"$changed\\\" was changed while it ran\""
	exit=1 # for Slurm: what needs it does not run
# Where all are asked to end, which rank did first says nothing.
elif [ -n "$failed" ] && [ -z "$asked" ]; then
	words=${windows:-exit $exit}
	case $ended in *null*) words=$(signal $((exit - 128))) ;; esac
	ended+=",\"reason\":\"rank $failed of $ranks: $words\""
elif [ -n "$windows" ]; then
	ended+=",\"reason\":\"$windows\""
elif [ -e "$tmp/.unkept" ] && [ "$exit" != 137 ]; then # the writer is killed with the job
	ended+=',"reason":"what it printed cannot be kept"'
elif [ -n "$cut" ] && [ "$exit" != 0 ] && [ -z "$asked" ]; then
	ended+=",\"reason\":\"$cut\""
elif [ -n "$cut" ] && [ "$exit" = 0 ]; then
	ended+=",\"skipped\":\"$cut: its files may be cut short\""
fi
printf '{%s,"started":"%s","ended":"%s","node":"%s","slurm":"%s"%s}\n' "$ended" "$began" "$(now)" \
	"${SLURMD_NODENAME:-}" "$DISTRIBUTE_ATTEMPT" "$(usage)" >status.json.new && sync status.json.new && mv status.json.new status.json ||
	fail 'how the job ended cannot be noted: is the disk full?'
[ "$exit" = 0 ] || rm -f "$root"/groups/*.met # which an attempt that ended well has let others write
exit "$exit"
