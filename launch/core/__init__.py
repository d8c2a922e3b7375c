"""What every backend and tool uses: the command line, plans, prices, AWS, processes.  It imports no backend."""
