"""What forecasts say of runs.  Pure."""

from collections.abc import Collection, Sequence


def nothing_from(refused: Sequence[tuple[str, str]]) -> list[str]:
    """Which runs could not be used, by the reason.  refused: names of runs, each with its reason."""
    by_reason: dict[str, list[str]] = {}
    for run, why in refused:
        by_reason.setdefault(why, []).append(run)
    sentences = []
    for why, names in by_reason.items():
        others = f" and {len(names) - 1} more" if len(names) > 1 else ""
        sentences.append(f"nothing from {names[0]}{others}, which {why}")
    return sentences


def counted(counts: Collection[int], unit: str) -> str:
    """({1, 4, 2}, 'GPU') -> '1, 2 and 4 GPUs'."""
    *others, last = sorted(counts)
    several = others or last != 1
    return f"{', '.join(map(str, others))}{' and ' if others else ''}{last:,} {unit}{'s' if several else ''}"
