"""What to try next, and what is best of what was tried.  Pure and torch-free."""

from collections.abc import Sequence
from dataclasses import dataclass

SAME = 0.02  # faster by less is as fast: then the smaller batch, and the fewer workers, are better
GIVE_UP_AFTER = 2  # doublings that bring nothing


@dataclass(frozen=True)
class Trial:
    """How one combination went.  images_per_s: None where it does not fit into memory; images: in the training set."""

    batch_size: int
    workers: int
    images_per_s: float | None
    data_wait: float = 0.0  # share of the time
    memory_mib: float = 0.0
    gpu_percent: float | None = None  # as NVML counts it
    images: int | None = None


def next_batch_size(tried: Sequence[Trial], first: int, largest: int) -> int | None:
    """The batch size to try next, or None: doubled until one does not fit or brings nothing, then once in between.

    None has more images than the training set.
    """
    if not tried:
        return min(first, largest)
    fitting, failed = _sizes(tried, fit=True), _sizes(tried, fit=False)
    if not fitting:
        return min(failed) // 2 or None
    if failed:
        return _between(max(fitting), min(failed)) if len(failed) == 1 else None
    doubled = min(2 * fitting[-1], largest)
    is_last = doubled == fitting[-1] or doubled > (tried[-1].images or doubled)
    return None if is_last or _brings_nothing(tried) else doubled


def _between(fits: int, fits_not: int) -> int | None:
    """The middle, where one is the double of the other, and not the middle itself."""
    return (fits + fits_not) // 2 if 2 * fits == fits_not > 2 else None


def _brings_nothing(tried: Sequence[Trial]) -> bool:
    rates = [trial.images_per_s or 0.0 for trial in tried]
    if len(rates) <= GIVE_UP_AFTER:
        return False
    return max(rates[-GIVE_UP_AFTER:]) < max(rates[:-GIVE_UP_AFTER]) * (1 + SAME)


def worker_counts(cores: int, usual: int) -> list[int]:
    """The numbers of workers to try beside the `usual` one: fewer, and more for reads that wait."""
    return sorted({max(1, cores // 2), cores, 2 * cores} - {usual})


def best(tried: Sequence[Trial]) -> Trial | None:
    """The fastest that fits; of those that are as fast, the one with the smallest batch and the fewest workers."""
    rates = [(trial.images_per_s, trial) for trial in tried if trial.images_per_s is not None]
    if not rates:
        return None
    enough = max(rate for rate, _ in rates) * (1 - SAME)
    return min((trial for rate, trial in rates if rate >= enough), key=lambda t: (t.batch_size, t.workers))


def largest_that_fits(tried: Sequence[Trial]) -> int:
    """The largest batch size that fits, of those that were tried."""
    return max(_sizes(tried, fit=True))


def _sizes(tried: Sequence[Trial], *, fit: bool) -> list[int]:
    return [trial.batch_size for trial in tried if (trial.images_per_s is not None) == fit]
