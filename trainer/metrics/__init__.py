"""Metrics of a run: counters, records, logs, trackers, curves and the progress bar."""
