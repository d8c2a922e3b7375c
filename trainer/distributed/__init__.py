"""The ranks of a job: numbering, connecting, communication, and detection of lost or stalled ranks."""
