"""What a run reports: counters, records, logs, trackers, curves and the progress bar."""
