"""What every backend and tool uses, nothing of AWS: the command line, jobs, plans, prices, processes, the terminal."""
