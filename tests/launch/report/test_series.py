"""Which runs belong together, what they are called, and what follows for speedup and efficiency."""

from dataclasses import replace

import pytest

from launch.core.drawing.charts import Measured
from launch.core.runs import Run
from launch.report.points import Point, points
from launch.report.series import Comparison, Series, compare, named, scaling, series, speedup
from tests.launch.report.made import run


def of(*runs: Run) -> list[Point]:
    return named(points(runs))


def only(found: list[Series]) -> Series:
    (one,) = found
    return one


def test_the_same_batch_per_gpu_is_weak_scaling_and_the_same_in_all_is_strong() -> None:
    found = of(run("a", 1, 100), run("b", 2, 100), run("c", 2, 50), run("d", 4, 25))

    weak, strong = only(series(found, "weak")), only(series(found, "strong"))
    assert (weak.batch, weak.counts) == (100, (1, 2))
    assert (strong.batch, strong.counts) == (100, (1, 2, 4))
    assert strong.title("GPU") == "ddp, bf16, 100 per update"
    assert weak.title("CPU rank") == "ddp, bf16, 100 per rank"


def test_a_series_that_begins_with_two_gpus_is_compared_with_one_half() -> None:
    one = only(series(of(run("a", 2, rate=1800), run("b", 4, rate=3000)), "weak"))

    found = speedup(one.points[1], one.base)
    assert found is not None
    assert found.value == pytest.approx(3000 / 900)


def test_what_is_trained_keeps_runs_apart() -> None:
    runs = [run("a"), run("b", 2, model="vgg11"), run("c", 2, dataset="digits"), run("d", 2, precision="fp32")]

    assert scaling(of(*runs)) == []


def test_strategies_that_have_no_run_on_one_gpu_are_compared_with_that_of_another() -> None:
    alone, shared = run("one", strategy="single"), run("two", 2, strategy="fsdp", rate=1500)

    one = only(series(of(alone, shared), "weak"))

    assert [point.runs[0].name for point in one.points] == ["one", "two"]
    assert one.label == "fsdp"


def test_seeds_are_repetitions_with_a_range_over_runs() -> None:
    again = [run("a", rate=900, seed=1), run("b", rate=1000, seed=2), run("c", rate=1200, seed=3)]

    (point,) = of(*again)

    assert len(point.runs) == 3
    assert point.images_per_s == Measured(1000, 900, 1200)


def test_a_single_run_has_the_range_of_its_epochs_if_it_has_three() -> None:
    def with_rates(*rates: float) -> Run:
        made = run("a", epochs=len(rates))
        return replace(made, epochs=tuple({**e, "images_per_s": r} for e, r in zip(made.epochs, rates, strict=True)))

    (three,), (two,) = of(with_rates(500, 990, 1010)), of(with_rates(500, 990))

    assert three.images_per_s == Measured(1000, 990, 1010)
    assert two.images_per_s == Measured(990, 990, 990)


def test_two_gpus_on_one_node_and_on_two_are_two_series() -> None:
    found = of(run("a"), run("b", 2, rate=1900), run("c", 2, nodes=2, rate=1500))

    near, far = series(found, "weak")
    assert {near.label, far.label} == {"ddp, bf16", "1 per node"}
    rates = {one.label: one.points[1].images_per_s for one in (near, far)}
    assert rates["1 per node"] == Measured(1500, 1500, 1500)


def test_settings_given_and_settings_left_at_their_defaults_are_the_same() -> None:
    given = run("a", comm_hook="none", seed=0, optimizer="sgd", milestones=[], batch_ramp=None, run_dir="x", lr=None)

    assert only(series(of(given, run("b", 2)), "weak")).counts == (1, 2)


def test_names_say_what_differs_and_nothing_else() -> None:
    found = of(run("a"), run("b", strategy="fsdp"), run("c", 2, comm_hook="fp16"), run("d", optimizer="lars"),
               run("e", batch_ramp={"0": 100, "2": 400}), run("f", static_graph=True))  # fmt: skip

    assert {point.runs[0].name: point.label for point in found} == {
        "a": "ddp", "b": "fsdp", "c": "ddp, fp16 hook", "d": "ddp, lars", "e": "ddp, ramp 0:100,2:400",
        "f": "ddp, static graph",
    }  # fmt: skip


def test_a_run_that_did_not_end_has_a_speed_and_no_final_accuracy() -> None:
    whole = run("a")
    failed, bare = replace(whole, state="failed"), replace(whole, epochs=whole.epochs[:3])
    limited = replace(bare, settings={**bare.settings, "max_steps": 5})

    ends = [of(one)[0].ended_with("eval_top1") for one in (whole, failed, bare, limited)]

    assert ends == [Measured(0.9, 0.9, 0.9), None, None, Measured(0.9, 0.9, 0.9)]
    assert of(failed)[0].images_per_s == Measured(1000, 1000, 1000)


def test_a_series_of_runs_that_differ_in_how_long_they_train_is_called_by_what_they_share() -> None:
    """A name that none of its points has, as each says in its own for how long it trains."""
    found = of(run("a", 1, lr=1), run("b", 2, 50, epochs=3, max_steps=5), run("c", 4, 25, epochs=4, max_steps=10))

    one = only(scaling(found))

    assert (one.label, one.counts) == ("ddp, bf16", (1, 2, 4))


# ---- accuracy against the global batch, and what remedies give back

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
