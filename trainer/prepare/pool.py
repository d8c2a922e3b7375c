"""A pool of worker processes that exit with this one, even if it is killed, and their progress display."""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from itertools import islice
from typing import Any

from trainer.errors import MachineError
from trainer.process.parent import end_with_starter

REPORT_EVERY_S = 0.25
LINE_EVERY_S = 30.0
AHEAD = 2  # tasks created in advance for each worker

Count = Callable[[int], object]  # called with the number of images just done
Work = Callable[[Any, Count], Any]  # (task, count) -> result

_shared: dict[str, Any] = {}  # in a worker: set by _init_worker()


def run_all(tasks: Iterable[Any], work: Work, workers: int, count: Count) -> Iterator[tuple[Any, Any]]:
    """Yield each task with its result, in order of completion.  Raises what `work` raises.

    work: a module-level function, because it is pickled.  A single worker runs in this process.  Closing the generator
    stops the workers.
    """
    if workers == 1:
        for task in tasks:
            yield task, work(task, count)
        return
    context = multiprocessing.get_context("spawn")
    done, cancelled = context.Value("Q"), context.Event()
    pool = ProcessPoolExecutor(workers, context, _init_worker, (done, cancelled))
    remaining, pending = iter(tasks), dict[Future[Any], Any]()
    try:
        while True:
            added = islice(remaining, AHEAD * workers - len(pending))
            pending |= {pool.submit(_do, work, task): task for task in added}
            if not pending:
                return
            ready, _ = wait(pending, REPORT_EVERY_S, FIRST_COMPLETED)
            count(_take_count(done))
            for future in ready:
                yield pending.pop(future), future.result()
    except BrokenProcessPool as error:
        raise MachineError(
            "a worker was killed, probably for lack of memory; run the same command again with fewer --workers to "
            "resume."
        ) from error
    finally:
        cancelled.set()
        pool.shutdown(cancel_futures=True)


def _take_count(done: Any) -> int:
    """The number of images counted since the last call."""
    with done.get_lock():
        taken, done.value = int(done.value), 0
    return taken


def _init_worker(done: Any, cancelled: Any) -> None:
    """Initialise a worker.  done: shared counter of images; cancelled: event that is set to stop all workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the parent handles it
    parent = multiprocessing.parent_process()
    assert parent is not None
    end_with_starter(parent.sentinel)
    _shared.update(done=done, cancelled=cancelled)


def _do(work: Work, task: Any) -> Any:
    return work(task, _count)


def _count(images: int) -> None:
    if _shared["cancelled"].is_set():
        raise CancelledError
    with _shared["done"].get_lock():
        _shared["done"].value += images


@contextmanager
def shown(what: str, total: int, interactive: bool, say: Callable[[str], None]) -> Iterator[Count]:
    """Yield a function to call with each number of images done: it updates a progress bar, or prints lines."""
    if not interactive:
        yield _Lines(what, total, say)
        return
    from tqdm import tqdm

    form = "{desc} |{bar}| {n_fmt}/{total_fmt} {rate_noinv_fmt} {remaining} left"
    with tqdm(desc=what, total=total, unit="", leave=False, dynamic_ncols=True, bar_format=form) as bar:
        yield bar.update


class _Lines:
    def __init__(self, what: str, total: int, say: Callable[[str], None]) -> None:
        self._what, self._total, self._say = what, total, say
        self._done, self._began = 0, time.monotonic()
        self._said_at = self._began

    def __call__(self, done: int) -> None:
        self._done += done
        now = time.monotonic()
        if now - self._said_at >= LINE_EVERY_S:
            self._said_at = now
            rate = self._done / (now - self._began)
            left_s = (self._total - self._done) / max(rate, 1e-9)
            self._say(
                f"{self._what}: {self._done:,} of {self._total:,}, {rate:,.0f}/s, about {left_s / 60:.0f} min left"
            )
