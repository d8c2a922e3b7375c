"""What runs cost."""

from dataclasses import replace

import pytest

from launch.report.cost import cost, per_accuracy, per_epoch, priced, whole
from launch.report.points import points
from tests.launch.report.made import run


def test_an_epoch_costs_its_seconds_with_evaluation_at_the_hours_price() -> None:
    assert per_epoch(run("a", usd_per_hour=3.6)) == pytest.approx(0.011)  # 10 s and 1 s at 0.001 USD


def test_the_whole_costs_what_was_billed_else_its_seconds_else_its_epochs() -> None:
    made = run("a", usd_per_hour=3.6)

    assert whole(replace(made, usd=1.25, seconds=100)) == 1.25
    assert whole(replace(made, seconds=100)) == pytest.approx(0.1)
    assert whole(made) == pytest.approx(0.054)  # 20 + 3 x 10 s, and 4 s of evaluation
    assert whole(run("b")) is None


def test_a_point_of_accuracy_costs_the_whole_by_the_final_percent() -> None:
    assert per_accuracy(replace(run("a", accuracy=0.9), usd=1.8)) == pytest.approx(0.02)
    assert per_accuracy(replace(run("a", accuracy=None), usd=1.8)) is None


def test_a_bill_without_an_hours_price_is_shared_by_the_epochs() -> None:
    assert per_epoch(replace(run("a"), usd=2.0)) == 0.5


def test_a_price_per_gpu_is_for_runs_that_have_none() -> None:
    without, own = priced([run("a", 2), run("b", usd_per_hour=9.0)], 1.5)

    assert (without.usd_per_hour, own.usd_per_hour) == (3.0, 9.0)


def test_a_point_that_nobody_paid_for_has_no_cost() -> None:
    (point,) = points([run("a")])

    assert cost(point) is None
