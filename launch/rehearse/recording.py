"""Record the lines and events of a rehearsal with their times, for the display and for the receipt.

The training's progress comes from what its ranks log to CloudWatch.
"""

from __future__ import annotations

import re
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from launch.core.metrics import AXES, TRAINER_FIGURES, in_words, newest
from launch.rehearse.backend import NodeRun, RehearsedBackend
from trainer.contract import METRIC_PREFIX
from trainer.script.relay import values_within

if TYPE_CHECKING:
    from launch.rehearse.aws.account import Account


class MetricLog:
    """The records in the lines of a growing log, which mpirun may have prefixed.

    If the first record has an epoch, as the built-in trainer's do, records without one are torn lines: ranks write at
    the same time.
    """

    def __init__(self) -> None:
        self._seen, self._names_epochs = 0, False
        self._is_first = True
        self._count, self._newest = 0, 0  # number of records, and the last epoch in them

    def new(self, lines: Sequence[str]) -> list[Mapping[str, float]]:
        """The records in lines added since the last call.  Parsing all lines each time would take hours."""
        found = [_values(line) for line in islice(lines, self._seen, None)]
        self._seen = len(lines)
        records: list[Mapping[str, float]] = [values for values in found if values]
        if records and self._is_first:
            self._names_epochs, self._is_first = "epoch" in records[0], False
        if self._names_epochs:
            records = [values for values in records if "epoch" in values]
        self._count += len(records)
        self._newest = max(self._newest, _newest_in(records))
        return records

    @property
    def reached(self) -> int:
        """The last epoch so far, or the number of records if they have no epoch; 0 before the first."""
        return self._newest or self._count


def _newest_in(records: Sequence[Mapping[str, float]]) -> int:
    return max((int(values["epoch"]) for values in records if "epoch" in values), default=0)


def _values(line: str) -> dict[str, float]:
    """The finite values: a script's loss may be NaN, and its epoch any number."""
    values = values_within(line)
    return {name: float(value) for name, value in values.items() if value is not None}


def has_begun(account: Account) -> bool:
    """Whether any rank has logged something; torch itself may warn before the ranks have met."""
    return any(not line.startswith("[W") for lines in account.logs().values() for line in lines)


# ---- the record


EPOCH = re.compile(r"\bepoch (\d+)/\d+  loss ")  # as the trainer prints it
# Commands that the launcher prints for the user: in another terminal they would reach the real AWS.
COMMAND = re.compile(r"\b(python -m launch\.|aws s3 )")
FIGURES = {"train_loss": "loss {:.4f}", "eval_top1": "eval accuracy {:.1%}", "images_per_s": "{:,.0f} images/s"}


@dataclass(frozen=True)
class Line:
    """A line that was shown."""

    at: float  # s since the rehearsal began
    by: str  # launcher, node or rehearsal
    text: str


@dataclass(frozen=True)
class Change:
    """A node's new state."""

    at: float  # s since the rehearsal began
    node: str
    state: str
    rank: int | None  # the last one known, if any
    address: str
    how: str

    @property
    def is_end(self) -> bool:
        return self.state == "off"


@dataclass(frozen=True)
class Epoch:
    """The record of rank 0 about an epoch, or about a step of a user's own script."""

    at: float  # when it arrived (s since the rehearsal began)
    values: Mapping[str, float]
    place: int = 0  # among all records, for one that names neither epoch nor step

    @property
    def number(self) -> int:
        return int(next((self.values[name] for name in AXES if name in self.values), self.place))

    @property
    def is_ours(self) -> bool:
        """Whether it has figures of the built-in trainer."""
        return any(name in self.values for name in TRAINER_FIGURES)

    def formatted(self, name: str, template: str) -> str:
        """A figure in the format `template`; empty if it is missing, for example because its line was torn."""
        return template.format(self.values[name]) if name in self.values else ""


