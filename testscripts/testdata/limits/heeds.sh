# It saves what it has when it is asked to end, at once.
trap 'echo saved >saved.txt; exit 0' TERM
sleep 1000 &
wait
