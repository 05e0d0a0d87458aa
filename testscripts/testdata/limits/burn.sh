# Four loops that want a cpu each, and take themselves any if they can.
taskset -p -c 0-1023 $$ >taskset.txt 2>&1
pids=
for i in 1 2 3 4; do
	while :; do :; done &
	pids="$pids $!"
done
sleep 3
kill $pids
