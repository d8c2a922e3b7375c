"""Worker processes that live no longer than this one, however it ends, and how their progress is shown."""

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
AHEAD = 2  # tasks for each worker that are made at a time

Count = Callable[[int], object]  # called with the number of images done
Work = Callable[[Any, Count], Any]  # (task, count) -> result

_shared: dict[str, Any] = {}  # of a worker, see _begin()


def run_all(tasks: Iterable[Any], work: Work, workers: int, count: Count) -> Iterator[tuple[Any, Any]]:
    """Each task with its result, as they become ready.  Raises what `work` raises.  Closing it ends the workers.

    work: a function of a module, for it is sent by name.  One worker is this process.
    """
    if workers == 1:
        for task in tasks:
            yield task, work(task, count)
        return
    context = multiprocessing.get_context("spawn")
    done, ends = context.Value("Q"), context.Event()
    pool = ProcessPoolExecutor(workers, context, _begin, (done, ends))
    coming, waiting = iter(tasks), dict[Future[Any], Any]()
    try:
        while True:
            waiting |= {pool.submit(_do, work, task): task for task in islice(coming, AHEAD * workers - len(waiting))}
            if not waiting:
                return
            ready, _ = wait(waiting, REPORT_EVERY_S, FIRST_COMPLETED)
            count(_taken(done))
            for future in ready:
                yield waiting.pop(future), future.result()
    except BrokenProcessPool as error:
        raise MachineError(
            "a worker was killed, probably for lack of memory; run the same command again with fewer --workers to "
            "resume."
        ) from error
    finally:
        ends.set()
        pool.shutdown(cancel_futures=True)


def _taken(done: Any) -> int:
    """What has been counted since the last time."""
    with done.get_lock():
        taken, done.value = int(done.value), 0
    return taken


def _begin(done: Any, ends: Any) -> None:
    """The first that a worker does.  done: images that all of them count; ends: set when no result is wanted."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all; the parent decides
    starter = multiprocessing.parent_process()
    assert starter is not None
    end_with_starter(starter.sentinel)
    _shared.update(done=done, ends=ends)


def _do(work: Work, task: Any) -> Any:
    return work(task, _count)


def _count(images: int) -> None:
    if _shared["ends"].is_set():
        raise CancelledError
    with _shared["done"].get_lock():
        _shared["done"].value += images


@contextmanager
def shown(what: str, total: int, interactive: bool, say: Callable[[str], None]) -> Iterator[Count]:
    """Yield a function to call with the number done, of `total`: it moves a bar on a terminal, or prints lines."""
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
