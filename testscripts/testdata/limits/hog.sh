# One process that has more than it may. It waits to be killed.
{ head -c 300000000 /dev/zero; exec sleep 1000; } | tail
