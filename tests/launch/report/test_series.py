"""Which runs belong together, what they are called, and what follows for speedup and efficiency."""

from dataclasses import replace
from itertools import pairwise

import pytest

from launch.core.drawing.charts import Measured
from launch.core.runs import Run
from launch.report.points import Point, points
from launch.report.series import Series, efficiency, named, scaling, series, speedup
from tests.launch.report.made import SCALED, run


def of(*runs: Run) -> list[Point]:
    return named(points(runs))


def only(found: list[Series]) -> Series:
    (one,) = found
    return one


def test_the_first_epoch_does_not_count() -> None:
    (point,) = of(run("a"))

    assert point.images_per_s == Measured(1000, 1000, 1000)
    assert point.measured("epoch_s") == Measured(10, 10, 10)


def test_the_same_batch_per_gpu_is_weak_scaling_and_the_same_in_all_is_strong() -> None:
    found = of(run("a", 1, 100), run("b", 2, 100), run("c", 2, 50), run("d", 4, 25))

    weak, strong = only(series(found, "weak")), only(series(found, "strong"))
    assert (weak.batch, weak.counts) == (100, (1, 2))
    assert (strong.batch, strong.counts) == (100, (1, 2, 4))
    assert strong.title("GPU") == "ddp, bf16, 100 per update"
    assert weak.title("CPU rank") == "ddp, bf16, 100 per rank"


def test_speedup_and_efficiency_are_those_of_amdahls_law() -> None:
    one = only(series(of(*SCALED), "weak"))

    speedups = [speedup(point, one.base) for point in one.points]
    shares = [efficiency(point, one.base) for point in one.points]
    assert [found.value for found in speedups if found] == pytest.approx([1, 1.8182, 3.0769, 4.7059], abs=1e-4)
    assert [found.value for found in shares if found] == pytest.approx([100, 90.909, 76.923, 58.824], abs=1e-3)


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


def test_nodes_that_only_continue_a_series_do_not_split_it() -> None:
    one = only(series(of(run("a"), run("b", 4), run("c", 8, nodes=2)), "weak"))

    assert one.counts == (1, 4, 8)


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


def test_series_with_more_numbers_of_gpus_come_first() -> None:
    runs = [*SCALED, run("a", 1, precision="fp32"), run("b", 2, precision="fp32")]

    counts = [len(one.points) for one in scaling(of(*runs))]

    assert counts[0] == 4
    assert all(before >= after for before, after in pairwise(counts))


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
