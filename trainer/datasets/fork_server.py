"""Imported by the server of processes that decode images, before it forks any; by nobody else.

Slurm and terminals send the signals that ask a training to save and leave to all of its processes.  These are for the
training alone, which needs its images until it has saved; the server ends when the training has.
"""

from trainer.process.signals import ignore_requests_to_leave

ignore_requests_to_leave()
