"""`python -m trainer`, but something happens to its ranks, as the environment says.

STOP_AT=N: each asks itself to stop, by SIGTERM, when it comes to batch N of its training.
LARGEST_FILE=N: no file may have more bytes, as on a disk that is full.
LATE_S=N: rank 0 begins so many seconds later, as one that still imports torch.
"""

import itertools
import os
import resource
import signal
import sys
import time

from trainer.__main__ import leave, main
from trainer.distributed.session import Session


def stop_at(batch: int) -> None:
    """Sends this process SIGTERM when it has come to that batch."""
    advanced, batches = Session.advanced, itertools.count(1)

    def advanced_and_stopped(session: Session) -> None:
        advanced(session)
        if next(batches) == batch:
            os.kill(os.getpid(), signal.SIGTERM)

    Session.advanced = advanced_and_stopped  # type: ignore[method-assign]


if __name__ == "__main__":
    if "STOP_AT" in os.environ:
        stop_at(int(os.environ["STOP_AT"]))
    if "LARGEST_FILE" in os.environ:
        most = int(os.environ["LARGEST_FILE"])
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    if "LATE_S" in os.environ and os.environ.get("LOCAL_RANK") == "0":
        time.sleep(float(os.environ["LATE_S"]))
    leave(main(sys.argv[1:], os.environ))
