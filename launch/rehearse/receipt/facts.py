"""The result of a rehearsal as data, which text.py and page.py show."""

from __future__ import annotations

import json
import math
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from launch.aws.names import is_path
from launch.core.training.options import END
from launch.rehearse.backend import PHASES, NodeRun
from trainer.contract import CHECKPOINTS, CURVES, METRICS, SETTINGS, SIGNATURE, WEIGHTS

if TYPE_CHECKING:
    from launch.rehearse.aws.account import Account
    from launch.rehearse.aws.server import Request
    from launch.rehearse.recording import Change, Epoch, Line
    from launch.rehearse.rehearsal import Rehearsal

ENDS = {0: "done", 2: "refused: settings", 3: "failed: data", 4: "failed: AWS refused", 5: "failed: training",
        6: "failed: machine", 75: "interrupted", 130: "stopped by Ctrl-C", 137: "the launcher was killed",
        143: "stopped by SIGTERM"}  # fmt: skip

# Names of files and folders in the run folder, in the order in which they are listed.
CONTENTS = {
    "receipt.html": "this receipt as a page, with a replay",
    CURVES: "loss and accuracy",
    WEIGHTS: "the weights",
    SIGNATURE: "its classes, and what goes into it",
    METRICS: "metrics of each epoch",
    SETTINGS: "the training's settings",
    CHECKPOINTS: "to resume from",
    "logs": "the log of each rank",
    "requests.jsonl": "every request",
    "job": "plan, cluster, exit records, boot logs",
}


@dataclass(frozen=True)
class ReceiptNode:
    """A node that has ended."""

    name: str
    rank: int | None
    type: str
    zone: str  # empty where AWS does not show it
    address: str
    began: float  # s since the rehearsal began
    ended: float  # s since the rehearsal began
    how: str  # in AWS's words
    usd: float


@dataclass(frozen=True)
class Receipt:
    """The result of a rehearsal.  All times in s since it began."""

    job: str
    backend: str  # its module
    command: str  # with the rehearsal's own defaults
    place: str
    recorded: datetime
    code: int  # the job's exit code
    commands: Sequence[tuple[str, int]]
    seconds: Mapping[str, float]  # by phase
    faults: Sequence[tuple[float | None, str]]  # when and what; no time for what happened repeatedly or never
    requests: Sequence[Request]
    made: Mapping[str, int]  # resources by kind
    left: Mapping[str, int]  # resources by kind
    nodes: Sequence[ReceiptNode]
    lines: Sequence[Line]
    changes: Sequence[Change]
    epochs: Sequence[Epoch]
    folder: Path  # the folder with all results
    files: Mapping[str, int]  # bytes by path in that folder
    differences: Sequence[str]
    trouble: str

    @classmethod
    def of(cls, rehearsal: Rehearsal, code: int, folder: Path, files: Mapping[str, int]) -> Receipt:
        """The receipt of a rehearsal that has ended with `code`."""
        job, backend, recorder = rehearsal.job, rehearsal.backend, rehearsal.display.recorder
        changes = recorder.latest_changes()
        return cls(
            job=job.name,
            backend=job.module,
            command=shlex.join(["python", "-m", job.module, *job.argv, *_after_end(job.arguments)]),
            place=f"{job.region}; nodes: {backend.node_kind}",
            recorded=datetime.now().astimezone(),
            code=code,
            commands=rehearsal.commands,
            seconds=phase_seconds(rehearsal),
            faults=_faults(rehearsal),
            requests=[replace(one, at=one.at - rehearsal.began) for one in rehearsal.requests.requests],
            made=count_kinds(rehearsal.made),
            left=count_kinds(rehearsal.left()),
            nodes=[_node(run, changes.get(run.name), rehearsal.began) for run in backend.node_runs.values()],
            lines=sorted(recorder.lines, key=lambda line: line.at),
            changes=list(recorder.changes),
            epochs=list(recorder.epochs),
            folder=folder,
            files=files,
            differences=backend.differences,
            trouble=backend.trouble,
        )

    @property
    def total(self) -> float:
        """The whole rehearsal, in s."""
        return math.fsum(self.seconds.values())

    @property
    def regions(self) -> str:
        """The regions of its nodes; the job's first region if no node shows its zone."""
        return ", ".join(sorted({node.zone[:-1] for node in self.nodes if node.zone})) or self.place.partition(";")[0]

    @property
    def usd(self) -> float:
        return math.fsum(node.usd for node in self.nodes)

    @property
    def outcome(self) -> str:
        """The result in a few words."""
        return "the rehearsal itself failed" if self.trouble else ENDS.get(self.code, f"failed: exit code {self.code}")

    def changes_of(self, node: ReceiptNode) -> list[Change]:
        return [change for change in self.changes if change.node == node.name]

    @property
    def max_nodes(self) -> int:
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
        total, writes = len(self.requests), sum(request.is_write for request in self.requests)
        return f"{total} ({writes} writes, {total - writes} reads)"


