#compdef d2slurm dadm dcancel dfsck dhold dlocal dlog dnew dnoded dnotify dpause dplot dpull dquery dreport dretry drm drun dsched dset dsubmit dsweep dtable dwait
# zsh completion for the commands of distribute: what each prints with -h.

_distribute() {
	local usage option
	local -aU offered
	usage=$(${(Q)words[1]} -h 2>/dev/null) || return 1
	for option in ${(uf)"$(grep -oE -- '--?[A-Za-z]+( [a-z])?' <<<$usage)"}; do
		case $option in
		(*' '*)
			offered+=(${option% *})
			if [[ $words[CURRENT-1] == ${option% *} ]]; then
				_files
				return
			fi
			;;
		(-attach|-init|-insecure|-stdio|--*) offered+=($option) ;;
		(*) offered+=(-${(s::)^option#-}) ;;
		esac
	done
	if [[ $words[CURRENT] == -* ]]; then
		compadd -- $offered -h -V
	elif [[ ${words[1]:t} == dadm && CURRENT -eq 2 ]]; then
		compadd -- ${(uf)"$(sed -n 's/.* *dadm \([a-z]*\) .*/\1/p' <<<$usage)"}
	else
		_files
	fi
}

_distribute "$@"
