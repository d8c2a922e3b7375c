"""launch.core.estimate: what it expects of trainings on the catalog's machines."""

from dataclasses import replace
from itertools import pairwise
from math import inf
from typing import Any

import pytest

from launch.core import catalog
from launch.core.estimate.calibrate import Measured, calibrate
from launch.core.estimate.forecast import CACHE_SHARE, Forecast, forecast
from launch.core.estimate.formulas import Layout
from launch.core.estimate.rates import cost, rates_of, table
from launch.core.estimate.training import Images, Timeline, training
from trainer.config import TrainConfig


def expect(name: str, nodes: int = 1, **settings: Any) -> Forecast:
    instance = catalog.find(name)
    return forecast(training(TrainConfig(**settings), instance, nodes), instance)


IMAGENET = {"model": "resnet18", "dataset": "imagenet", "batch_size": 256}
CIFAR = {"model": "resnet18", "dataset": "cifar10", "batch_size": 128}


def test_imagenet_on_a_g5_2xlarge_waits_for_its_disk_and_eight_fast_gpus_for_jpegs() -> None:
    guess = expect("g5.2xlarge", **IMAGENET)

    assert (guess.limit, guess.source) == ("EBS", "published")
    assert guess.images_per_s == pytest.approx(106.25e6 / 110e3)  # 966 images/s
    assert expect("p4d.24xlarge", **IMAGENET).limit == "JPEG decoding"


def test_images_that_grow_shorten_the_job_and_not_the_epoch_that_is_shown() -> None:
    """Five epochs of 128, 152, 176, 200 and 224 px, where the GPU alone limits: shares of the pixels, added up."""
    own = {"model": "resnet50", "dataset": "imagefolder", "batch_size": 256, "epochs": 5, "eval_every": 5}
    small = Images(1_000_000, 30_000.0, 1, is_small=True)
    instance = catalog.find("g5.2xlarge")
    full, grown = (forecast(training(TrainConfig(**own, **more), instance, 1, images=small), instance)
                   for more in ({}, {"image_size_start": 128}))  # fmt: skip

    assert full.limit == "compute"
    boot = full.hours - 5 * full.epoch_s / 3600
    pixels = sum((side / 224) ** 2 for side in (128, 152, 176, 200, 224)) / 5
    assert (grown.hours - boot) / (full.hours - boot) == pytest.approx(pixels, rel=0.01)
    assert (grown.epoch_s, grown.images_per_s) == (full.epoch_s, full.images_per_s)
    assert any("while images grow from 128 px" in note for note in grown.notes)


def test_cifar_at_batch_128_is_slower_on_two_nodes_of_10_gbit_than_on_one_unless_it_sends_less() -> None:
    one, two = expect("g5.2xlarge", 1, **CIFAR), expect("g5.2xlarge", 2, **CIFAR)

    assert two.epoch_s > one.epoch_s
    assert two.limit == "the network"
    assert two.efficiency < 0.5
    assert expect("g5.2xlarge", 2, **CIFAR, comm_hook="bf16").epoch_s < 0.7 * two.epoch_s
    assert expect("g5.2xlarge", 2, **CIFAR | {"batch_size": 1024}).epoch_s < 0.5 * two.epoch_s


def test_more_nodes_wait_a_little_for_the_slowest_and_never_scale_better_than_perfectly() -> None:
    guesses = [expect("g5.12xlarge", nodes, **IMAGENET) for nodes in (1, 2, 4, 8, 16)]

    images = [guess.images_per_s for guess in guesses]
    assert images == sorted(images)
    assert all(1 < later.step.compute_s / earlier.step.compute_s < 1.02 for earlier, later in pairwise(guesses))
    assert all(later <= 2.001 * earlier for earlier, later in pairwise(images))
    efficiencies = [guess.efficiency for guess in guesses]
    assert efficiencies == sorted(efficiencies, reverse=True)


def test_every_type_has_a_forecast_within_its_range() -> None:
    for name in [one.name for one in catalog.load().values() if one.half_tflops or not one.is_gpu]:
        guess = expect(name, 2, **CIFAR)

        low, high = guess.epoch_range_s
        assert 0 < low <= guess.epoch_s <= high
        assert guess.hours_range[0] < guess.hours < guess.hours_range[1]
        assert 0 < guess.efficiency <= 1


def test_a_job_is_as_long_as_its_epochs_its_evaluations_and_its_start() -> None:
    one, ten = expect("g5.2xlarge", **IMAGENET, epochs=1), expect("g5.2xlarge", **IMAGENET, epochs=10)

    assert one.hours == pytest.approx(0.2 + one.epoch_s / 3600)
    assert ten.hours == pytest.approx(0.2 + 10 * one.epoch_s / 3600)
    rarely = expect("g5.2xlarge", **IMAGENET, epochs=10, eval_every=10)
    assert rarely.epoch_s == pytest.approx(one.epoch_s - 0.9 * one.evaluation_s)
    short = expect("g5.2xlarge", **IMAGENET, epochs=10, max_steps=10)
    assert short.hours < 0.25


