"""What `python -m trainer...` and `python -m launch...` do first of all, and what nobody else who imports them gets."""

import os
import sys
from pathlib import Path
from types import TracebackType


def begin() -> None:
    """Gives this process the standard streams that it lacks, and lets Ctrl-C end it without a traceback."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # Closed by who started this, as with `>&-`: the next file that is opened would have its number, and what
            # the processes that this one starts print would go into that file.
            stream = Path(os.devnull).open(mode)  # noqa: SIM115  # as long as the process
            os.set_inheritable(stream.fileno(), True)
            setattr(sys, name, stream)
    sys.excepthook = _told


def _told(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    # While modules are loaded, where nothing else catches it; Python then ends by the signal itself.
    if not issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)
