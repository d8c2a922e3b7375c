"""Amdahl's law, fitted to measured speedups: the serial part of the work.  Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

# With a larger relative error the law does not describe the measurements.
MISFIT = 0.1


@dataclass(frozen=True)
class Fit:
    """The law fitted to measured times: T(n) = one * (serial + (1 - serial) / n)."""

    serial: float
    one: float
    worst: float  # the largest relative error of a point
    counts: int  # how many different n were measured
    reached: float = 1.0  # the largest measured speedup over `one`

    @property
    def limit(self) -> float:
        """The speedup that no number of GPUs exceeds."""
        return 1 / self.serial if self.serial > 0 else math.inf

    @property
    def describes(self) -> bool:
        """Whether the times follow the law, which they do not if more GPUs take longer, or its limit is exceeded."""
        return self.worst <= MISFIT and self.reached <= self.limit * (1 + 1e-9)

    @property
    def is_checked(self) -> bool:
        """Whether there are more points than unknowns: a line through two points always fits."""
        return self.counts > 2

    def time(self, count: float) -> float:
        return self.one * (self.serial + (1 - self.serial) / count)

    def speed(self, count: float) -> float:
        """Work per unit of time."""
        return 1 / self.time(count)

    def speedup(self, count: float) -> float:
        return self.one / self.time(count)


def fit(times: Sequence[tuple[int, float]]) -> Fit | None:
    """The least squares of relative errors, so that short times count as much as long ones.

    times: (number of GPUs, time of the same work, in any unit).  None with fewer than two different numbers of GPUs
    or without a solution.
    A serial part below 0 (faster than ideal) becomes 0, and one above 1 (slower with every GPU) becomes 1.
    """
    counts = len({count for count, _ in times})
    if counts < 2:
        return None
    constant, shared = [1 / time for _, time in times], [1 / count / time for count, time in times]
    solved = least_squares(constant, shared)
    if solved is None:
        return None
    serial_s, parallel_s = solved
    if serial_s < 0:
        serial_s, parallel_s = 0.0, through_origin(shared)
    elif parallel_s < 0:
        serial_s, parallel_s = through_origin(constant), 0.0
    one = serial_s + parallel_s
    fitted = Fit(serial_s / one, one, 0.0, counts, one / min(time for _, time in times))
    return replace(fitted, worst=max(abs(fitted.time(count) / time - 1) for count, time in times))


def least_squares(u: Sequence[float], v: Sequence[float]) -> tuple[float, float] | None:
    """a and b that minimize the sum of (a * u + b * v - 1) squared, by the normal equations.

    None if these are singular in floating point.
    """
    uu, uv, vv = (math.fsum(map(math.prod, zip(p, q, strict=True))) for p, q in ((u, u), (u, v), (v, v)))
    determinant = uu * vv - uv * uv
    if not determinant:
        return None
    a = (math.fsum(u) * vv - math.fsum(v) * uv) / determinant
    b = (math.fsum(v) * uu - math.fsum(u) * uv) / determinant
    return a, b


def through_origin(rates: Sequence[float]) -> float:
    """c that minimizes the sum of (c * rate - 1) squared."""
    return math.fsum(rates) / math.fsum(rate * rate for rate in rates)
