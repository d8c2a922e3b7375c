"""Health check of the machines: GPUs, a matrix product and the network, run before a training by --health-check."""