class Recorder:
    """Records lines, state changes of nodes, and epochs, in the order of their arrival."""

    def __init__(
        self, backend: RehearsedBackend, epochs: int | None, now: Callable[[], float] = time.monotonic
    ) -> None:
        """epochs: of the whole training; None if not known."""
        self.lines: list[Line] = []
        self.changes: list[Change] = []
        self.epochs: list[Epoch] = []
        self._backend, self._of, self._now = backend, epochs, now
        self._logs, self._lock = defaultdict[str, MetricLog](MetricLog), threading.Lock()
        self._began = now()

    def note(self, text: str, by: str = "rehearsal") -> Line:
        line = Line(self._now() - self._began, by, text)
        self.lines.append(line)
        return line

    def launcher_line(self, text: str) -> Line | None:
        """Record a line that the launcher printed.  Return None for metrics, and for epochs that were shown already.

        The launcher reports an epoch seconds later, when it polls CloudWatch.
        """
        if METRIC_PREFIX in text or self._is_known_epoch(text):
            return None
        return self.note(f"{text}  (on AWS)" if COMMAND.search(text) else text, "launcher")

    def update(self) -> list[Line]:
        """Record what has happened since the last call.  Return its lines."""
        with self._lock:
            ranks = self._backend.ranks()
            lines = [self._node_line(run, ranks) for run in list(self._backend.node_runs.values())]
            return [line for line in lines if line] + self._epoch_lines()

    @property
    def reached(self) -> int:
        """The last epoch that any rank has reached, as counted by MetricLog."""
        return max((log.reached for log in self._logs.values()), default=0)

    def latest_changes(self) -> dict[str, Change]:
        """The newest change of each node, by its name."""
        return {change.node: change for change in list(self.changes)}

    def _is_known_epoch(self, text: str) -> bool:
        match = EPOCH.search(text)
        return match is not None and int(match[1]) in {epoch.number for epoch in self.epochs}

    def _node_line(self, run: NodeRun, ranks: Mapping[str, int]) -> Line | None:
        before = self.latest_changes().get(run.name)
        # A replaced node is no longer listed, and keeps its last known rank.
        rank = ranks.get(run.name, before.rank if before else None)
        state = (run.name, run.state, rank, run.address, run.how)
        if before and state == (before.node, before.state, before.rank, before.address, before.how):
            return None
        self.changes.append(Change(self._now() - self._began, *state))
        if before and (before.state, before.how) == (run.state, run.how):
            return None  # a new rank is shown with the next state
        return self.note(_described(run, rank, is_new=before is None), "node")

    def _epoch_lines(self) -> list[Line]:
        """One line for each epoch that the ranks have logged since the last call."""
        lines = []
        for stream, logged in self._backend.account.logs().items():
            for values in self._logs[stream].new(logged):
                epoch = Epoch(self._now() - self._began, values, len(self.epochs) + 1)
                self.epochs.append(epoch)
                lines.append(self.note(self._epoch_text(epoch), "node"))
        return lines

    def _epoch_text(self, epoch: Epoch) -> str:
        if self._of is None:  # only a script knows
            return in_words(newest([epoch.values]))
        figures = [epoch.formatted(name, template) for name, template in FIGURES.items()]
        text = ", ".join(figure for figure in figures if figure)
        return f"epoch {epoch.number}/{self._of}" + (f": {text}" if text else "")


def epoch_between(began: float, ended: float, epochs: Sequence[Epoch]) -> Epoch | None:
    """The newest epoch trained between `began` and `ended`, the times of a node."""
    return next((epoch for epoch in reversed(list(epochs)) if began <= epoch.at <= ended), None)


def _described(run: NodeRun, rank: int | None, *, is_new: bool) -> str:
    """A node's state in words, such as: node i-1, rank 0 at 172.31.0.4: boots."""
    text = f"node {run.name}"
    if rank is not None:
        text += f", rank {rank}"
    if is_new:
        text += f" at {run.address}"
    text += f": {run.state}"
    return f"{text}, {run.how}" if run.how else text