def test_a_set_that_fits_into_memory_is_read_once() -> None:
    instance, images = catalog.find("g5.2xlarge"), Images(100_000, 110_000.0)  # 10 of its 32 GiB

    one, ten = (
        forecast(training(TrainConfig(**IMAGENET, epochs=epochs), instance, 1, images=images), instance)
        for epochs in (1, 10)
    )

    assert ten.limit == "JPEG decoding"  # and not the disk, which limits the first
    read_s = 100_000 * 110e3 / 106.25e6
    assert one.hours == pytest.approx(0.2 + (read_s + one.evaluation_s) / 3600)
    assert ten.hours == pytest.approx(one.hours + 9 * ten.epoch_s / 3600)


def test_another_image_size_is_scaled_by_its_area_and_says_so() -> None:
    counted, scaled = cost("resnet50", 224), cost("resnet50", 160)

    assert scaled.cost.gflop == pytest.approx(counted.cost.gflop * (160 / 224) ** 2)
    assert (counted.note, "160 px" in scaled.note) == ("", True)


def test_every_rate_says_what_it_is_worth_and_where_it_is_from() -> None:
    def rates(node: Any) -> list[dict[str, Any]]:
        if not isinstance(node, dict):
            return []
        return [node] if "value" in node else [rate for part in node.values() for rate in rates(part)]

    found = rates(table("rates"))

    assert len(found) > 20
    assert {rate["source"] for rate in found} == {"published", "estimated"}
    assert all(rate["from"] and min(rate["range"]) <= rate["value"] <= max(rate["range"]) for rate in found)
    rated = {i.name.split(".")[0] for i in catalog.load().values() if i.half_tflops}
    assert set(table("rates")["families"]) == rated


# ---- from a run


def run(**changes: Any) -> Measured:
    given = Measured(
        name="a-run", model="resnet18", px=32, device="NVIDIA A10G", half=True, layout=Layout(), batch=128,
        accumulate=1, step_s=0.020, wait_s=0.0, communication_s=0.0, images_per_s=6_400.0,
    )  # fmt: skip
    return replace(given, **changes)


def calibrated(name: str, nodes: int, runs: list[Measured], **settings: Any) -> tuple[Forecast, Any]:
    instance = catalog.find(name)
    trained = training(TrainConfig(**settings), instance, nodes)
    found = calibrate(rates_of(instance, trained.cost, trained.kind), trained, instance, runs)
    return forecast(trained, instance, found.rates), found


def test_a_forecast_corrected_by_runs_reproduces_their_median() -> None:
    """Threads of the host are no speed of the GPU."""
    runs = [run(name=f"r{ms}", step_s=ms / 1e3, threads=threads) for ms, threads in ((30, None), (20, 2), (19, None))]

    guess, found = calibrated("g5.2xlarge", 1, runs, **CIFAR)

    assert guess.step.step_s == pytest.approx(0.020)
    assert guess.images_per_s == pytest.approx(6_400)
    assert guess.source == "measured"
    assert len(found.corrections) == 1
    low, high = guess.epoch_range_s
    assert low <= 0.95 * guess.epoch_s < 1.05 * guess.epoch_s <= high


def test_it_learns_the_network_from_runs_on_two_nodes() -> None:
    talking = run(layout=Layout(2, 1), step_s=0.060, communication_s=0.040)
    probes = [replace(talking, name=f"p{n}", all_reduce_per_s=n * 1e9) for n in (10, 2, 0.5)]

    guess, found = calibrated("g5.2xlarge", 4, probes, **CIFAR)

    rate = found.rates.outer_per_s
    assert (rate.value, rate.best, rate.worst, rate.source) == (2e9, 10e9, 0.5e9, "measured")  # the median
    assert guess.step.compute_s == pytest.approx(0.020, rel=0.02)  # four wait longer for the slowest


def test_the_bus_bandwidth_of_nodes_with_several_gpus_gives_their_all_reduce_back() -> None:
    talking = run(layout=Layout(2, 4), step_s=0.2, communication_s=0.1, all_reduce_per_s=1e9)

    guess, found = calibrated("g5.12xlarge", 2, [talking], **CIFAR)

    taken = 2 * 7 / 8 * 44_695_848 / 1e9  # ResNet-18's gradients for ten classes, in bytes
    assert found.rates.outer_per_s.value == 1e9
    assert guess.step.communication_s == pytest.approx(taken, rel=0.02)  # and the hops


def test_it_learns_how_fast_images_come_from_a_run_that_waited() -> None:
    waiting = run(px=224, batch=256, step_s=256 / 296, wait_s=0.7, images_per_s=296.0)

    guess, _ = calibrated("g5.2xlarge", 2, [waiting], **IMAGENET)

    assert guess.images_per_s == pytest.approx(592)
    assert guess.limit == "EBS"


