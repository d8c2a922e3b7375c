"""Amdahl's and Gustafson's laws: fitted to times that follow it, that nearly do, and that do not."""

import math

import pytest

from launch.core.estimate.laws import amdahl, gustafson


def test_exact_times_give_back_the_serial_part_they_were_made_with() -> None:
    found = amdahl([(n, 40 * (0.05 + 0.95 / n)) for n in (1, 2, 4, 8)])

    assert found is not None
    assert found.serial == pytest.approx(0.05)
    assert found.one == pytest.approx(40)
    assert found.limit == pytest.approx(20)
    assert found.speed(8) * found.one == pytest.approx(5.925925926)
    assert found.worst == pytest.approx(0)
    assert found.is_checked


def test_the_published_times_of_resnet18_on_cifar10_are_met() -> None:
    """101.7 s, 56.3 s and 34.3 s on 1, 2 and 4 GPUs."""
    found = amdahl([(1, 101.7), (2, 56.3), (4, 34.3)])

    assert found is not None
    assert found.serial == pytest.approx(0.117, abs=5e-4)  # 0.116 through the first and the last
    assert found.worst < 0.006


def test_no_smaller_sum_of_squares_is_found_nearby() -> None:
    times = [(1, 100.0), (2, 57.0), (4, 29.0), (8, 24.0)]

    def squares(serial: float, one: float) -> float:
        return sum((one * (serial + (1 - serial) / n) / time - 1) ** 2 for n, time in times)

    found = amdahl(times)
    assert found is not None
    best = squares(found.serial, found.one)
    for serial, one in ((1e-3, 0), (-1e-3, 0), (0, 0.1), (0, -0.1)):
        assert squares(found.serial + serial, found.one + one) > best


def test_two_numbers_of_gpus_fit_always_and_are_checked_by_nothing() -> None:
    found = amdahl([(1, 10.0), (2, 6.0)])

    assert found is not None
    assert found.serial == pytest.approx(0.2)
    assert found.worst == pytest.approx(0)
    assert not found.is_checked


@pytest.mark.parametrize("times", [[], [(2, 5.0)], [(2, 5.0), (2, 6.0)]])
def test_one_number_of_gpus_cannot_be_fitted(times: list[tuple[int, float]]) -> None:
    assert amdahl(times) is None


@pytest.mark.parametrize(
    ("times", "serial", "limit"), [([(1, 10.0), (2, 4.5), (4, 2.2)], 0, math.inf), ([(1, 10.0), (2, 11.0)], 1, 1)]
)
def test_faster_than_ideal_has_no_limit_and_slower_with_every_gpu_is_serial(
    times: list[tuple[int, float]], serial: float, limit: float
) -> None:
    found = amdahl(times)

    assert found is not None
    assert (found.serial, found.limit) == (serial, limit)


def test_times_too_far_apart_for_floats_have_no_law() -> None:
    assert amdahl([(1, 100.0), (2, 1e-10)]) is None
    assert gustafson([(1, 100.0), (2, 1e14)]) is None
