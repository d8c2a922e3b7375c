"""The search: which trial to run next, and which result is best.  Pure and torch-free."""

from collections.abc import Sequence
from dataclasses import dataclass

SAME = 0.02  # smaller relative differences in speed are ignored: then smaller batches and fewer workers are better
GIVE_UP_AFTER = 2  # doublings without a gain


@dataclass(frozen=True)
class Trial:
    """The result of one trial."""

    batch_size: int
    workers: int
    images_per_s: float | None  # None if it does not fit into memory
    data_wait: float = 0.0  # share of the time spent waiting for data
    memory_mib: float = 0.0
    gpu_percent: float | None = None  # utilization by NVML
    images: int | None = None  # in the training set


def next_batch_size(tried: Sequence[Trial], first: int, largest: int) -> int | None:
    """The batch size to try next, or None to stop.

    Doubles it until it does not fit, is no faster, or exceeds the training set; after one that does not fit, tries one
    in between.
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
    return None if is_last or _has_no_gain(tried) else doubled


def _between(fits: int, fits_not: int) -> int | None:
    """The middle of two sizes if the second is twice the first, else None: then the middle was tried already."""
    return (fits + fits_not) // 2 if 2 * fits == fits_not > 2 else None


def _has_no_gain(tried: Sequence[Trial]) -> bool:
    rates = [trial.images_per_s or 0.0 for trial in tried]
    if len(rates) <= GIVE_UP_AFTER:
        return False
    return max(rates[-GIVE_UP_AFTER:]) < max(rates[:-GIVE_UP_AFTER]) * (1 + SAME)


def worker_counts(cores: int, usual: int) -> list[int]:
    """The numbers of workers to try besides the `usual` one: fewer, and more, which helps if reading is slow."""
    return sorted({max(1, cores // 2), cores, 2 * cores} - {usual})


def best(tried: Sequence[Trial]) -> Trial | None:
    """The fastest trial; of equally fast ones, the one with the smallest batch and the fewest workers."""
    rates = [(trial.images_per_s, trial) for trial in tried if trial.images_per_s is not None]
    if not rates:
        return None
    enough = max(rate for rate, _ in rates) * (1 - SAME)
    return min((trial for rate, trial in rates if rate >= enough), key=lambda t: (t.batch_size, t.workers))


def largest_that_fits(tried: Sequence[Trial]) -> int:
    """The largest batch size tried that fits."""
    return max(_sizes(tried, fit=True))


def _sizes(tried: Sequence[Trial], *, fit: bool) -> list[int]:
    return [trial.batch_size for trial in tried if (trial.images_per_s is not None) == fit]
