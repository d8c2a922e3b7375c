"""Draws infra/threats.svg, who may attack what across which boundary: `python -m tests.figures.threats`.

Each boundary has the rows of SECURITY.md that hold it; a row that is not there, or in no boundary, fails the test.
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
WHO_LEFT, WHO_WIDTH, ZONE_LEFT, ZONE_WIDTH, TOP, ROW = 0.2, 2.9, 4.6, 7.2, 0.75, 0.235


@dataclass(frozen=True)
class Zone:
    """What lies behind one boundary.  attackers: who comes at it; rows: first cells of SECURITY.md that hold it."""

    name: str
    holds: str
    attackers: tuple[str, ...]
    rows: tuple[str, ...]


ZONES = (
    Zone(
        "your machine",
        "terminal, credentials, what is installed",
        ("a job's log, name or checkpoint", "who changes a file on PyPI or a mirror", "the network, other users"),
        ("your terminal", "your machine", "your memory, disk and time", "your installation",
         "what `make` and the Dockerfile install",
         "your account, and your machine while it rehearses",
         "a key given by mistake where a reference belongs, in `--environment`, or in any other setting",
         "whoever must approve the toolkit", "a training on one machine", "a training with `--compile`",
         "what is kept of data for the next start",
         "your files beside a script"),
    ),
    Zone(
        "the AWS account",
        "roles, networks, other people's machines, money",
        ("a launcher's user", "a service of another account", "a job that nobody ends"),
        ("the rest of the account", "roles", "networks of the account", "your money",
         "the instance that publishes data"),
    ),
    Zone(
        "a job",
        "job folder in S3, tags, disks, secrets",
        ("other launchers", "whoever copies a tag", "who reads plans, logs and folders"),
        ("a job, its nodes and its shell", "what a replaced node runs", "what a job runs, once it is sent",
         "what a script's nodes run", "disks, job folders", "data sets", "keys of wandb, MLflow and others",
         "readers of a script's words", "who follows or fetches a job on AWS"),
    ),
    Zone(
        "a node or a SageMaker host",
        "its role, its shell, the other nodes",
        ("the network", "a hostile setting or name", "the training itself"),
        ("nodes", "a node's role", "a node", "nodes that meet", "a shell on the node, a batch script, pages, tables",
         "the training's command in SageMaker's container", "what a SageMaker job installs as it starts"),
    ),
    Zone(
        "a Slurm cluster",
        "the batch script, the shared file system",
        ("other users of the cluster",),
        ("who submits to Slurm, or opens a CSV file", "what a Slurm job runs",
         "what a training takes from the folder that it starts in",
         "who reads run folders that others may write in",
         "who writes into run folders, data and caches that others may write in"),
    ),
)  # fmt: skip


def draw(target: Path) -> None:
    """Writes the figure; the same zones give the same bytes."""
    mpl.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "threats", "font.family": "sans-serif"}
    heights = [TOP + ROW * max(len(zone.rows), 2 * len(zone.attackers)) for zone in ZONES]
    height, width = sum(heights) + 0.25 * len(ZONES) + 0.9, ZONE_LEFT + ZONE_WIDTH + 0.3
    figure = Figure(figsize=(width, height))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, width), ylim=(0, height))
    axes.axis("off")
    heading = {"size": 12, "weight": "bold", "color": INK, "va": "center"}
    axes.text(WHO_LEFT, height - 0.35, "who", **heading)
    axes.text(ZONE_LEFT, height - 0.35, "what, behind a boundary, and the rows below that hold it", **heading)
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
    for number, row in enumerate(zone.rows):
        axes.text(ZONE_LEFT + 0.3, top - TOP - ROW * number, row.replace("`", ""), size=8.5, color=INK, va="center")
    step = tall / len(zone.attackers)
    for number, attacker in enumerate(zone.attackers):
        y = top - step * (number + 0.5)
        axes.add_patch(FancyBboxPatch((WHO_LEFT, y - 0.16), WHO_WIDTH, 0.32, ec=DANGER, lw=1, **box))
        axes.text(WHO_LEFT + WHO_WIDTH / 2, y, attacker, size=8.5, color=INK, ha="center", va="center")
        ends = (WHO_LEFT + WHO_WIDTH + 0.05, y), (ZONE_LEFT - 0.05, y)
        axes.add_patch(FancyArrowPatch(*ends, arrowstyle="-|>", mutation_scale=12, color=DANGER))


if __name__ == "__main__":
    draw(TARGET)
