"""Where a training runs: on this machine, on AWS or on Slurm.  Never imports torch."""

import trainer as trainer  # first of all: it sees to standard streams and Ctrl-C
