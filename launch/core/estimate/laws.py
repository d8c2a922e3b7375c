"""Amdahl's and Gustafson's laws, fitted to measurements: the serial part of the work.  Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

# With a larger relative error the law does not describe the measurements.
MISFIT = 0.1


@dataclass(frozen=True)
class Law:
    """A law of what n GPUs measure: one * (serial + (1 - serial) * n ** power).

    Amdahl's is of the times of a fixed amount of work, with power -1.  Gustafson's is of speeds, with power 1: the work
    grows with n, so that no limit follows (https://doi.org/10.1145/42411.42415).
    """

    name: Literal["Amdahl", "Gustafson"]
    serial: float
    one: float
    worst: float  # the largest relative error of a point
    counts: int  # how many different n were measured
    reached: float = 1.0  # the largest measured speedup over `one`; counts for Amdahl's only

    @property
    def limit(self) -> float:
        """The speedup that no number of GPUs exceeds."""
        return 1 / self.serial if self.name == "Amdahl" and self.serial > 0 else math.inf

    @property
    def describes(self) -> bool:
        """Whether the measurements follow the law, which they do not if they exceed its limit."""
        return self.worst <= MISFIT and self.reached <= self.limit * (1 + 1e-9)

    @property
    def is_checked(self) -> bool:
        """Whether there are more points than unknowns: a line through two points always fits."""
        return self.counts > 2

    def value(self, count: float) -> float:
        """The time by Amdahl's law, the speed by Gustafson's."""
        return self.one * (self.serial + (1 - self.serial) * count ** _POWER[self.name])

    def speed(self, count: float) -> float:
        """Work per unit of time."""
        return self.value(count) if self.name == "Gustafson" else 1 / self.value(count)


_POWER = {"Amdahl": -1, "Gustafson": 1}


def amdahl(times: Sequence[tuple[int, float]]) -> Law | None:
    """Amdahl's law, fitted to (number of GPUs, time of the same work, in any unit); None as in _fit()."""
    law = _fit("Amdahl", times)
    return law and replace(law, reached=law.one / min(time for _, time in times))


def gustafson(speeds: Sequence[tuple[int, float]]) -> Law | None:
    """Gustafson's law, fitted to (number of GPUs, speed, in any unit); None as in _fit()."""
    return _fit("Gustafson", speeds)


def _fit(name: Literal["Amdahl", "Gustafson"], measured: Sequence[tuple[int, float]]) -> Law | None:
    """The least squares of relative errors, so that short times count as much as long ones.

    None with fewer than two different numbers of GPUs, or without a solution.
    A serial part below 0 (faster than ideal) becomes 0, and one above 1 (slower with every GPU) becomes 1.
    """
    counts = len({count for count, _ in measured})
    if counts < 2:
        return None
    constant = [1 / value for _, value in measured]
    shared = [count ** _POWER[name] / value for count, value in measured]
    solved = _least_squares(constant, shared)
    if solved is None:
        return None
    serial, parallel = solved
    if serial < 0:
        serial, parallel = 0.0, _through_origin(shared)
    elif parallel < 0:
        serial, parallel = _through_origin(constant), 0.0
    one = serial + parallel
    law = Law(name, serial / one, one, 0.0, counts)
    return replace(law, worst=max(abs(law.value(count) / value - 1) for count, value in measured))


def _least_squares(u: Sequence[float], v: Sequence[float]) -> tuple[float, float] | None:
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


def _through_origin(rates: Sequence[float]) -> float:
    """c that minimizes the sum of (c * rate - 1) squared."""
    return math.fsum(rates) / math.fsum(rate * rate for rate in rates)
