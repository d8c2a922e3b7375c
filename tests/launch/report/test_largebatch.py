"""Accuracy against the global batch, and what remedies give back."""

import pytest

from launch.core.runs import Run
from launch.report.points import points
from launch.report.series import Comparison, compare
from tests.launch.report.made import run

SMALL = run("small", 1, 100, accuracy=0.92)
PLAIN = run("plain", 8, 1000, accuracy=0.70)
LARS = run("lars", 8, 1000, accuracy=0.85, optimizer="lars")
LINEAR = run("linear", 8, 1000, accuracy=0.93, lr_scaling="linear", warmup_epochs=2)


def compared(*runs: Run, baseline: str | None = None) -> Comparison | None:
    found = points(runs)
    base = next((point for point in found if point.runs[0].name == baseline), None)
    return compare(found, base)


def test_recipes_are_compared_with_the_smallest_global_batch() -> None:
    found = compared(PLAIN, LARS, SMALL, LINEAR)

    assert found is not None
    assert found.task == "resnet18 on cifar10"
    assert found.baseline.per_update == 100
    assert {(trial.recipe, trial.per_update): round(trial.gap, 6) for trial in found.trials} == {
        ("sgd", 100): 0, ("sgd", 8000): -22, ("lars", 8000): -7, ("sgd, linear lr scaling, warmup epochs 2", 8000): 1,
    }  # fmt: skip
    assert found.trials[0] is found.baseline


def test_the_baseline_can_be_named() -> None:
    found = compared(PLAIN, LARS, SMALL, baseline="plain")

    assert found is not None
    assert {trial.recipe: trial.gap for trial in found.trials if trial.per_update == 8000} == {
        "sgd": 0, "lars": pytest.approx(15),
    }  # fmt: skip


def test_other_tasks_other_lengths_and_other_precisions_are_left_out() -> None:
    others = [run("a", 8, 1000, model="vgg11"), run("b", 8, 1000, epochs=9), run("c", 8, 1000, precision="fp16")]

    found = compared(SMALL, PLAIN, *others)

    assert found is not None
    assert [trial.points[0].runs[0].name for trial in found.trials] == ["small", "plain"]


def test_what_only_makes_it_faster_is_the_same_recipe() -> None:
    found = compared(SMALL, PLAIN, run("again", 8, 1000, accuracy=0.74, strategy="fsdp", seed=3))

    assert found is not None
    (large,) = found.trials[1:]
    assert (large.accuracy.low, large.accuracy.value, large.accuracy.high) == pytest.approx((70, 72, 74))


@pytest.mark.parametrize("runs", [[], [SMALL], [run("a", accuracy=None), run("b", 8, 1000, accuracy=None)]])
def test_nothing_is_compared_with_nothing(runs: list[Run]) -> None:
    assert compared(*runs) is None
