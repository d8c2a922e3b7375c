"""EC2 on this machine: instances of the embedded AWS are nodes that run the real boot script."""
