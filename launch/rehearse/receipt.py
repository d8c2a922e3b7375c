"""What a rehearsal says at its end.  as_text is pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING

from launch.perform import table
from launch.rehearse.scene import PHASES

if TYPE_CHECKING:
    from launch.rehearse.rehearsal import Stage

WIDTH, NO_BREAK = 110, "\0"


@dataclass(frozen=True)
class Receipt:
    """seconds: by phase; requests: by name, of the launcher and of the nodes; made, left: resources by kind."""

    job: str
    commands: Sequence[tuple[str, int]]
    faults: Sequence[str]
    seconds: Mapping[str, float]
    launcher_requests: Mapping[str, int]
    node_requests: Mapping[str, int]
    refused: int
    made: Mapping[str, int]
    left: Mapping[str, int]
    nodes: Sequence[tuple[str, ...]]
    usd: float
    kept: Path
    differences: Sequence[str]
    trouble: str

    @classmethod
    def of(cls, stage: Stage, kept: Path) -> Receipt:
        seen = stage.requests.seen
        lives = list(stage.scene.lives.values())
        left = stage.scene.account.resources() - stage.at_first
        began = stage.began
        return cls(
            job=stage.asked.job,
            commands=stage.commands,
            faults=[
                *(f"{at - began:.1f} s  {what}" for at, what in stage.injection.happened),
                *stage.injection.summary(),
            ],
            seconds=phases(stage),
            launcher_requests=Counter(one.name for one in seen if one.by_launcher),
            node_requests=Counter(one.name for one in seen if not one.by_launcher),
            refused=sum(one.status >= 500 for one in seen),
            made=kinds(stage.made),
            left=kinds(left),
            nodes=[
                (x.name, x.type, x.zone, x.address, f"{x.began - began:.1f} s", f"{x.seconds:.1f} s", x.how)
                for x in lives
            ],
            usd=sum(x.seconds / 3600 * x.usd_per_hour for x in lives),
            kept=kept,
            differences=stage.scene.differences,
            trouble=stage.scene.trouble,
        )


def as_text(receipt: Receipt) -> str:
    """The receipt for a reader."""
    made, left = sum(receipt.made.values()), sum(receipt.left.values())
    total = sum(receipt.seconds.values())
    asked, nodes = sum(receipt.launcher_requests.values()), sum(receipt.node_requests.values())
    sections = {
        f"receipt of job {receipt.job}": [f"{name}: exit code {code}" for name, code in receipt.commands],
        "faults": list(receipt.faults),
        f"time: {total:.1f} s": [f"{name:<11}{receipt.seconds[name]:6.1f} s" for name in PHASES],
        "nodes": table(("node", "type", "zone", "address", "from", "for", "end"), receipt.nodes).splitlines(),
        f"requests: {asked} of the launcher, {nodes} of the nodes": [
            *_counts("launcher", receipt.launcher_requests), *_counts("nodes", receipt.node_requests),
            *([f"{receipt.refused} of them got an error of AWS's own"] if receipt.refused else []),
        ],
        f"resources: {made} made, {made - left} removed, {left} left": [
            f"{count} x {kind}" + (f", {receipt.left[kind]} LEFT" if kind in receipt.left else "")
            for kind, count in sorted(receipt.made.items())
        ],
        f"on AWS: about {receipt.usd:.4f} USD": ["nodes and volumes for these seconds, on demand in us-east-1"],
        "kept": [
            f"{receipt.kept}/          metrics, picture, weights, checkpoints",
            f"{receipt.kept}/logs/     what the ranks said",
            f"{receipt.kept}/requests.jsonl",
            f"{receipt.kept}/job/      the rest of the job folder: plan, cluster, exit records, boot logs",
        ],
        "what differs from AWS": list(receipt.differences),
        "trouble": [receipt.trouble] if receipt.trouble else [],
    }  # fmt: skip
    blocks = [
        "\n".join([title, *(f"  {line.strip()}" for line in lines)]) for title, lines in sections.items() if lines
    ]
    return "\n\n".join(blocks)


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


def _counts(who: str, requests: Mapping[str, int]) -> list[str]:
    """Wrapped; the first word is a heading."""
    if not requests:
        return []
    words = ", ".join(f"{name} {count}".replace(" ", NO_BREAK) for name, count in sorted(requests.items()))
    return [line.replace(NO_BREAK, " ") for line in wrap(f"{who}: {words}", WIDTH)]
