"""`python -m launch.rehearse.watchdog PID MODULE FLAGS...`: run the module until its parent PID has ended.

Otherwise the launcher of a killed rehearsal would retry its requests to the embedded AWS for ten minutes.
"""

import os
import runpy
import signal
import sys
import threading
import time

POLL_S = 0.5


def main() -> None:
    """Run the module as __main__, and kill this process when its parent has ended."""
    threading.Thread(target=_watch, args=[int(sys.argv[1])], daemon=True).start()
    module, *sys.argv[1:] = sys.argv[2:]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(POLL_S)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
