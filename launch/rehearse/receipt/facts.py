"""What a rehearsal came to: the facts, which receipt_text.py and receipt_page.py show."""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from launch.rehearse.stage.scene import PHASES

if TYPE_CHECKING:
    from launch.rehearse.aws.server import Seen
    from launch.rehearse.stage.recording import Change, Epoch, Line
    from launch.rehearse.stage.rehearsal import Stage

# How the names of AWS's requests begin that change nothing.
READS = ("BatchGet", "Describe", "Filter", "Get", "Head", "List", "Query", "Scan", "Search")
ENDS = {0: "done", 2: "refused: settings", 3: "failed: data", 4: "failed: AWS refused", 5: "failed: training",
        6: "failed: machine", 75: "interrupted", 130: "stopped by Ctrl-C", 137: "the launcher was killed",
        143: "stopped by SIGTERM"}  # fmt: skip


@dataclass(frozen=True)
class Requests:
    """All requests of one name that launcher or nodes made.  errors: how many had each HTTP status of 400 and more."""

    name: str
    by_launcher: bool
    at: tuple[float, ...]
    errors: Mapping[int, int] = field(default_factory=dict)

    @property
    def count(self) -> int:
        return len(self.at)

    @property
    def wrote(self) -> bool:
        return not self.name.rpartition(":")[2].startswith(READS)


@dataclass(frozen=True)
class Node:
    """One node's whole life.  began, ended: s since the rehearsal began; how: it ended, in AWS's words."""

    name: str
    rank: int | None
    type: str
    zone: str
    address: str
    began: float
    ended: float
    how: str
    usd: float


@dataclass(frozen=True)
class Receipt:
    """All times in s since the rehearsal began.

    backend: its module; command: as it was typed; code: the job's exit code; seconds: by phase; faults: when and what,
    without a time for what happened again and again or never; made, left: resources by kind; kept: the folder with
    all of it; files: bytes by path in there.
    """

    job: str
    backend: str
    command: str
    place: str
    recorded: datetime
    code: int
    commands: Sequence[tuple[str, int]]
    seconds: Mapping[str, float]
    faults: Sequence[tuple[float | None, str]]
    requests: Sequence[Requests]
    made: Mapping[str, int]
    left: Mapping[str, int]
    nodes: Sequence[Node]
    lines: Sequence[Line]
    changes: Sequence[Change]
    epochs: Sequence[Epoch]
    kept: Path
    files: Mapping[str, int]
    differences: Sequence[str]
    trouble: str

    @classmethod
    def of(cls, stage: Stage, code: int, kept: Path, files: Mapping[str, int]) -> Receipt:
        began, recorder = stage.began, stage.display.recorder
        newest = recorder.newest()
        return cls(
            job=stage.asked.job,
            backend=stage.asked.module,
            command=shlex.join(["python", "-m", stage.asked.module, *stage.asked.argv]),
            place=f"{stage.asked.region}; nodes: {stage.scene.nodes}",
            recorded=datetime.now().astimezone(),
            code=code,
            commands=stage.commands,
            seconds=phases(stage),
            faults=[
                *((max(0.0, at - began), what) for at, what in stage.injection.happened),
                *((None, what) for what in stage.injection.summary()),
            ],
            requests=requests(stage.requests.seen, began),
            made=kinds(stage.made),
            left=kinds(stage.scene.account.resources() - stage.at_first),
            nodes=[
                Node(
                    life.name, newest[life.name].rank if life.name in newest else None, life.type, life.zone,
                    life.address, life.began - began, life.began - began + life.seconds, life.how,
                    life.seconds / 3600 * life.usd_per_hour,
                )
                for life in stage.scene.lives.values()
            ],
            lines=sorted(recorder.lines, key=lambda line: line.at),
            changes=list(recorder.changes),
            epochs=list(recorder.epochs),
            kept=kept,
            files=files,
            differences=stage.scene.differences,
            trouble=stage.scene.trouble,
        )  # fmt: skip

    @property
    def total(self) -> float:
        """The whole rehearsal, in s."""
        return math.fsum(self.seconds.values())

    @property
    def usd(self) -> float:
        return math.fsum(node.usd for node in self.nodes)

    @property
    def outcome(self) -> str:
        """In a few words."""
        return "the rehearsal itself failed" if self.trouble else ENDS.get(self.code, f"failed: exit code {self.code}")

    @property
    def at_a_time(self) -> int:
        """How many nodes there were at most."""
        return max((sum(b.began <= a.began < b.ended for b in self.nodes) for a in self.nodes), default=0)

    @property
    def best(self) -> float | None:
        """The best accuracy of an evaluation."""
        told = [epoch.values.get("eval_top1", math.nan) for epoch in self.epochs]
        return max((value for value in told if math.isfinite(value)), default=None)

    def resources(self) -> str:
        made, left = sum(self.made.values()), sum(self.left.values())
        return f"{made} made, {made - left} removed, {left} left"

    def asked(self) -> str:
        wrote = sum(one.count for one in self.requests if one.wrote)
        every = sum(one.count for one in self.requests)
        return f"{every}, of which {wrote} wrote and {every - wrote} read"

    def of_requests(self, *, by_launcher: bool, wrote: bool) -> list[Requests]:
        return [one for one in self.requests if (one.by_launcher, one.wrote) == (by_launcher, wrote)]


def requests(seen: Iterable[Seen], began: float) -> list[Requests]:
    """By name, those of the launcher first."""
    found: dict[tuple[bool, str], list[Seen]] = {}
    for one in seen:
        found.setdefault((not one.by_launcher, one.name), []).append(one)
    return [
        Requests(
            name,
            not by_node,
            tuple(one.at - began for one in every),
            dict(sorted(Counter(one.status for one in every if one.status >= 400).items())),
        )
        for (by_node, name), every in sorted(found.items())
    ]


def kinds(resources: set[str]) -> dict[str, int]:
    """How many of each kind."""
    return dict(Counter(name.rpartition(" ")[0] for name in resources))


def phases(stage: Stage) -> dict[str, float]:
    """Seconds of each phase.  One that never began took none, and its time belongs to the one before."""
    found = {"plan": stage.began, "rendezvous": None, "train": stage.met, **stage.scene.starts(stage.requests.seen)}
    return dict(zip(PHASES, spans([found[name] for name in PHASES], stage.ended), strict=True))


def spans(starts: Sequence[float | None], end: float) -> list[float]:
    """How long each phase took that began at these moments; the last until `end`."""
    found = []
    for place, start in enumerate(starts):
        later = [moment for moment in starts[place + 1 :] if moment is not None]
        found.append(0.0 if start is None else max(0.0, (later[0] if later else end) - start))
    return found
