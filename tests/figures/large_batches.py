"""Draws tests/bench/large_batches.png from the table of ResNet-18 in tests/bench/RESULTS.md:

python -m tests.figures.large_batches
"""

import re

from launch.core.drawing.charts import Bar, Bars
from launch.core.drawing.picture import save
from tests.conftest import ROOT

BENCH = ROOT / "tests" / "bench"
ROW = re.compile(r"^\| ResNet-18 \| (.+?) \| (.+?) \| ([\d,]+) \| \**([\d.]+) %\** \|$", re.MULTILINE)


def chart(text: str) -> Bars:
    """A bar for each row of the table."""
    rows = tuple(
        Bar(f"{batch}; {recipe}", (float(accuracy),), f"{accuracy} %, {updates} updates")
        for batch, recipe, updates, accuracy in ROW.findall(text)
    )
    return Bars(
        "large_batches", "ResNet-18 on CIFAR-10, five epochs: what large batches cost", "test accuracy (%)",
        "images per update; optimizer and rate", ("",), rows,
    )  # fmt: skip


if __name__ == "__main__":
    save(chart((BENCH / "RESULTS.md").read_text(encoding="utf-8")), BENCH, ("png",))
