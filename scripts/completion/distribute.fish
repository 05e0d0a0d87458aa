# fish completion for the commands of distribute: what each prints with -h.

function __distribute_usage
    set -l words (commandline -opc)
    command -q -- $words[1]
    and command $words[1] -h 2>/dev/null
end

# Each option, a line; with "value" those that have one.
function __distribute_options
    for option in (__distribute_usage | string match -ra -- '--?[A-Za-z]+(?: [a-z])?')
        switch $option
            case '* *'
                printf '%s\tvalue\n' (string replace -r ' .$' '' -- $option)
            case -attach -init -insecure -stdio '--*'
                printf '%s\n' $option
            case '*'
                string split '' -- (string sub -s 2 -- $option) | string replace -r '^' -
        end
    end | sort -u
    printf '%s\n' -h -V
end

function __distribute_at_option
    string match -q -- '-*' (commandline -ct)
    and not contains -- (commandline -opc)[-1] (__distribute_options | string replace -rf '\tvalue$' '')
end

for command in d2slurm dadm dcancel dfsck dhold dlocal dlog dnew dnoded dnotify dpause dplot dpull dquery dreport dretry drm drun dsched dset dsubmit dsweep dtable dwait
    complete -c $command -n __distribute_at_option -a '(__distribute_options)'
end
complete -c dadm -n 'test (count (commandline -opc)) = 1' -f -a '(__distribute_usage | string replace -rf \'.* *dadm ([a-z]+) .*\' \'$1\' | sort -u)'
