"""EC2 nodes on this machine, as namespaces or as plain processes; each runs the real boot script."""
