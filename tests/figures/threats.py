"""Draws infra/threats.svg, who may attack what across which boundary: `python -m tests.figures.threats`.

Each boundary is a chapter of SECURITY.md and names its sections: a test holds that both have the same ones.
"""

from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from tests.conftest import ROOT

TARGET = ROOT / "infra" / "threats.svg"
INK, PAPER, LINE, ACCENT, DANGER = "#1b1f24", "#ffffff", "#8c959f", "#0969da", "#cf222e"
WHO_LEFT, WHO_WIDTH, ZONE_LEFT, ZONE_WIDTH, TOP, ROW = 0.2, 2.9, 4.6, 5.4, 0.75, 0.235


@dataclass(frozen=True)
class Zone:
    """What lies behind one boundary.  attackers: who comes at it; sections: those of SECURITY.md that hold it."""

    name: str
    holds: str
    attackers: tuple[str, ...]
    sections: tuple[str, ...]


ZONES = (
    Zone(
        "Your machine",
        "terminal, keys, files, what is installed",
        ("a job's log or name, a checkpoint", "who changes a file on PyPI or a mirror", "the network"),
        ("Your terminal", "Keys given by mistake", "Files of other people", "Your memory, disk and time",
         "Your files beside a script", "Your machine's network", "A rehearsal", "What is installed"),
    ),
    Zone(
        "A machine or a cluster that you share",
        "folders that others may write in, the batch script",
        ("other users of it", "a training, a colleague"),
        ("The folder that a training starts in", "A training that compiles", "Data kept for the next start",
         "What a Slurm job runs", "Run folders that you read", "Folders that you write into"),
    ),
    Zone(
        "The AWS account",
        "roles, networks, other people's machines, money",
        ("a launcher's user", "a service of another account", "a job that nobody ends"),
        ("The rest of the account", "Roles and networks", "Your money", "The instance that publishes data"),
    ),
    Zone(
        "A job",
        "job folder in S3, tags, disks, secrets",
        ("other launchers", "whoever copies a tag", "who reads plans, logs and folders"),
        ("A job, its nodes and its shell", "What a replaced node runs", "What a job runs, once it is sent",
         "Disks and job folders", "Data sets", "Keys that a job needs", "A job that you follow or fetch"),
    ),
    Zone(
        "A node or a SageMaker host",
        "its role, its shell, the other nodes",
        ("the network", "a hostile setting or name", "the training itself"),
        ("The network of a node", "The rights on a node", "Scripts, pages and tables"),
    ),
)  # fmt: skip


def draw(target: Path) -> None:
    """Writes the figure; the same zones give the same bytes."""
    mpl.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "threats", "font.family": "sans-serif"}
    heights = [TOP + ROW * max(len(zone.sections), 2 * len(zone.attackers)) for zone in ZONES]
    height, width = sum(heights) + 0.25 * len(ZONES) + 0.9, ZONE_LEFT + ZONE_WIDTH + 0.3
    figure = Figure(figsize=(width, height))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, width), ylim=(0, height))
    axes.axis("off")
    heading = {"size": 12, "weight": "bold", "color": INK, "va": "center"}
    axes.text(WHO_LEFT, height - 0.35, "who", **heading)
    axes.text(ZONE_LEFT, height - 0.35, "what, behind a boundary, and the sections that hold it", **heading)
    top = height - 0.7
    for zone, tall in zip(ZONES, heights, strict=True):
        _draw_zone(axes, zone, top, tall)
        top -= tall + 0.25
    figure.savefig(target, metadata={"Date": None, "Title": "Who may attack what, and what holds it"})


def _draw_zone(axes: Axes, zone: Zone, top: float, tall: float) -> None:
    box = {"boxstyle": "round,pad=0.02,rounding_size=0.1", "fc": PAPER}
    axes.add_patch(FancyBboxPatch((ZONE_LEFT, top - tall), ZONE_WIDTH, tall, ec=ACCENT, ls="--", lw=1.4, **box))
    axes.text(ZONE_LEFT + 0.15, top - 0.2, zone.name, weight="bold", size=11, color=INK, va="center")
    axes.text(ZONE_LEFT + 0.15, top - 0.44, zone.holds, size=9, color=LINE, va="center")
    for number, section in enumerate(zone.sections):
        axes.text(ZONE_LEFT + 0.3, top - TOP - ROW * number, section, size=8.5, color=INK, va="center")
    step = tall / len(zone.attackers)
    for number, attacker in enumerate(zone.attackers):
        y = top - step * (number + 0.5)
        axes.add_patch(FancyBboxPatch((WHO_LEFT, y - 0.16), WHO_WIDTH, 0.32, ec=DANGER, lw=1, **box))
        axes.text(WHO_LEFT + WHO_WIDTH / 2, y, attacker, size=8.5, color=INK, ha="center", va="center")
        ends = (WHO_LEFT + WHO_WIDTH + 0.05, y), (ZONE_LEFT - 0.05, y)
        axes.add_patch(FancyArrowPatch(*ends, arrowstyle="-|>", mutation_scale=12, color=DANGER))


if __name__ == "__main__":
    draw(TARGET)
