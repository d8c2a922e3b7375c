"""Stop runs that diverge, and interpret how launchers end."""

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from threading import Thread
from typing import Any

from launch.core import shell
from launch.core.metrics import AXES, Record
from launch.core.runs import State, number
from launch.core.shell import this_python
from launch.core.signals import ask_to_end
from launch.sweep.folder import LOG
from launch.sweep.planned import Planned
from trainer import outcome as outcomes
from trainer.contract import OUTCOME, Exit
from trainer.errors import one_line
from trainer.outcome import Outcome
from trainer.settings.hidden import without_secrets

LOSSES = ("train_loss", "loss")  # the built-in trainer's, and a common name in scripts
# Attempts to stop a job, which may fail without a network, and the seconds between them.
ATTEMPTS, RETRY_DELAY_S = 10, 60.0
MOST_OF_LINE = 300  # characters of a launcher's last line, which may come from the training


class Watched:
    """Watches the training losses of one run, and stops it if it diverges.  diverged: why, if it did."""

    def __init__(self, at: float, end: Callable[[int], None], earlier: Iterable[Mapping[str, Any]] = ()) -> None:
        """at: the limit as a multiple of the lowest loss; 0: none.  end: called with the argument of begin().

        earlier: records of previous starts of a resumed run.
        """
        self._at, self._end = at, end
        self._first = self._lowest = math.nan
        self._group: int | None = None
        self.diverged = ""
        for record in earlier:
            self._record(_loss(record))

    def begin(self, group: int) -> None:
        """Start watching.  group: the launcher's process group."""
        self._group = group

    def before(self, on_record: Callable[[Record], None]) -> Callable[[Record], None]:
        """Check each record before calling `on_record`."""

        def checked(record: Record) -> None:
            self.check(record)
            on_record(record)

        return checked

    def check(self, record: Record) -> None:
        """End the run if the record's loss is far above the lowest, and above the first."""
        loss = _loss(record)
        if not self._at or self.diverged or loss is None:
            return
        self._record(loss)
        lowest = self._lowest
        if lowest >= 0 and loss > self._at * lowest and loss > self._first:
            place = next((f" in {name} {record[name]}" for name in AXES if name in record), "")
            self.diverged = (
                f"it diverged: training loss {loss:.3g}{place} after {lowest:.3g}; lower --lr, or give "
                "--diverged-at 0 to let it continue."
            )
            if self._group is not None:
                self._end(self._group)

    def _record(self, loss: float | None) -> None:
        """Keep only the first and the lowest loss, as a training may record a million."""
        if loss is not None:
            self._first = loss if math.isnan(self._first) else self._first
            self._lowest = loss if math.isnan(self._lowest) else min(self._lowest, loss)


def _loss(record: Mapping[str, Any]) -> float | None:
    return next((loss for name in LOSSES if (loss := number(record, name)) is not None), None)


def ending(run: Planned, job: str, env: Mapping[str, str], *, rehearsed: bool) -> Callable[[int], None]:
    """The function that ends the run: a signal to its launcher, or `stop` if the job outlives that.

    job: its name; rehearsed: the job runs in its launcher, and `stop` would search the account for it.
    """
    if rehearsed or not run.backend.outlives_launcher:
        return ask_to_end
    command = [*this_python(), *about(run, "stop", job)]

    def stop(group: int) -> None:
        # `stop` waits for the job's end, while the launcher shows its log.
        Thread(target=insist, args=(command, env), name=f"stop {job}", daemon=True).start()

    return stop


def insist(command: Sequence[str], env: Mapping[str, str], sleep: Callable[[float], object] = time.sleep) -> None:
    """Run `command` until it succeeds, a few times, as otherwise the job would cost until its time limit."""
    for _ in range(ATTEMPTS):
        if shell.run_captured(command, env).code == Exit.DONE:
            return
        sleep(RETRY_DELAY_S)


def about(run: Planned, verb: str, job: str) -> list[str]:
    """The arguments of `python` for a verb about the run's job, in the regions of its options."""
    regions = getattr(run.where, "region", None) or ()
    named = regions if isinstance(regions, str) else ",".join(regions)
    return ["-m", run.backend.module, verb, job, *(["--region", named] if named else [])]


@dataclass(frozen=True)
class End:
    """How a launcher ended."""

    code: int
    signal: int | None  # that asked the sweep to stop, if any
    seconds: float
    error: str = ""  # why the launcher was lost
    outcome: Outcome | None = None  # written by the launcher
    trainer_reason: str = ""  # written by the trainer in the run's folder
    last: str = ""  # the launcher's last line
    diverged: str = ""  # why the sweep ended it, if it did
    stop: str = ""  # the command that stops its job, if it outlives the launcher

    @property
    def state(self) -> State:
        if self.code == Exit.DONE:
            return "done"
        if self.diverged:
            return "failed"
        state = self.outcome.state if self.outcome else outcomes.state_of(self.code)
        return "failed" if state == "failed" and self.signal is None and not self._is_lost else "interrupted"

    @property
    def reason(self) -> str:
        """Why the run is not done, as one sentence; empty if it is."""
        if self.state == "done":
            return ""
        if self.diverged:
            return self._diverged
        if self._is_lost:
            return self._lost
        reason = (self.outcome.reason if self.outcome else self.error) or self.trainer_reason
        if self.state == "failed":
            return reason or self._unexplained
        return reason if reason and not self._was_asked else "stopped; the same command resumes it"

    @property
    def _diverged(self) -> str:
        is_left = self.stop and (self._is_lost or self._goes_on)
        return f"{self.diverged} Its job may still run; this stops it: {self.stop}" if is_left else self.diverged

    @property
    def _lost(self) -> str:
        why = self.error or "its launcher was ended before it could say how its job ended."
        return f"{why} Its job may still run; the same command resumes it, and this stops it: {self.stop}"

    @property
    def _was_asked(self) -> bool:
        """Whether it ended by the sweep's own signal, without an error or a job that keeps running."""
        return self.signal is not None and outcomes.state_of(self.code) != "failed" and not self._goes_on

    @property
    def _is_lost(self) -> bool:
        """Whether the launcher was killed while its job keeps running."""
        was_killed = bool(self.error) or self.signal is not None
        return bool(self.stop) and self.outcome is None and was_killed

    @property
    def _goes_on(self) -> bool:
        """Whether the launcher has left its job running: see launch.core.errors.LeftRunning."""
        if self.outcome is None or self.outcome.exit_code == Exit.INTERRUPTED:
            return False
        return self.outcome.state == "interrupted"

    @property
    def _unexplained(self) -> str:
        left = "" if self.outcome else f" and left no {OUTCOME}"
        last = f", after {one_line(without_secrets(self.last[:10_000]), MOST_OF_LINE)!r}" if self.last else ""
        return f"the launcher ended with exit code {self.code}{left}{last}; see {LOG}"
