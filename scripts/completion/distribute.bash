# bash completion for the commands of distribute: what each prints with -h.
# shellcheck shell=bash

_distribute() {
	local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} usage option i offered=
	COMPREPLY=()
	usage=$("$1" -h 2>/dev/null) || return 0
	while read -r option; do
		case $option in
		*' '* | -attach | -init | -insecure | -stdio | --*)
			offered+=" ${option% *}"
			[[ $option != *' '* || $before != "${option% *}" ]] || return 0 # its value: a file, by -o default
			;;
		*) for ((i = 1; i < ${#option}; i++)); do offered+=" -${option:i:1}"; done ;;
		esac
	done < <(grep -oE -- '--?[A-Za-z]+( [a-z])?' <<<"$usage" | sort -u)
	if [[ $word == -* ]]; then
		mapfile -t COMPREPLY < <(compgen -W "$offered -h -V" -- "$word" | sort -u)
	elif [[ ${1##*/} == dadm && $COMP_CWORD == 1 ]]; then
		mapfile -t COMPREPLY < <(compgen -W "$(sed -n 's/.* *dadm \([a-z]*\) .*/\1/p' <<<"$usage")" -- "$word" | sort -u)
	fi
}

complete -o default -F _distribute \
	d2slurm dadm dcancel dfsck dhold dlocal dlog dnew dnoded dnotify dpause dplot dpull dquery dreport dretry drm drun dsched dset dsubmit dsweep dtable dwait
