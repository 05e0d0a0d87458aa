# It does not hear that it is asked to end.
trap '' TERM
echo begun
while :; do sleep 1000; done
