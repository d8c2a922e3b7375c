"""Process-level setup: device, threads, signals, parent process and the lock on the run folder."""