def test_a_run_on_a_cpu_calibrates_its_own_instance_type_only() -> None:
    cpu = run(device="CPU", half=False, step_s=2.0, threads=8, images_per_s=64.0)

    _, elsewhere = calibrated("c5.4xlarge", 1, [replace(cpu, instance_type="c5.2xlarge")], **CIFAR)
    _, unknown = calibrated("c5.4xlarge", 1, [cpu], **CIFAR)
    half_the_threads, _ = calibrated("c5.4xlarge", 1, [replace(cpu, instance_type="c5.4xlarge")], **CIFAR)

    assert [len(found.refused) for found in (elsewhere, unknown)] == [1, 1]
    assert half_the_threads.step.step_s == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"model": "vgg11"}, "vgg11"),
        ({"px": 224}, "224 px"),
        ({"device": "CPU"}, "CPU"),
        ({"device": "NVIDIA A100-SXM4-40GB"}, "NVIDIA A100-SXM4-40GB"),
        ({"half": False}, "32 bits"),
        ({"wait_s": 0.020}, "no time left"),
    ],
)
def test_a_run_that_does_not_fit_changes_nothing_and_says_why(change: dict[str, Any], why: str) -> None:
    guess, found = calibrated("g5.2xlarge", 1, [run(**change)], **CIFAR)

    assert guess == expect("g5.2xlarge", **CIFAR)
    assert why in found.refused[0][1]


def test_a_run_that_shared_its_work_in_another_way_is_no_measurement_of_this_one() -> None:
    two = run(layout=Layout(2, 1), step_s=0.06)
    runs = [replace(two, name=name, sharing=sharing) for name, sharing in (
        ("fsdp", ("fsdp", "none")), ("hook", ("ddp", "bf16")), ("same", ("ddp", "none")), ("old", ("", "")),
    )]  # fmt: skip

    _, found = calibrated("g5.2xlarge", 2, runs, **CIFAR)
    _, alone = calibrated("g5.2xlarge", 1, [run(sharing=("single", "bf16"))], **CIFAR)

    assert [alike.name for alike in found.alike] == ["same", "old"]
    assert len(alone.alike) == 1


def test_a_precision_in_software_says_nothing_of_one_in_hardware() -> None:
    """bf16 on a T4 takes longer than fp32 (test_precision.py), and both are 16 bits."""
    on_t4 = run(device="Tesla T4", precision="bf16", step_s=0.2)

    _, fp16 = calibrated("g4dn.xlarge", 1, [on_t4], **CIFAR)
    _, bf16 = calibrated("g4dn.xlarge", 1, [on_t4], **CIFAR, precision="bf16")
    _, native = calibrated("g5.2xlarge", 1, [run(precision="fp16")], **CIFAR, precision="bf16")

    assert [len(found.refused) for found in (fp16, bf16, native)] == [1, 0, 0]


def test_runs_of_the_very_layout_are_shown_beside_its_forecast() -> None:
    same = [run(images_per_s=speed) for speed in (6_000.0, 6_400.0, 6_500.0)]
    other = run(layout=Layout(2, 1), step_s=0.06, images_per_s=9_000.0)

    _, one = calibrated("g5.2xlarge", 1, [*same, other], **CIFAR)
    _, four = calibrated("g5.2xlarge", 4, [*same, other], **CIFAR)
    elsewhere = replace(same[0], dataset="synthetic")  # which nobody decodes
    _, resident = calibrated("g5.2xlarge", 1, [elsewhere, replace(same[1], dataset="cifar10")], **CIFAR)

    assert [alike.images_per_s for alike in one.alike] == [6_000.0, 6_400.0, 6_500.0]
    assert [alike.images_per_s for alike in resident.alike] == [6_400.0]
    assert four.alike == ()


SLOWLY: list[dict[str, Any]] = [
    {"epochs": 3, "max_steps": 1},
    {"epochs": 40, "max_steps": 9_000, "eval_every": 3},
    {"epochs": 6, "batch_size": None, "batch_ramp": {0: 512, 2: 1024, 5: 4096, 9: 8192}},
]


@pytest.mark.parametrize("settings", SLOWLY, ids=str)
@pytest.mark.parametrize(("name", "nodes"), [("g5.2xlarge", 1), ("g5.48xlarge", 2), ("p4d.24xlarge", 4)])
def test_a_job_takes_as_long_as_its_epochs_one_by_one(name: str, nodes: int, settings: dict[str, Any]) -> None:
    """ImageNet fits into the memory of the larger ones: from epoch to epoch less of it is read from disk."""
    given = {**IMAGENET, **settings}
    instance = catalog.find(name)
    trained = training(TrainConfig(**{k: v for k, v in given.items() if v is not None}), instance, nodes)
    rates = rates_of(instance, trained.cost, trained.kind)
    course = Timeline(trained, rates.at("value"), "value", trained.data.gib < CACHE_SHARE * instance.memory_gib)
    total, left = 0.0, float(trained.config.max_steps or inf)
    for epoch in range(trained.config.epochs):
        updates = min(left, trained.updates(epoch))
        total += updates * course.step(epoch, course.uncached(epoch)).step_s
        total += trained.evaluating * course.evaluation_s()
        left -= updates
        if left <= 0:
            break

    assert course.job_s() == pytest.approx(total)
