"""The signals that ask a training to save and leave.  Quickly imported: helper processes use it."""

import signal

REQUESTS_TO_LEAVE = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT, signal.SIGHUP)


def ignore_requests_to_leave() -> None:
    """Let this process, which helps a training, go on until the training has saved and ends it."""
    for signum in REQUESTS_TO_LEAVE:
        signal.signal(signum, signal.SIG_IGN)
