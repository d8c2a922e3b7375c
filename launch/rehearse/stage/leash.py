"""`python -m launch.rehearse.stage.leash PID MODULE FLAGS...`: runs the module until its parent PID is gone.

A launcher that is rehearsed would go on looking for its AWS for ten minutes after a rehearsal that was killed.
"""

import os
import runpy
import signal
import sys
import threading
import time

LOOK_EVERY_S = 0.5


def main() -> None:
    """Becomes the module that the command line names."""
    threading.Thread(target=_watch, args=[int(sys.argv[1])], daemon=True).start()
    module, *sys.argv[1:] = sys.argv[2:]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(LOOK_EVERY_S)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
