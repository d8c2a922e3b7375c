"""What would become of this process if something else happened now: a copy of it, by fork, finds out."""

import gc
import multiprocessing
import os
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import NoReturn


@dataclass
class Copies:
    """One at a time.  reports: what each said in the end, by the name that it was given.

    known: what those said that found something in particular, by what that was.
    """

    reports: dict[str, str] = field(default_factory=dict)
    known: dict[str, str] = field(default_factory=dict)
    _to_original: Connection | None = None

    @property
    def is_copy(self) -> bool:
        """Whether this process is one."""
        return self._to_original is not None

    def make(self, name: str) -> bool:
        """Returns twice: with True in the copy, and with False in the original once the copy has reported."""
        mine, its = multiprocessing.Pipe(duplex=False)
        pid = os.fork()
        if pid == 0:
            self._to_original = its
            gc.disable()  # it would touch, and thereby copy, all memory
            return True
        its.close()
        with mine:
            try:
                there, text = mine.recv()
                self.reports[name] = text
                if there is not None:
                    self.known[there] = text
            except EOFError:
                self.reports[name] = "it ended without a report"
        os.waitpid(pid, 0)
        return False

    def report_on(self, there: str, look: Callable[[], str]) -> NoReturn:
        """Reports what `look` says, or what it said in a copy that found the same there."""
        self.report(self.known[there] if there in self.known else look(), there)

    def report(self, text: str, there: str | None = None) -> NoReturn:
        """Ends this copy, also where the original was killed: a copy that stayed would run the tests that follow."""
        assert self._to_original is not None
        try:
            self._to_original.send((there, text))
        finally:
            os._exit(0)

    @contextmanager
    def end_here(self) -> Iterator[None]:
        """No copy leaves this block: one that raises reports that."""
        try:
            yield
        except BaseException:
            if self.is_copy:
                self.report(traceback.format_exc())
            raise
        if self.is_copy:
            self.report("it reported nothing")
