# What a job finds of the machine.
echo "cpus $(nproc) of $DISTRIBUTE_CPUS, memory $DISTRIBUTE_MEMORY, gpus $DISTRIBUTE_GPUS"
echo "cuda '${CUDA_VISIBLE_DEVICES-unset}'"
cut -d ' ' -f 19,41 /proc/self/stat
