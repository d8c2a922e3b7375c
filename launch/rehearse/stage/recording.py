"""Records what a rehearsal shows and when: for the screen while it runs, and for its page afterwards."""

from __future__ import annotations

import re
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from launch.core.metrics import AXES, in_words, newest
from launch.rehearse.stage.progress import MetricLog
from launch.rehearse.stage.scene import Life, Scene
from trainer.contract import METRIC_PREFIX

EPOCH = re.compile(r"\bepoch (\d+)/\d+  loss ")  # in the trainer's own words
# Commands that the launcher prints for the user: in another terminal they would reach the real AWS.
COMMAND = re.compile(r"\b(python -m launch\.|aws s3 )")
# Of our trainer's figures, those that tell its records from a script's.
OURS = ("train_loss", "train_top1", "eval_loss", "eval_top1", "images_per_s")
FIGURES = {"train_loss": "loss {:.4f}", "eval_top1": "eval accuracy {:.1%}", "images_per_s": "{:,.0f} images/s"}


@dataclass(frozen=True)
class Line:
    """at: s since the rehearsal began; by: launcher, node, or rehearsal."""

    at: float
    by: str
    text: str


@dataclass(frozen=True)
class Change:
    """A node's state from `at` (s since the rehearsal began).  rank: the last one known, if any."""

    at: float
    node: str
    state: str
    rank: int | None
    address: str
    how: str

    @property
    def is_end(self) -> bool:
        return self.state == "off"


@dataclass(frozen=True)
class Epoch:
    """What rank 0 wrote about an epoch, and when that arrived (s since the rehearsal began).

    Of a script of the user's own it may be a step; place: its place among all records, for one that names neither.
    """

    at: float
    values: Mapping[str, float]
    place: int = 0

    @property
    def number(self) -> int:
        return int(next((self.values[name] for name in AXES if name in self.values), self.place))

    @property
    def is_ours(self) -> bool:
        """Whether it has figures of our own trainer."""
        return any(name in self.values for name in OURS)

    def formatted(self, name: str, template: str) -> str:
        """A figure in the format `template`; empty where it is missing, or its line arrived torn."""
        return template.format(self.values[name]) if name in self.values else ""


class Recorder:
    """lines, changes, epochs: so far, in the order in which they came."""

    def __init__(self, scene: Scene, epochs: int | None, now: Callable[[], float] = time.monotonic) -> None:
        """epochs: of the whole training, where that is known."""
        self.lines: list[Line] = []
        self.changes: list[Change] = []
        self.epochs: list[Epoch] = []
        self._scene, self._of, self._now = scene, epochs, now
        self._logs, self._lock = defaultdict[str, MetricLog](MetricLog), threading.Lock()
        self._began = now()

    def note(self, text: str, by: str = "rehearsal") -> Line:
        line = Line(self._now() - self._began, by, text)
        self.lines.append(line)
        return line

    def launcher_line(self, text: str) -> Line | None:
        """Records a line that the launcher printed; None for what was shown already.

        Metrics are for machines, and the launcher learns of an epoch seconds later, when it asks CloudWatch again.
        """
        if METRIC_PREFIX in text or self._is_known_epoch(text):
            return None
        return self.note(f"{text}  (on AWS)" if COMMAND.search(text) else text, "launcher")

    def update(self) -> list[Line]:
        """The lines for what has happened since the last call."""
        with self._lock:
            ranks = self._scene.ranks()
            lines = [self._node_line(life, ranks) for life in list(self._scene.lives.values())]
            return [line for line in lines if line] + self._epoch_lines()

    def latest_changes(self) -> dict[str, Change]:
        """The newest change of each node, by its name."""
        return {change.node: change for change in list(self.changes)}

    def _is_known_epoch(self, text: str) -> bool:
        match = EPOCH.search(text)
        return match is not None and int(match[1]) in {epoch.number for epoch in self.epochs}

    def _node_line(self, life: Life, ranks: Mapping[str, int]) -> Line | None:
        before = self.latest_changes().get(life.name)
        # A node whose place another has taken is no longer listed, and keeps its rank.
        rank = ranks.get(life.name, before.rank if before else None)
        state = (life.name, life.state, rank, life.address, life.how)
        if before and state == (before.node, before.state, before.rank, before.address, before.how):
            return None
        self.changes.append(Change(self._now() - self._began, *state))
        if before and (before.state, before.how) == (life.state, life.how):
            return None  # a new rank is shown with the next state
        return self.note(_described(life, rank, is_new=before is None), "node")

    def _epoch_lines(self) -> list[Line]:
        """One line for each epoch that the ranks have logged since the last call."""
        lines = []
        for stream, logged in self._scene.account.logs().items():
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
    """The newest epoch that a node trained which ran from `began` to `ended`."""
    return next((epoch for epoch in reversed(list(epochs)) if began <= epoch.at <= ended), None)


def _described(life: Life, rank: int | None, *, is_new: bool) -> str:
    """Such as: node i-1, rank 0 at 172.31.0.4: boots."""
    text = f"node {life.name}"
    if rank is not None:
        text += f", rank {rank}"
    if is_new:
        text += f" at {life.address}"
    text += f": {life.state}"
    return f"{text}, {life.how}" if life.how else text
