"""Worker processes that live no longer than this one, however it ends, and how their progress is shown."""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING, Any

from trainer.errors import MachineError

if TYPE_CHECKING:
    from rich.progress import Progress, Task
    from rich.text import Text

REPORT_EVERY_S = 0.25
LEAVE_WITHIN_S = 10.0
LINE_EVERY_S = 30.0

Count = Callable[[int], None]  # called with the number of images done
Work = Callable[[Any, Count], Any]  # (task, count) -> result


def run_all(tasks: Iterable[Any], work: Work, workers: int, count: Callable[[int], None]) -> Iterator[tuple[Any, Any]]:
    """Each task with its result, as they become ready.  Raises what `work` raises.  Closing it ends the workers.

    work: a function of a module, for it is sent by name.  One worker is this process.
    """
    if workers == 1:
        for task in tasks:
            yield task, work(task, count)
        return
    # Not multiprocessing's pools: where their process is killed, its workers wait for it for ever.
    pool = [_Worker.start(work) for _ in range(workers)]
    try:
        yield from _shared(iter(tasks), pool, count)
    finally:
        for worker in pool:
            worker.connection.close()
        deadline = time.monotonic() + LEAVE_WITHIN_S
        for worker in pool:
            worker.process.join(max(0.0, deadline - time.monotonic()))
            worker.process.kill()


@dataclass
class _Worker:
    process: BaseProcess
    connection: Connection[Any, Any]
    task: Any = None

    @classmethod
    def start(cls, work: Work) -> _Worker:
        # Spawned, not forked: a forked one would keep the others' connections open, and none would see ours closed.
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(theirs, work), daemon=True)
        process.start()
        theirs.close()
        return cls(process, ours)

    def receive(self) -> Any:
        """Receives the worker's answer.  Raises MachineError if it is dead."""
        try:
            return self.connection.recv()
        except (EOFError, ConnectionError) as error:
            self.process.join(1)
            raise MachineError(
                f"a worker was killed (exit code {self.process.exitcode}), probably for lack of memory; "
                "run the same command again with fewer --workers to resume."
            ) from error


def _shared(tasks: Iterator[Any], pool: list[_Worker], count: Callable[[int], None]) -> Iterator[tuple[Any, Any]]:
    busy: dict[Any, _Worker] = {}
    for worker in pool:
        _give(worker, tasks, busy)
    while busy:
        for connection in wait(list(busy)):
            worker = busy[connection]
            kind, value = worker.receive()
            if kind == "count":
                count(value)
            elif kind == "failed":
                raise value
            else:
                task = worker.task
                _give(worker, tasks, busy)  # before its result is looked at, so that it need not wait
                yield task, value


def _give(worker: _Worker, tasks: Iterator[Any], busy: dict[Any, _Worker]) -> None:
    """Gives the next task, if there is one."""
    worker.task = next(tasks, None)
    busy.pop(worker.connection, None)
    if worker.task is not None:
        busy[worker.connection] = worker
        with suppress(ConnectionError):  # dead, as the next receive() says
            worker.connection.send(worker.task)


class _Counter:
    """Reports what is done to the parent, a few times a second."""

    def __init__(self, connection: Connection[Any, Any]) -> None:
        self._connection, self._pending, self._sent_at = connection, 0, time.monotonic()

    def __call__(self, done: int) -> None:
        self._pending += done
        if time.monotonic() - self._sent_at > REPORT_EVERY_S:
            self.send()

    def send(self) -> None:
        self._connection.send(("count", self._pending))
        self._pending, self._sent_at = 0, time.monotonic()


def _serve(connection: Connection[Any, Any], work: Work) -> None:
    """The life of a worker: until its parent has closed the connection, or is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all; the parent decides
    counter = _Counter(connection)
    with suppress(EOFError, ConnectionError):
        while True:
            task = connection.recv()
            try:
                answer = ("done", work(task, counter))
            except ConnectionError:
                raise
            except Exception as error:
                answer = ("failed", error)
            counter.send()
            connection.send(answer)


@contextmanager
def shown(what: str, total: int, interactive: bool, say: Callable[[str], None]) -> Iterator[Count]:
    """Yield a function to call with the number done, of `total`: it moves a bar on a terminal, or prints lines."""
    if not interactive:
        yield _Lines(what, total, say)
        return
    with _bar() as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.advance(task, done)


def _bar() -> Progress:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    class Speed(ProgressColumn):
        """Of a task; nothing until it is known."""

        def render(self, task: Task) -> Text:
            return Text(f"{task.speed:,.0f}/s" if task.speed else "")

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        Speed(),
        TimeRemainingColumn(),
        TextColumn("left"),
    )
    return Progress(*columns, console=Console(stderr=True), transient=True, speed_estimate_period=60)


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
