"""A rank ends with the torchrun that started it: nobody would stop it any more, nor start the others with it again."""

import os
import signal
import threading
import time
from collections.abc import Mapping

from trainer.contract import Exit
from trainer.errors import report_end

LOOK_EVERY_S = 1.0
# How long a rank may take to save and leave: it may hang, as whoever killed torchrun may have seen.
SAVE_WITHIN_S = 10.0


def end_with_torchrun(env: Mapping[str, str]) -> None:
    """Has this process save and leave when its torchrun is gone; ranks of other launchers are theirs to end.

    A thread looks: the kernel's own signal (PR_SET_PDEATHSIG) comes when the thread ends that started this process,
    which need not be the end of torchrun, and is Linux's alone.
    """
    if "TORCHELASTIC_RUN_ID" in env:
        threading.Thread(target=_follow, args=(os.getppid(),), name="parent", daemon=True).start()


def _follow(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(LOOK_EVERY_S)  # that a parent which is no child has ended cannot be waited for
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(SAVE_WITHIN_S)
    report_end(Exit.MACHINE, "torchrun is gone, and this rank did not end by itself; start again to resume.")
    os._exit(Exit.MACHINE)
