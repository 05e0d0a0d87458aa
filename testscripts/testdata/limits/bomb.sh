# It starts more processes than it may, and fails when it cannot.
n=0
while [ $n -lt 3000 ]; do
	sleep 1000 &
	n=$((n + 1))
done
