"""What runs cost."""

from dataclasses import replace

import pytest

from launch.report.cost import cost, per_accuracy, priced, reached, to_target
from launch.report.findings import find, sentences
from launch.report.points import points
from launch.sweep.table import row
from tests.launch.report.made import run


def test_an_epoch_costs_its_seconds_with_evaluation_at_the_hours_price() -> None:
    assert run("a", usd_per_hour=3.6).usd_per_epoch == pytest.approx(0.011)  # 10 s and 1 s at 0.001 USD


def test_the_whole_costs_what_was_billed_else_its_seconds_else_its_epochs() -> None:
    made = run("a", usd_per_hour=3.6)

    assert replace(made, usd=1.25, seconds=100).whole_usd == 1.25
    assert replace(made, seconds=254).whole_usd == pytest.approx(0.254)  # 200 s of starting twice
    assert replace(made, seconds=12).whole_usd == pytest.approx(0.054)  # of its last start alone
    assert made.whole_usd == pytest.approx(0.054)  # 20 + 3 x 10 s, and 4 s of evaluation
    assert run("b").whole_usd is None
    assert cost(points([run("a")])[0]) is None


def test_a_point_of_accuracy_costs_the_whole_by_the_final_percent() -> None:
    assert per_accuracy(replace(run("a", accuracy=0.9), usd=1.8)) == pytest.approx(0.02)
    assert per_accuracy(replace(run("a", accuracy=None), usd=1.8)) is None


def test_a_bill_without_an_hours_price_is_shared_by_the_epochs() -> None:
    assert replace(run("a"), usd=2.0).usd_per_epoch == 0.5


def test_a_price_per_gpu_is_for_runs_that_have_none() -> None:
    without, own = priced([run("a", 2), run("b", usd_per_hour=9.0)], 1.5)

    assert (without.usd_per_hour, own.usd_per_hour) == (3.0, 9.0)


def test_an_evaluation_every_five_epochs_is_a_fifth_of_its_price_in_each() -> None:
    """True: 10 s an epoch at 18 USD/h is 0.05 USD, and an evaluation of 10 s every fifth epoch another 0.01."""
    made = run("a", epochs=10, usd_per_hour=18.0, eval_every=5)
    epochs = tuple({**epoch, "eval_s": 10.0 if epoch["epoch"] % 5 == 0 else None} for epoch in made.epochs)

    found = replace(made, epochs=epochs)

    assert found.usd_per_epoch == pytest.approx(0.060)
    assert row(found)["usd_per_epoch"] == pytest.approx(0.060)  # the sweep's table says the same
    assert cost(points([found])[0]).per_epoch.value == pytest.approx(0.060)  # type: ignore[union-attr]


def test_time_and_price_to_a_target_accuracy_are_those_of_the_first_evaluation_that_has_it() -> None:
    made = run("a", usd_per_hour=3.6)
    accuracies = (0.5, 0.7, 0.9, 0.8)
    learnt = replace(
        made, seconds=64.0,
        epochs=tuple({**e, "eval_top1": a} for e, a in zip(made.epochs, accuracies, strict=True)),
    )  # fmt: skip

    # 10 s to start; 20 s and 1 s, 10 s and 1 s, 10 s and 1 s.
    assert to_target(learnt, 90) == (pytest.approx(53), pytest.approx(0.053))
    assert to_target(learnt, 60) == (pytest.approx(42), pytest.approx(0.042))
    assert to_target(learnt, 91) is None


def test_the_report_says_where_a_target_is_reached_first_and_for_least() -> None:
    slow = run("slow", usd_per_hour=1.0)
    fast = run("fast", 8, rate=4000, usd_per_hour=8.0)

    found = find([slow, fast, run("never", 2, accuracy=0.5)], target=85)

    assert [one.point.replicas for one in found.reached] == [8, 1]
    said = "\n".join(sentences(found))
    assert "Fastest to 85% of eval accuracy: 6.00 s (ddp, bf16, 8 " in said
    assert "Cheapest to 85%: 0.00583 USD (ddp, bf16, 1 " in said
    assert "99%" in sentences(find([slow], target=99))[-1]
    assert [len(one.point.runs) for one in reached(found.points, 85)] == [1, 1]
