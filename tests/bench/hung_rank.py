"""`python -m trainer`, but one rank hangs: HANG=RANK:WHERE in the environment.  With "error" as where, it fails.

It says so on standard error when it begins to, and who reports it, for hangs.py.
"""

import functools
import os
import signal
import sys
import time
from collections.abc import Callable, Generator
from typing import Any, NoReturn

from trainer.__main__ import leave, main
from trainer.distributed.ranks import read_ranks
from trainer.errors import DataError, ends_reported_to

WHERE = ("data", "evaluation", "collective", "saving", "SIGSTOP")
# Of the calls of a kind, which one hangs: the first epoch is over by then.
HANGS_AT = 12


def hang(rank: int, how: Callable[[], None]) -> None:
    """Says so, and hangs."""
    os.write(2, f"rank {rank} hangs\n".encode())
    how()


def fail() -> NoReturn:
    """As a rank that meets an unreadable image."""
    raise DataError("0.jpg cannot be read.")


def sleep_for_ever() -> None:
    """Longer than anybody waits."""
    time.sleep(3600)


def prepare(rank: int, where: str) -> None:
    """Makes this process hang at `where`, once it has trained for a while."""
    from trainer.datasets.synthetic import SyntheticSplit
    from trainer.distributed.session import Session
    from trainer.state import snapshot
    from trainer.state.checkpoint import Checkpoints

    stop = functools.partial(os.kill, os.getpid(), signal.SIGSTOP)
    hangs = functools.partial(hang, rank, {"SIGSTOP": stop, "error": fail}.get(where, sleep_for_ever))
    if where == "evaluation":
        _hang_between(SyntheticSplit, "eval_batches", hangs)
    elif where == "collective":
        _hang_in(Session, "highest", hangs)
    elif where == "saving":
        owner, name = (Checkpoints, "_write") if rank == 0 else (snapshot, "take")
        _hang_in(owner, name, hangs, at=2)
    else:
        _hang_between(SyntheticSplit, "train_batches", hangs)


def _hang_in(owner: Any, name: str, hangs: Callable[[], None], at: int = HANGS_AT) -> None:
    """Hangs in the call number `at` of owner.name."""
    original, calls = getattr(owner, name), iter(range(1, at))

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if next(calls, None) is None:
            hangs()
        return original(*args, **kwargs)

    setattr(owner, name, wrapper)


def _hang_between(owner: Any, name: str, hangs: Callable[[], None]) -> None:
    """Hangs before the batch number HANGS_AT that owner.name yields."""
    original, batches = getattr(owner, name), iter(range(1, HANGS_AT))

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Generator[Any]:
        for batch in original(*args, **kwargs):
            if next(batches, None) is None:
                hangs()
            yield batch

    setattr(owner, name, wrapper)


if __name__ == "__main__":
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # as the trainer does, but torch is imported here
    own = read_ranks(os.environ).rank
    who, _, place = os.environ["HANG"].partition(":")
    if own == int(who):
        prepare(own, place)
    with ends_reported_to(
        lambda code, sentence: print(f"rank {own} reported it with {code}", file=sys.stderr, flush=True)
    ):
        exit_code = main(sys.argv[1:], os.environ)
    leave(exit_code)
