i=0
while test $i -lt 300000; do i=$((i + 1)); done
