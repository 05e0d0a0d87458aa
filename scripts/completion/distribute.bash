# bash completion for the commands of distribute
# shellcheck shell=bash

# The options of a command; a colon follows those with a value.
_distribute_options() {
	local options=
	case $1 in
	d2slurm) options='-A: -C -H: -M: -N: -U -b: -k -n -o: -q -r -s: -u: -v -x' ;;
	dadm) options='-H: -n -q' ;;
	dcancel) options='-H: -n -q -v' ;;
	dfsck) options='-D: -S: -j -q -r -s -v' ;;
	dhold) options='-H: -n -p -q -r -v' ;;
	dlocal) options='-d: -s' ;;
	dlog) options='-B -H: -L: -f -q -r: -v' ;;
	dnew) options='' ;;
	dnoded) options='-D: -H: -init -insecure -n -stdio -v' ;;
	dnotify) options='-D: -H: -O: -a -m: -q -v' ;;
	dpause) options='-D: -e -g: -q -r' ;;
	dpull) options='-H: -i: -n -o: -q -v -x:' ;;
	dquery) options='-A -H: -N -a -c: -f -j -q -s -t -v -w' ;;
	dretry) options='-H: -n -q -v' ;;
	drm) options='-H: -a -n -q -v' ;;
	drun) options='-H: -c: -k -n -o: -q -v' ;;
	dsched) options='-S: -attach -insecure -l: -v' ;;
	dset) options='-H: -T: -m: -n -p: -q -v' ;;
	dsubmit) options='-H: -J: -Q -R: -T: -a -b: -e: -i: -j -k -m: -n -q -s: -u -v -w' ;;
	dsweep) options='-j -k: -n -s: -x:' ;;
	dtable) options='-H: -a -c: -j -q -v' ;;
	dwait) options='-H: -T: -q -v' ;;
	esac
	printf '%s' "$options"
}

_distribute() {
	local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} options
	options=$(_distribute_options "${1##*/}")
	COMPREPLY=()
	if [[ ${1##*/} == dadm && $COMP_CWORD == 1 && $word != -* ]]; then
		mapfile -t COMPREPLY < <(compgen -W 'accept drain init lost remove resume' -- "$word")
		return 0
	fi
	# The value of an option, and what is no option: files, by -o default.
	[[ " $options " != *" $before: "* && $word == -* ]] || return 0
	mapfile -t COMPREPLY < <(compgen -W "${options//:/} -h -V" -- "$word")
}

complete -o default -F _distribute \
	d2slurm dadm dcancel dfsck dhold dlocal dlog dnew dnoded dnotify dpause dpull dquery dretry drm drun dsched dset dsubmit dsweep dtable dwait
