"""EC2 nodes on this machine, in namespaces or as plain processes; each runs the real boot script."""
