"""Notes what a rehearsal shows and when: for the screen while it runs, and for its page afterwards."""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from launch.rehearse.stage.progress import metrics
from launch.rehearse.stage.scene import Life, Scene
from trainer.contract import METRIC_PREFIX

EPOCH = re.compile(r"\bepoch (\d+)/\d+  loss ")  # as the trainer says it
# What the launcher tells to type: in another terminal it would ask the real AWS.
COMMAND = re.compile(r"\b(python -m launch\.|aws s3 )")


@dataclass(frozen=True)
class Line:
    """at: s since the rehearsal began; by: launcher, node, or rehearsal."""

    at: float
    by: str
    text: str


@dataclass(frozen=True)
class Change:
    """What a node is from `at` (s since the rehearsal began) on.  rank: its last one, if it had any."""

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
    """What rank 0 wrote about an epoch, and when that arrived (s since the rehearsal began)."""

    at: float
    values: Mapping[str, float]

    @property
    def number(self) -> int:
        return int(self.values["epoch"])

    def said(self, name: str, words: str) -> str:
        """A figure in the format `words`; nothing where it was not told, or the line came torn."""
        return words.format(self.values[name]) if name in self.values else ""


class Recorder:
    """lines, changes, epochs: so far, in the order in which they came."""

    def __init__(self, scene: Scene, epochs: int, now: Callable[[], float] = time.monotonic) -> None:
        """epochs: of the whole training."""
        self.lines: list[Line] = []
        self.changes: list[Change] = []
        self.epochs: list[Epoch] = []
        self._scene, self._of, self._now = scene, epochs, now
        self._read, self._lock = Counter[str](), threading.Lock()
        self._began = now()

    def note(self, text: str, by: str = "rehearsal") -> Line:
        line = Line(self._now() - self._began, by, text)
        self.lines.append(line)
        return line

    def heard(self, text: str) -> Line | None:
        """A line of the launcher's; None for what was shown already.

        Metrics are for machines, and of an epoch the launcher learns seconds later, when it asks CloudWatch again.
        """
        told = EPOCH.search(text)
        if METRIC_PREFIX in text or (told and int(told[1]) in {epoch.number for epoch in self.epochs}):
            return None
        return self.note(f"{text}  (on AWS)" if COMMAND.search(text) else text, "launcher")

    def look(self) -> list[Line]:
        """What has happened since the last look, a line each."""
        with self._lock:
            ranks = self._scene.ranks()
            changed = [line for life in list(self._scene.lives.values()) if (line := self._node(life, ranks))]
            return changed + self._trained()

    def newest(self) -> dict[str, Change]:
        """Each node as it is now, by its name."""
        return {change.node: change for change in list(self.changes)}

    def _node(self, life: Life, ranks: Mapping[str, int]) -> Line | None:
        before = self.newest().get(life.name)
        # Another node may have its place by now: then it is no longer listed.
        rank = ranks.get(life.name, before.rank if before else None)
        known = (life.name, life.state, rank, life.address, life.how)
        if before and known == (before.node, before.state, before.rank, before.address, before.how):
            return None
        self.changes.append(Change(self._now() - self._began, *known))
        if before and (before.state, before.how) == (life.state, life.how):
            return None  # a rank of its own is said with the next state
        whose = f"node {life.name}" + (f", rank {rank}" if rank is not None else "")
        where = "" if before else f" at {life.address}"
        return self.note(f"{whose}{where}: {life.state}" + (f", {life.how}" if life.how else ""), "node")

    def _trained(self) -> list[Line]:
        """The epochs that the ranks have written down by now."""
        said = []
        for stream, lines in self._scene.account.logs().items():
            fresh = metrics(lines)[self._read[stream] :]
            self._read[stream] += len(fresh)
            for values in fresh:
                self.epochs.append(Epoch(self._now() - self._began, values))
                said.append(self.note(self._words(self.epochs[-1]), "node"))
        return said

    def _words(self, epoch: Epoch) -> str:
        figures = [
            epoch.said("train_loss", "loss {:.4f}"),
            epoch.said("eval_top1", "test accuracy {:.1%}"),
            epoch.said("images_per_s", "{:,.0f} images/s"),
        ]
        told = ", ".join(figure for figure in figures if figure)
        return f"epoch {epoch.number}/{self._of}" + (f": {told}" if told else "")


def epoch_of(began: float, until: float, epochs: list[Epoch]) -> Epoch | None:
    """The newest epoch that a node was part of, which is there from `began` until `until`."""
    return next((epoch for epoch in reversed(epochs) if began <= epoch.at <= until), None)
