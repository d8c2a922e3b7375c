"""The result of a rehearsal as data, which text.py and page.py show."""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from launch.core.training.options import END
from launch.rehearse.stage.scene import PHASES, Life

if TYPE_CHECKING:
    from launch.rehearse.aws.server import Request
    from launch.rehearse.stage.recording import Change, Epoch, Line
    from launch.rehearse.stage.rehearsal import Stage

# How the names of those AWS requests begin that change nothing.
READS = ("BatchGet", "Describe", "Filter", "Get", "Head", "List", "Query", "Scan", "Search")
ENDS = {0: "done", 2: "refused: settings", 3: "failed: data", 4: "failed: AWS refused", 5: "failed: training",
        6: "failed: machine", 75: "interrupted", 130: "stopped by Ctrl-C", 137: "the launcher was killed",
        143: "stopped by SIGTERM"}  # fmt: skip


@dataclass(frozen=True)
class RequestGroup:
    """All requests of one name by launcher or nodes.

    at: when (s since the rehearsal began); errors: how many had each HTTP status of 400 and above.
    """

    name: str
    by_launcher: bool
    at: tuple[float, ...]
    errors: Mapping[int, int] = field(default_factory=dict)

    @property
    def count(self) -> int:
        return len(self.at)

    @property
    def is_write(self) -> bool:
        return not self.name.rpartition(":")[2].startswith(READS)


@dataclass(frozen=True)
class ReceiptNode:
    """A node that has ended.  began, ended: s since the rehearsal began; how: in AWS's words; zone: may be empty."""

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

    backend: its module; command: with the rehearsal's own defaults; code: the job's exit code; seconds: by phase;
    faults: when and what, without a time for what happened repeatedly or never; made, left: resources by kind; kept:
    the folder with all results; files: bytes by path in there.
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
    requests: Sequence[RequestGroup]
    made: Mapping[str, int]
    left: Mapping[str, int]
    nodes: Sequence[ReceiptNode]
    lines: Sequence[Line]
    changes: Sequence[Change]
    epochs: Sequence[Epoch]
    kept: Path
    files: Mapping[str, int]
    differences: Sequence[str]
    trouble: str

    @classmethod
    def of(cls, stage: Stage, code: int, kept: Path, files: Mapping[str, int]) -> Receipt:
        """The receipt of a rehearsal that has ended with `code`."""
        job, scene, recorder = stage.job, stage.scene, stage.display.recorder
        changes = recorder.latest_changes()
        return cls(
            job=job.name,
            backend=job.module,
            command=shlex.join(["python", "-m", job.module, *job.argv, *_behind(job.arguments)]),
            place=f"{job.region}; nodes: {scene.node_kind}",
            recorded=datetime.now().astimezone(),
            code=code,
            commands=stage.commands,
            seconds=phase_seconds(stage),
            faults=_faults(stage),
            requests=group_requests(stage.requests.requests, stage.began),
            made=count_kinds(stage.made),
            left=count_kinds(stage.left()),
            nodes=[_node(life, changes.get(life.name), stage.began) for life in scene.lives.values()],
            lines=sorted(recorder.lines, key=lambda line: line.at),
            changes=list(recorder.changes),
            epochs=list(recorder.epochs),
            kept=kept,
            files=files,
            differences=scene.differences,
            trouble=scene.trouble,
        )

    @property
    def total(self) -> float:
        """The whole rehearsal, in s."""
        return math.fsum(self.seconds.values())

    @property
    def regions(self) -> str:
        """Where its nodes were paid for: the first one that the job would try, where none shows its zone."""
        return ", ".join(sorted({node.zone[:-1] for node in self.nodes if node.zone})) or self.place.partition(";")[0]

    @property
    def usd(self) -> float:
        return math.fsum(node.usd for node in self.nodes)

    @property
    def outcome(self) -> str:
        """The result in a few words."""
        return "the rehearsal itself failed" if self.trouble else ENDS.get(self.code, f"failed: exit code {self.code}")

    @property
    def most_nodes(self) -> int:
        """The largest number of nodes that ran at the same time."""
        counts = [sum(other.began <= node.began < other.ended for other in self.nodes) for node in self.nodes]
        return max(counts, default=0)

    @property
    def best(self) -> float | None:
        """The best eval accuracy."""
        values = [epoch.values.get("eval_top1", math.nan) for epoch in self.epochs]
        return max((value for value in values if math.isfinite(value)), default=None)

    @property
    def machines(self) -> list[str]:
        """Each instance type, with its zone where AWS shows it."""
        return sorted({f"{node.type} in {node.zone}" if node.zone else node.type for node in self.nodes})

    @property
    def resource_summary(self) -> str:
        made, left = sum(self.made.values()), sum(self.left.values())
        return f"{made} made, {made - left} removed, {left} left"

    @property
    def request_summary(self) -> str:
        writes = sum(group.count for group in self.requests if group.is_write)
        total = sum(group.count for group in self.requests)
        return f"{total} ({writes} writes, {total - writes} reads)"

    def requests_of(self, *, by_launcher: bool, is_write: bool) -> list[RequestGroup]:
        return [group for group in self.requests if (group.by_launcher, group.is_write) == (by_launcher, is_write)]


def _behind(arguments: Sequence[str]) -> list[str]:
    """A script's arguments, as they stand at the end of the command line."""
    return [END, *arguments] if arguments else []


def _faults(stage: Stage) -> list[tuple[float | None, str]]:
    once = [(max(0.0, at - stage.began), text) for at, text in stage.injection.happened]
    return [*once, *((None, text) for text in stage.injection.summary())]


def _node(life: Life, change: Change | None, began: float) -> ReceiptNode:
    return ReceiptNode(
        name=life.name,
        rank=change.rank if change else None,
        type=life.type,
        zone=life.zone,
        address=life.address,
        began=life.began - began,
        ended=life.began - began + life.seconds,
        how=life.how,
        usd=life.seconds / 3600 * life.usd_per_hour,
    )


def group_requests(requests: Iterable[Request], began: float) -> list[RequestGroup]:
    """The requests by name, those of the launcher first."""
    groups: dict[tuple[bool, str], list[Request]] = {}
    for request in requests:
        groups.setdefault((not request.by_launcher, request.name), []).append(request)
    return [
        RequestGroup(name, not by_node, tuple(request.at - began for request in group), _errors(group))
        for (by_node, name), group in sorted(groups.items())
    ]


def _errors(requests: Iterable[Request]) -> dict[int, int]:
    return dict(sorted(Counter(request.status for request in requests if request.status >= 400).items()))


def count_kinds(resources: set[str]) -> dict[str, int]:
    """How many resources there are of each kind."""
    return dict(Counter(name.rpartition(" ")[0] for name in resources))


def phase_seconds(stage: Stage) -> dict[str, float]:
    """Seconds of each phase.  One that never began took none, and its time belongs to the one before."""
    starts = {
        "plan": stage.began,
        "rendezvous": None,
        "train": stage.met,
        **stage.scene.phase_starts(stage.requests.requests),
    }
    return dict(zip(PHASES, spans([starts[name] for name in PHASES], stage.ended), strict=True))


def spans(starts: Sequence[float | None], end: float) -> list[float]:
    """How long each phase took that began at these moments; the last ran until `end`."""
    lengths = []
    for place, start in enumerate(starts):
        later = [moment for moment in starts[place + 1 :] if moment is not None]
        lengths.append(0.0 if start is None else max(0.0, (later[0] if later else end) - start))
    return lengths
