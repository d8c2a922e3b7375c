"""Processes end with the one that started them, so that no training is an orphan, and which signals ask them to."""

import os
import select
import signal
import threading
import time
from collections.abc import Callable, MutableMapping

from trainer.contract import LAUNCHER, Exit
from trainer.errors import report_end

LOOK_EVERY_S = 1.0
# How long a rank may take to save and leave: it may hang, which may be why torchrun was killed.
SAVE_WITHIN_S = 10.0
# torchrun gives its workers 30 s, and then kills them.
TORCHRUN_WITHIN_S = 40.0
REQUESTS_TO_LEAVE = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT, signal.SIGHUP)


def end_with_parent(
    env: MutableMapping[str, str], *, within_s: float | None = None, at_last: Callable[[], None] = lambda: None
) -> None:
    """Has this process save and leave when the launcher or torchrun that started it is gone.

    Only where that is meant: for a launcher that has put its process id into `env`, whence it is taken, as our own
    children are not its; and for torchrun.  Ranks of other launchers are theirs to end.
    within_s: after which at_last is called and the process ends by force.

    A thread looks: the kernel's own signal (PR_SET_PDEATHSIG) comes when the thread ends that started this process,
    which need not be the end of its process, and is Linux's alone.
    """
    launcher = env.pop(LAUNCHER, None)
    if launcher is None and "TORCHELASTIC_RUN_ID" not in env:
        return
    name, parent = ("the launcher", int(launcher)) if launcher else ("torchrun", os.getppid())
    threading.Thread(target=_follow, args=(parent, name, within_s, at_last), name="parent", daemon=True).start()


def _follow(parent: int, name: str, within_s: float | None, at_last: Callable[[], None]) -> None:
    while os.getppid() == parent:
        time.sleep(LOOK_EVERY_S)  # that a parent which is no child has ended cannot be waited for
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(SAVE_WITHIN_S if within_s is None else within_s)
    at_last()
    report_end(Exit.MACHINE, f"{name} is gone, and its training did not end by itself; start again to resume.")
    os._exit(Exit.MACHINE)


def end_with_starter(sentinel: int) -> None:
    """Has this process end at once with the one that started it, however that ends.

    sentinel: of multiprocessing.parent_process().
    """

    def follow() -> None:
        ended = select.poll()
        ended.register(sentinel, select.POLLIN)
        ended.poll()
        os._exit(0)

    threading.Thread(target=follow, name="parent", daemon=True).start()


def ignore_requests_to_leave() -> None:
    """Let this process, which helps a training, go on until the training has saved and ends it."""
    for signum in REQUESTS_TO_LEAVE:
        signal.signal(signum, signal.SIG_IGN)
