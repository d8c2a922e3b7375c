"""Worker processes that live no longer than this one, however it ends."""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from trainer.errors import MachineError

TELL_EVERY_S = 0.25
LEAVE_WITHIN_S = 10.0

Work = Callable[[Any, Callable[[int], None]], Any]  # (task, count) -> result; count is told what is done of it


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
    """Tells the parent what is done, a few times a second."""

    def __init__(self, connection: Connection[Any, Any]) -> None:
        self._connection, self._untold, self._told_at = connection, 0, time.monotonic()

    def __call__(self, done: int) -> None:
        self._untold += done
        if time.monotonic() - self._told_at > TELL_EVERY_S:
            self.tell()

    def tell(self) -> None:
        self._connection.send(("count", self._untold))
        self._untold, self._told_at = 0, time.monotonic()


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
            counter.tell()
            connection.send(answer)