def _after_end(arguments: Sequence[str]) -> list[str]:
    """A script's arguments, after the `--` that ends the launcher's flags."""
    return [END, *arguments] if arguments else []


def _faults(rehearsal: Rehearsal) -> list[tuple[float | None, str]]:
    once = [(max(0.0, at - rehearsal.began), text) for at, text in rehearsal.injection.happened]
    return [*once, *((None, text) for text in rehearsal.injection.summary())]


def _node(run: NodeRun, change: Change | None, began: float) -> ReceiptNode:
    return ReceiptNode(
        name=run.name,
        rank=change.rank if change else None,
        type=run.type,
        zone=run.zone,
        address=run.address,
        began=run.began - began,
        ended=run.began - began + run.seconds,
        how=run.how,
        usd=run.seconds / 3600 * run.usd_per_hour,
    )


def count_kinds(resources: set[str]) -> dict[str, int]:
    """How many resources there are of each kind."""
    return dict(Counter(name.rpartition(" ")[0] for name in resources))


def phase_seconds(rehearsal: Rehearsal) -> dict[str, float]:
    """Seconds of each phase.  If a phase never began, its time counts for the one before."""
    starts = {
        "plan": rehearsal.began,
        "rendezvous": None,
        "train": rehearsal.rendezvous_at,
        **rehearsal.backend.phase_starts(rehearsal.requests.requests),
    }
    return dict(zip(PHASES, spans([starts[name] for name in PHASES], rehearsal.ended_at), strict=True))


def spans(starts: Sequence[float | None], end: float) -> list[float]:
    """The duration of each phase, given their start times; the last ran until `end`."""
    lengths = []
    for index, start in enumerate(starts):
        later = [moment for moment in starts[index + 1 :] if moment is not None]
        lengths.append(0.0 if start is None else max(0.0, (later[0] if later else end) - start))
    return lengths


# ---- the files that are kept


def save(account: Account, bucket: str | None, job: str, requests: Sequence[Request]) -> tuple[Path, dict[str, int]]:
    """Write runs/JOB and return it, with the size of each file by its path in that folder.

    It gets the content of the run folder, job/ with the rest of the job folder, logs/ with CloudWatch's streams, and
    requests.jsonl with every request.  Keys that lead out of the folder are left out, as are files of the run folder
    that conflict with the others.
    """
    run, added = dict[str, bytes](), dict[str, bytes]()
    for key, stored in list(account.objects(bucket).items()):
        name = key.removeprefix(f"jobs/{job}/")
        if name.startswith("run/"):
            run[name.removeprefix("run/")] = stored.value
        else:
            added[f"job/{name}"] = stored.value
    for stream, lines in account.logs().items():
        added[f"logs/{stream.removeprefix(f'{job}/')}.log"] = "".join(f"{line}\n" for line in lines).encode()
    added["requests.jsonl"] = "".join(f"{json.dumps(asdict(request))}\n" for request in requests).encode()
    folder, sizes = Path("runs") / job, dict[str, int]()
    for name, content in {**added, **run, **added}.items():
        with suppress(FileExistsError, NotADirectoryError, IsADirectoryError):
            if is_path(name):
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                sizes[name] = (folder / name).write_bytes(content)
    return folder, sizes
