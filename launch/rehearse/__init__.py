"""A job's whole life on this machine: an AWS inside this process, and nodes that run the real boot script."""
