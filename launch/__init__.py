"""Where a training runs: on this machine, and later on AWS and Slurm.  Never imports torch."""
