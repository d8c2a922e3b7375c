"""Folders of runs whose true answer is known, unlike a textbook's: what the report concludes of them."""

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from launch.core.drawing.charts import Lines, Measured
from launch.core.estimate.laws import gustafson
from launch.core.runs import Run
from launch.report.charts import all_scaling
from launch.report.cost import priced, to_target
from launch.report.findings import Findings, find, sentences, title
from launch.report.page import tiles
from launch.report.points import median_of, points
from launch.report.series import series, speedup
from launch.report.tables import of_points, of_series
from tests.launch.report.made import RATE, run
from trainer.errors import SettingsError


def strong(n: int, total: int = 800, rate: float | None = None, **settings: object) -> Run:
    return run(f"s{n}", n, total // n, rate=rate, **settings)  # type: ignore[arg-type]


def with_rates(one: Run, *rates: float) -> Run:
    """The run with an epoch of each rate."""
    last = one.epochs[-1]
    return replace(one, epochs=tuple({**last, "epoch": n, "images_per_s": r} for n, r in enumerate(rates, 1)))


def text(found: Findings) -> str:
    return "\n".join([title(found), *sentences(found)])


def test_weak_scaling_at_a_constant_ninety_percent_has_no_ceiling() -> None:
    runs = [run("w1"), *[run(f"w{n}", n, rate=0.9 * n * RATE) for n in (2, 4, 8, 16)]]

    found = find(runs)

    assert "no number of" not in text(found)
    assert "Amdahl" not in text(found)
    (law,) = [law for _, law in found.laws]
    assert law.name == "Gustafson"
    assert 1 - law.serial == pytest.approx(0.9, abs=0.02)
    assert law.worst < 0.05


def test_gustafsons_law_gives_back_the_serial_part_it_was_made_with() -> None:
    found = gustafson([(n, 1000 * (0.08 + 0.92 * n)) for n in (1, 2, 4, 8)])

    assert found is not None
    assert (found.serial, found.one, found.worst) == (pytest.approx(0.08), pytest.approx(1000), pytest.approx(0))
    assert found.speed(100) == pytest.approx(1000 * 92.08)
    assert gustafson([(2, 5.0)]) is None
    faster, slower = gustafson([(1, 1.0), (2, 2.2)]), gustafson([(1, 1.0), (2, 0.9)])
    assert faster is not None
    assert slower is not None
    assert (faster.serial, slower.serial) == (0, 1)


def test_strong_scaling_keeps_amdahls_ceiling() -> None:
    found = find([strong(n, rate=RATE / (0.1 + 0.9 / n)) for n in (1, 2, 4, 8)])

    (law,) = [law for _, law in found.laws]
    assert law.name == "Amdahl"
    assert law.limit == pytest.approx(10)
    assert "no number of GPUs is more than 10.0" in text(found)


def test_a_run_resumed_on_other_gpus_counts_those_of_its_last_layout() -> None:
    """Both runs are ideal; the second began on one GPU, and its first epoch on two is half of each."""
    moved = run("moved", 2, 50, epochs=5)
    before = run("before", 1, 100, epochs=2)
    mixed = {**moved.epochs[1], "images_per_s": 1400.0}
    resumed = replace(moved, epochs=(*before.epochs, mixed, *moved.epochs[1:]))

    found = find([run("alone"), resumed])

    fast = speedup(found.series[0].points[-1], found.series[0].base)
    assert fast == Measured(2, 2, 2)
    assert "100% efficiency" in title(found)


def test_a_ramp_is_measured_at_its_last_batch() -> None:
    slow, fast = run("slow", 2, 100, rate=2000), run("fast", 2, 400, rate=2658)
    ramp = replace(fast, epochs=(*slow.epochs, *fast.epochs), settings={**fast.settings, "batch_ramp": "0:200,4:800"})

    (point,) = points([ramp])

    assert point.images_per_s == Measured(2658, 2658, 2658)
    assert point.per_update == 800


def test_a_speedups_range_has_the_baselines_range_in_it() -> None:
    base = with_rates(run("one"), 500, 886, 1000, 1095)
    two = with_rates(run("two", 2), 900, 1900, 1970, 1900 * 1.02)

    found = find([base, two])

    one = found.series[0]
    fast = speedup(one.points[-1], one.base)
    assert fast is not None
    assert (fast.low, fast.high) == (pytest.approx(1900 / 1095), pytest.approx(1970 / 886))


def test_the_best_series_is_the_one_with_the_most_images_a_second() -> None:
    """Not the one that scales best, nor the one on the most GPUs."""
    half = [run("h1", rate=1000), run("h4", 4, rate=3400)]
    full = [run(f"f{n}", n, rate=300 * n, precision="fp32") for n in (1, 4, 8)]

    found = find([*full, *half])

    assert "bf16" in found.best.label  # type: ignore[union-attr]
    assert "3,400 on 4" in sentences(found)[0]


def test_a_baseline_with_an_ambiguous_name_needs_a_folder() -> None:
    one, other = run("g1"), run("g1", rate=2500, precision="fp32")
    runs = [replace(one, folder=one.folder / "a"), replace(other, folder=other.folder / "b"), run("g2", 2)]

    with pytest.raises(SettingsError, match=r"--baseline g1 is the name of several runs; give the folder of one: g1/a"):
        find(runs, "g1")
    assert "100% efficiency" in title(find(runs, "g1/a"))


def test_a_baseline_of_another_batch_is_refused() -> None:
    runs = [run("tiny", 1, 8, rate=200), run("a", accuracy=None), run("b", 2, accuracy=None)]

    with pytest.raises(SettingsError, match="--baseline tiny trained 8 images per GPU"):
        find([replace(one, epochs=tuple({**e, "eval_top1": None} for e in one.epochs)) for one in runs], "tiny")


def test_a_layout_of_its_own_takes_what_only_it_has() -> None:
    spread = [run("2x1", 2, nodes=2, rate=1500), run("16x1", 16, nodes=16, rate=9000)]

    found = series([*points([run("1"), run("2", 2), *spread])], "weak")

    assert {one.counts for one in found} == {(1, 2, 16)}
    assert {tuple(p.nodes for p in one.points) for one in found} == {(1, 1, 16), (1, 2, 16)}


@pytest.mark.parametrize("settings", [
    [{"lr": 0.1}, {"lr": 0.2}, {"lr": 0.4}],
    [{"epochs": 3}, {"epochs": 4}, {"epochs": 6}],
    [{"warmup_epochs": 1.0}, {"warmup_epochs": 2.0}, {"eval_every": 2}],
])  # fmt: skip
def test_what_only_changes_learning_does_not_split_speed(settings: Sequence[dict[str, object]]) -> None:
    runs = [run(f"g{n}", n, **own) for n, own in zip((1, 2, 4), settings, strict=True)]  # type: ignore[arg-type]

    (one,) = series(points(runs), "weak")

    assert one.counts == (1, 2, 4)


def test_a_copied_sweep_is_no_repetition() -> None:
    runs = [with_rates(run("a"), 500, 990, 1010), with_rates(run("b", 2), 900, 1980, 1990)]
    copies = [replace(one, folder=one.folder / "copy", name=f"{one.name}-copy") for one in runs]

    found = find([*runs, *copies])

    assert [len(point.runs) for point in found.points] == [1, 1]
    assert "2 runs are copies of others and count once: a-copy, b-copy." in sentences(found)


def test_single_runs_are_marked_and_repetitions_have_an_interval() -> None:
    seeds = [run(f"r{seed}", 2, rate=1800 + 10 * seed, seed=seed) for seed in range(1, 10)]

    found = find([run("a"), *seeds])

    assert "1 of its 2 points rest on a single run" in text(found)
    two = found.series[0].points[1].images_per_s
    assert two is not None
    assert 1810 < two.low < two.value < two.high < 1890


@pytest.mark.parametrize("count", [3, 6, 12, 25])
def test_the_interval_is_that_of_scipys_bootstrap(count: int) -> None:
    from numpy import median
    from scipy.stats import bootstrap  # takes a second to import

    values = [100 + (7 * n * n) % 23 + 0.1 * n for n in range(count)]

    found = median_of(values)

    theirs = bootstrap((values,), median, method="percentile", rng=1, n_resamples=4000)
    assert found is not None
    assert found.low == pytest.approx(theirs.confidence_interval.low, abs=1.5)
    assert found.high == pytest.approx(theirs.confidence_interval.high, abs=1.5)


@pytest.mark.parametrize("rates", [(1000, 1667, 2000, 1250), (1000, 1900, 3300, 3400, 2500)])
def test_speeds_that_fall_again_follow_no_law_and_have_no_limit(rates: tuple[float, ...]) -> None:
    counts = [2**place for place in range(len(rates))]
    runs = [run(f"g{n}", n, 800 // n, rate=rate) for n, rate in zip(counts, rates, strict=True)]

    found = find(runs)
    said = " ".join(sentences(found))

    fastest = max(zip(rates, counts, strict=True))
    assert f"The fastest of it are {fastest[1]} GPUs, with {fastest[0]:,} images/s." in said
    assert "Amdahl's law does not describe these speeds: it is off by up to 3" in said
    assert "no number of GPUs" not in said
    assert "Serial part" not in [name for name, _, _ in tiles(found)]
    assert [row[-2:] for row in of_series(found).rows] == [("", "")] * len(rates)
    (chart,) = [one for one in all_scaling(found.series, found.laws, "GPU") if getattr(one, "name", "") == "amdahl"]
    assert isinstance(chart, Lines)
    assert not any(line.is_extrapolated for line in chart.lines)


def test_a_law_that_fits_is_drawn_dotted_where_nothing_was_measured() -> None:
    found = find([strong(n, rate=RATE / (0.1 + 0.9 / n)) for n in (1, 2, 4, 8)])

    (chart,) = [one for one in all_scaling(found.series, found.laws, "GPU") if getattr(one, "name", "") == "amdahl"]

    assert isinstance(chart, Lines)
    curves = [(line.points[0][0], line.points[-1][0], line.is_extrapolated) for line in chart.lines if line.is_curve]
    assert curves == [(1, 8, False), (8, 64, True)]
    assert chart.note.startswith("Dotted: extrapolated beyond the most GPUs measured.")


def test_an_update_of_the_same_images_in_fewer_passes_is_strong_scaling() -> None:
    runs = [run(f"g{n}", n, 800 // n, rate=900 * n + 100, accumulate=8 // n, batch_size=100) for n in (1, 2, 4, 8)]

    (one,) = find(runs).series

    assert (one.title("GPU"), one.kind, one.counts) == ("ddp, bf16, 800 per update", "strong", (1, 2, 4, 8))


def test_a_run_resumed_on_other_gpus_costs_what_each_epoch_was_trained_on() -> None:
    small, large = run("x", 1, 100), run("x", 4, 25)
    epochs = (*small.epochs, *[{**epoch, "epoch": epoch["epoch"] + 4, "eval_top1": 0.95} for epoch in large.epochs])
    (mixed,) = priced([replace(large, epochs=epochs, settings={**large.settings, "epochs": 8})], 3.6)

    gpu_seconds = (20 + 3 * 10 + 4) + 4 * (5 + 3 * 2.5 + 4)
    assert mixed.whole_usd == pytest.approx(gpu_seconds / 1000)
    assert to_target(mixed, 90) == (pytest.approx(21.0), pytest.approx(0.021))
    assert to_target(mixed, 95) == (pytest.approx(54 + 6), pytest.approx((54 + 4 * 6) / 1000))
    (plain,) = priced([large], 3.6)
    assert plain.usd is None


@pytest.mark.parametrize("settings", [{"image_size": 128, "image_size_start": 64}, {"image_size_start": 64}])
def test_of_images_that_grow_the_epochs_at_full_size_count(settings: dict[str, object]) -> None:
    """trainer/config.py: the last two of ten epochs have all pixels, and the first of those tunes cuDNN anew."""
    one = run("g1", epochs=10, **settings)  # type: ignore[arg-type]
    grown = with_rates(one, 2000, *[4000] * 2, *[3000] * 2, *[2000] * 3, 900, 1000)

    (point,) = points([grown])

    assert point.images_per_s
    assert point.images_per_s.value == 1000
    assert grown.is_warm


def test_who_reaches_a_target_with_some_seeds_only_is_marked() -> None:
    lucky = [run(f"s{seed}", accuracy=accuracy, seed=seed, usd_per_hour=1.0)
             for seed, accuracy in enumerate((0.9, 0.8, 0.8))]  # fmt: skip
    sure = [run(f"b{seed}", 1, 200, rate=900, seed=seed, usd_per_hour=2.0) for seed in (0, 1)]

    said = sentences(find([*lucky, *sure], target=85))

    there = [line for line in said if "to 85%" in line]
    assert [line.startswith(start) for line, start in zip(there, ("Fastest", "Cheapest"), strict=True)] == [True, True]
    assert all(line.endswith("100 images per GPU; 1 of its 3 runs reached it).") for line in there)
    assert "got there" not in " ".join(sentences(find(sure, target=85)))


def seeds(name: str, batch: int, *accuracies: float) -> list[Run]:
    return [run(f"{name}{seed}", 1, batch, accuracy=one, seed=seed) for seed, one in enumerate(accuracies)]


def test_a_gap_within_the_range_of_seeds_is_marked() -> None:
    small = seeds("small", 128, 0.88, 0.9, 0.92)

    near = " ".join(sentences(find([*small, *seeds("big", 8192, 0.87, 0.88, 0.89)])))
    far = " ".join(sentences(find([*small, *seeds("big", 8192, 0.8, 0.81, 0.82)])))

    assert "loses 2.0 points, against 90.0% with 128. With the ranges of their seeds the accuracies overlap" in near
    assert "loses 9.0 points, against 90.0% with 128." in far
    assert "overlap" not in far


@pytest.mark.parametrize(("count", "holds"), [(2, 0.5), (3, 0.75)])
def test_the_page_says_how_seldom_the_range_of_few_seeds_holds(count: int, holds: float) -> None:
    draw = random.Random(1)
    ranges = [median_of(draw.gauss(0, 1) for _ in range(count)) for _ in range(200)]
    share = sum(one is not None and one.low <= 0 <= one.high for one in ranges) / len(ranges)

    assert share == pytest.approx(holds, abs=0.08)
    assert f"for {'two' if count == 2 else 'three'} in {holds:.0%}" in of_points(find([run("a")])).caption
