"""The law of each series: Amdahl's for the same work on more GPUs, Gustafson's for work that grows with them.  Pure."""

import math
from collections.abc import Sequence

from launch.core.drawing.charts import TIMES, figure
from launch.core.estimate.amdahl import MISFIT, Fit, fit
from launch.report.gustafson import Growth, grow
from launch.report.series import Series

Law = Fit | Growth


def law_of(one: Series) -> Law | None:
    """The law as fitted to the images per second of `one`; None where too few points have them."""
    speeds = [(p.replicas, p.images_per_s.value) for p in one.points if p.images_per_s and p.images_per_s.value]
    if one.kind == "weak":
        return grow(speeds)
    return fit([(count, 1 / speed) for count, speed in speeds])


def amdahls(laws: Sequence[tuple[Series, Law]]) -> list[tuple[Series, Fit]]:
    return [(one, law) for one, law in laws if isinstance(law, Fit)]


def gustafsons(laws: Sequence[tuple[Series, Law]]) -> list[tuple[Series, Growth]]:
    return [(one, law) for one, law in laws if isinstance(law, Growth)]


def limit(law: Law) -> float | None:
    """The speedup that no number of GPUs exceeds; None for a law that has none, or does not describe the speeds."""
    return law.limit if isinstance(law, Fit) and law.describes else None


def sentence(law: Law, unit: str, least: int = 1) -> str:
    """The law in words, and how well it fits.  least: the fewest GPUs that were measured."""
    if not law.describes:
        name = "Amdahl's" if isinstance(law, Fit) else "Gustafson's"
        is_far = law.worst > MISFIT
        why = f"it is off by up to {law.worst:.0%}" if is_far else "more was measured than it would allow"
        return (
            f"{name} law does not describe these speeds: {why}, so that nothing follows for more {unit}s than were "
            "measured."
        )
    text = _amdahl(law, unit) if isinstance(law, Fit) else _gustafson(law, unit)
    one = "" if least == 1 else f"; one {unit} alone was not measured"
    if law.is_checked:
        return f"{text} (fitted to {law.counts} numbers of {unit}s, off by at most {law.worst:.1%}{one})."
    return f"{text} (a curve through two numbers of {unit}s always fits, so this is not checked{one})."


def _amdahl(law: Fit, unit: str) -> str:
    if law.serial == 0:
        return "Amdahl's law finds no serial part: it scales ideally, or better"
    if math.isclose(law.serial, 1):
        return "Amdahl's law finds no parallel part: more of them do not help"
    return (
        f"Amdahl's law: {law.serial:.1%} of the work is serial, so no number of {unit}s is more than "
        f"{figure(law.limit)}{TIMES} as fast as one"
    )


def _gustafson(law: Growth, unit: str) -> str:
    if law.serial == 0:
        return "Gustafson's law finds no serial part: it scales ideally, or better"
    if math.isclose(law.serial, 1):
        return "Gustafson's law finds no parallel part: more of them do not help"
    return (
        f"Gustafson's law: each further {unit} adds {1 - law.serial:.1%} of one's images/s, as far as was measured; "
        "with a fixed batch for each the law has no ceiling"
    )
