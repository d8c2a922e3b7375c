"""Gustafson's law, fitted to measured speeds: what each further GPU adds where its own batch stays.  Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from launch.core.estimate.amdahl import MISFIT, least_squares, through_origin


@dataclass(frozen=True)
class Growth:
    """Speed(n) = one * (serial + (1 - serial) * n).  worst: largest relative error of a point; counts: how many n.

    The work grows with n, so that no ceiling follows: https://doi.org/10.1145/42411.42415
    """

    serial: float
    one: float
    worst: float
    counts: int

    @property
    def describes(self) -> bool:
        """Whether the speeds follow the law."""
        return self.worst <= MISFIT

    @property
    def is_checked(self) -> bool:
        """Whether there is a point more than the law has unknowns."""
        return self.counts > 2

    def speed(self, count: float) -> float:
        return self.one * (self.serial + (1 - self.serial) * count)


def grow(speeds: Sequence[tuple[int, float]]) -> Growth | None:
    """The least squares of relative errors.  speeds: (number of GPUs, images/s); None with fewer than two numbers
    or without a solution.

    A serial part below 0 (faster than ideal) becomes 0, and one above 1 (slower with every GPU) becomes 1.
    """
    counts = len({count for count, _ in speeds})
    if counts < 2:
        return None
    inverse, per_speed = [1 / speed for _, speed in speeds], [n / speed for n, speed in speeds]
    solved = least_squares(inverse, per_speed)
    if solved is None:
        return None
    constant, per_gpu = solved
    if constant < 0:
        constant, per_gpu = 0.0, through_origin(per_speed)
    elif per_gpu < 0:
        constant, per_gpu = through_origin(inverse), 0.0
    one = constant + per_gpu
    worst = max(abs((constant + per_gpu * n) / speed - 1) for n, speed in speeds)
    return Growth(constant / one, one, worst, counts)
