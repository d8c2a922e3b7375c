"""Standard output, which may become unusable while a training runs: its reader ends, or its disk is full."""

import os
import sys

from trainer.terminal import harmless


def say(line: str) -> None:
    """Writes a line, at once and in one piece: mpirun and torchrun mix the output of ranks between writes.

    Where that fails, a warning says so once, and the training goes on: the run folder has every number.
    """
    encoding = sys.stdout.encoding or "utf-8"
    printable = harmless(line).encode(encoding, "backslashreplace").decode(encoding)  # a path may hold any bytes
    try:
        sys.stdout.write(printable + "\n")
        sys.stdout.flush()
    except OSError as error:
        _write_nowhere()
        sys.stderr.write(f"warning: standard output is lost ({error.strerror}); the training goes on without it.\n")
        sys.stderr.flush()


def _write_nowhere() -> None:
    """Discards what is in the buffer, and all later output."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
