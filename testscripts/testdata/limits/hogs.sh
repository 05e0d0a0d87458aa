# Two processes that have, together only, more than they may. They wait to be
# killed.
hog() { { head -c 80000000 /dev/zero; exec sleep 1000; } | tail; }
hog &
hog &
wait
