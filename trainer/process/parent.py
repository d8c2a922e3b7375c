"""Making processes exit when their parent does, so that no training is orphaned, and the stop signals."""

import os
import select
import signal
import threading
import time
from collections.abc import Callable, MutableMapping

from trainer.contract import LAUNCHER, Exit
from trainer.errors import report_end

LOOK_EVERY_S = 1.0
# How long a rank may take to save and exit: it may hang, which may be why torchrun was killed.
SAVE_WITHIN_S = 10.0
# torchrun kills its workers after 30 s.
TORCHRUN_WITHIN_S = 40.0
REQUESTS_TO_LEAVE = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT, signal.SIGHUP)


def end_with_parent(
    env: MutableMapping[str, str], *, within_s: float | None = None, at_last: Callable[[], None] = lambda: None
) -> None:
    """Make this process save and exit when its parent, our launcher or torchrun, has ended.

    Does nothing under other launchers.  Our launchers put their process id into `env`; it is removed there, so that
    child processes do not inherit it.  within_s: seconds to wait before at_last is called and the process exits.

    A thread polls the parent, because PR_SET_PDEATHSIG exists only on Linux, and fires when the thread that started
    this process ends, even if the parent process does not.
    """
    launcher = env.pop(LAUNCHER, None)
    if launcher is None and "TORCHELASTIC_RUN_ID" not in env:
        return
    name, parent = ("the launcher", int(launcher)) if launcher else ("torchrun", os.getppid())
    threading.Thread(target=_follow, args=(parent, name, within_s, at_last), name="parent", daemon=True).start()


def _follow(parent: int, name: str, within_s: float | None, at_last: Callable[[], None]) -> None:
    while os.getppid() == parent:
        time.sleep(LOOK_EVERY_S)  # a process can wait for its children only, not for its parent
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(SAVE_WITHIN_S if within_s is None else within_s)
    at_last()
    report_end(Exit.MACHINE, f"{name} has ended, and the training did not stop in time; start again to resume.")
    os._exit(Exit.MACHINE)


def end_with_starter(sentinel: int) -> None:
    """Make this process exit immediately when its parent ends, even if that is killed.

    sentinel: of multiprocessing.parent_process().
    """

    def follow() -> None:
        ended = select.poll()
        ended.register(sentinel, select.POLLIN)
        ended.poll()
        os._exit(0)

    threading.Thread(target=follow, name="parent", daemon=True).start()


def ignore_requests_to_leave() -> None:
    """Ignore stop signals in a helper process, so that it works until the training has saved and stops it."""
    for signum in REQUESTS_TO_LEAVE:
        signal.signal(signum, signal.SIG_IGN)
