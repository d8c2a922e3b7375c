"""Draws launch/how_it_works.svg from the code's own structure: `python -m tests.figures.how_it_works`.

Each stage of a launch is played by modules of the core and of each backend.  They are looked up in the tree, so a
figure that no longer fits the code fails its test.
"""

from dataclasses import dataclass
from pathlib import Path

from launch.core.backend import BACKENDS
from tests.conftest import ROOT

TARGET = ROOT / "launch" / "how_it_works.svg"
INK, PAPER, LINE, ACCENT = "#1b1f24", "#ffffff", "#8c959f", "#0969da"
LEFT, WIDTH, GAP, HEAD, ROW = 1.5, 1.75, 0.35, 1.2, 0.42


@dataclass(frozen=True)
class Stage:
    """One step of a launch.  core, own: names of modules that play it, in launch/core and in a backend's folder."""

    title: str
    about: str
    core: tuple[str, ...]
    own: tuple[str, ...]


STAGES = (
    Stage("settings", "flags and YAML,\nchecked", ("cli", "job"), ("options", "checks")),
    Stage("look-ups", "reads from AWS\nor Slurm", ("aws", "lookup"), ("lookup",)),
    Stage("plan", "requests, prices,\nproblems: pure", ("plan", "quote", "estimate"), ("planner",)),
    Stage("print or perform", "--dry-run prints it,\nelse it is done", ("perform", "shell"), ("start", "submit")),
    Stage("follow", "logs, lost nodes,\nthe end", ("logs", "patience"), ("watch", "follow", "judge")),
    Stage("remove", "by tag, until\nnothing is left", ("names",), ("stop", "remove", "leaks")),
)


def structure() -> dict[str, dict[str, list[str]]]:
    """Folder -> stage -> the modules in it that play the stage; the first folder is the core."""
    folders = {"core": ROOT / "launch/core"} | {name: ROOT / "launch" / name for name in BACKENDS}
    return {
        name: {stage.title: _present(folder, stage.core if name == "core" else stage.own) for stage in STAGES}
        for name, folder in folders.items()
    }


def _present(folder: Path, modules: tuple[str, ...]) -> list[str]:
    return [name for name in modules if (folder / f"{name}.py").exists() or (folder / name).is_dir()]


def draw(target: Path) -> None:
    """Writes the figure as SVG; the same structure gives the same bytes."""
    import matplotlib as mpl  # takes a second, which tests of the structure need not spend
    from matplotlib.figure import Figure
    from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

    mpl.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "how it works", "font.family": "sans-serif"}
    rows = structure()
    height = HEAD + 0.25 + ROW * 1.35 * len(rows)
    width = LEFT + len(STAGES) * (WIDTH + GAP)
    figure = Figure(figsize=(width, height))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, width), ylim=(0, height))
    axes.axis("off")
    top = height - HEAD
    for place, stage in enumerate(STAGES):
        left = LEFT + place * (WIDTH + GAP)
        box = FancyBboxPatch((left, top), WIDTH, 0.95, boxstyle="round,pad=0.02,rounding_size=0.1", fc=PAPER, ec=ACCENT)
        axes.add_patch(box)
        centred = {"ha": "center", "va": "center", "color": INK}
        axes.text(left + WIDTH / 2, top + 0.76, stage.title, weight="bold", size=11, **centred)
        axes.text(left + WIDTH / 2, top + 0.3, stage.about, size=8.5, **centred)
        if place:
            start, end = (left - GAP + 0.03, top + 0.48), (left - 0.03, top + 0.48)
            axes.add_patch(FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=12, color=ACCENT))
    for number, (folder, stages) in enumerate(rows.items()):
        y = top - 0.5 - number * ROW * 1.35
        axes.text(0.12, y, f"launch/{folder}/", ha="left", va="center", color=INK, size=9, weight="bold")
        axes.plot([0.12, width - 0.3], [y + ROW * 0.68] * 2, color=LINE, lw=0.5)
        for place, stage in enumerate(STAGES):
            left = LEFT + place * (WIDTH + GAP)
            text = ", ".join(stages[stage.title]) or "-"
            axes.text(left + WIDTH / 2, y, text, ha="center", va="center", color=INK, size=8.5, family="monospace")
    figure.savefig(target, metadata={"Date": None, "Title": "How a launch works"})


if __name__ == "__main__":
    draw(TARGET)
