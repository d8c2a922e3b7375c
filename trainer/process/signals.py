"""Signals that are sent to all processes of a training and are for one of them."""

import signal


def ignore_requests_to_leave() -> None:
    """Has this process, which helps a training, go on until the training has saved and ends it."""
    for signum in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT, signal.SIGHUP):
        signal.signal(signum, signal.SIG_IGN)
