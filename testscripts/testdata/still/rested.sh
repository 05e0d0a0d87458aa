# Fails unless each of the jobs has run for so many seconds less than it was there.
dquery -j $2 | sed 's/.*"started":"\([^"]*\)".*"runtime":\([0-9.]*\).*/\1 \2/' | while read started runtime; do
	echo $(date -d $started +%s.%N) $runtime $(date +%s.%N)
done | awk -v least=$1 '{ print $3 - $1 - $2, "of", $3 - $1; few += !($2 > 0 && $3 - $1 - $2 > least) } END { exit few || !NR }'
