# The CPU time, in ticks, of each process below the supervisors of a node.
ps -eo pid=,ppid=,args= | awk -v dir=$1 '
{ up[$1] = $2 }
$3 ~ /^dnoded-slot/ && $4 == dir { top[$1] = 1 }
END { for (p in up) for (q = up[p]; q in up; q = up[q]) if (q in top) { print p; break } }' |
sort -n | while read pid; do awk '{ print $1, $14 + $15 }' /proc/$pid/stat; done
