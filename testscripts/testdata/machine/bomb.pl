# It starts processes, which stay, until it may start no more.
my $n = 0;
while (defined(my $pid = fork)) {
	if (!$pid) { sleep 1000 while 1 }
	$n++;
}
print "$n, and no more: $!\n";
exit 3;
