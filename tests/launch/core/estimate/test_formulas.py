"""launch.core.estimate.formulas: the arithmetic of one update, by hand."""

import pytest

from launch.core.estimate.formulas import Layout, Speeds, Work, all_reduce_s, ring_s, step

MB = 1e6
ONE, TWO, FOUR = Layout(), Layout(1, 2), Layout(1, 4)


@pytest.mark.parametrize(
    ("ranks", "seconds"),
    # 44.7 MB in fp32 over 10 Gbit/s: 36, 54, 63 ms.
    [(1, 0.0), (2, 0.03576), (4, 0.05364), (8, 0.06258)],
)
def test_a_ring_moves_two_times_n_minus_1_over_n_of_the_bytes(ranks: int, seconds: float) -> None:
    assert ring_s(ranks, 44.7 * MB, 1.25e9) == pytest.approx(seconds)


def test_an_all_reduce_is_one_ring_through_all_ranks_as_fast_as_its_slowest_link() -> None:
    speeds = Speeds(0.0, inner_per_s=10e9, inner_hop_s=1e-5, outer_per_s=1e9, outer_hop_s=1e-4)

    # 8 ranks send 2 * 7/8 of 100 MB over 1 GB/s; of the 14 hops, 2 are between the machines.
    assert all_reduce_s(Layout(2, 4), 100 * MB, speeds) == pytest.approx(0.175 + 12e-5 + 2e-4)
    assert all_reduce_s(Layout(1, 4), 100 * MB, speeds) == pytest.approx(0.015 + 6e-5)
    assert all_reduce_s(Layout(4, 1), 100 * MB, speeds) == pytest.approx(0.150 + 6e-4)


def test_the_backward_pass_hides_all_but_the_last_bucket() -> None:
    work = Work(batch=128, wire_bytes=44.8 * MB)

    taken = step(work, Speeds(0.260 / 128, inner_per_s=1e9), TWO)

    assert taken.communication_s == pytest.approx(0.0448)
    assert taken.exposed_s == pytest.approx(0.0262144)  # 25 MiB
    assert taken.step_s == pytest.approx(0.2862144)
    assert taken.limit == "compute"


def test_what_takes_longer_than_the_backward_pass_shows() -> None:
    taken = step(Work(batch=1, wire_bytes=100 * MB), Speeds(0.030, inner_per_s=1e9), TWO)

    assert taken.exposed_s == pytest.approx(0.100 - 0.020)
    assert taken.limit == "the interconnect"


def test_one_gpu_talks_to_nobody() -> None:
    taken = step(Work(batch=1, wire_bytes=100 * MB, strategy="single"), Speeds(0.03, inner_per_s=1e9), ONE)

    assert (taken.communication_s, taken.step_s) == (0.0, 0.03)


def test_small_batches_wait_for_the_host() -> None:
    taken = step(Work(batch=2), Speeds(0.001, pass_s=0.009), ONE)

    assert (taken.step_s, taken.limit) == (0.009, "kernel launches")


def test_accumulated_passes_send_once() -> None:
    speeds = Speeds(0.001, update_s=0.002, inner_per_s=1e9)

    taken = step(Work(batch=10, accumulate=4, wire_bytes=30 * MB), speeds, TWO)

    assert taken.compute_s == pytest.approx(0.042)
    assert taken.communication_s == pytest.approx(0.030)


@pytest.mark.parametrize(
    ("speeds", "limit", "seconds"),
    [
        (Speeds(0.001, decoded_per_s=100), "JPEG decoding", 0.4),
        (Speeds(0.001, read_per_s=1 * MB), "EBS", 4.0),
        (Speeds(0.001, decoded_per_s=10_000, read_per_s=1000 * MB), "compute", 0.01),
    ],
)
def test_a_step_takes_as_long_as_the_slowest_of_input_and_compute(speeds: Speeds, limit: str, seconds: float) -> None:
    taken = step(Work(batch=10, image_bytes=0.1 * MB), speeds, FOUR)  # 40 images, 4 MB

    assert taken.limit == limit
    assert taken.step_s == pytest.approx(seconds)


def test_what_memory_keeps_is_not_read_again() -> None:
    work, speeds = Work(batch=10, image_bytes=0.1 * MB), Speeds(0.001, read_per_s=1 * MB)

    assert step(work, speeds, FOUR, uncached=0.0).limit == "compute"
    assert step(work, speeds, FOUR, uncached=0.5).step_s == pytest.approx(2.0)


def test_a_network_that_only_bursts_slows_down_to_its_base() -> None:
    speeds = Speeds(0.001, outer_per_s=1e9, lasting_per_s=0.25e9)

    taken = step(Work(batch=10, wire_bytes=50 * MB), speeds, Layout(2, 1))

    assert taken.step_s == pytest.approx(0.2)
    assert taken.limit == "the network"


def test_the_slowest_link_of_a_ring_is_the_one_that_is_named() -> None:
    work, between = Work(batch=1, wire_bytes=100 * MB), Layout(2, 4)

    assert step(work, Speeds(0.001, inner_per_s=1e9, outer_per_s=5e9), between).limit == "the interconnect"
    assert step(work, Speeds(0.001, inner_per_s=5e9, outer_per_s=1e9), between).limit == "the network"
    # One GPU a machine has nobody to talk to within it.
    assert step(work, Speeds(0.001, inner_per_s=1e9, outer_per_s=5e9), Layout(2, 1)).limit == "the network"


def test_the_other_strategies_send_more() -> None:
    speeds, work = Speeds(0.0001, inner_per_s=1e9), {"batch": 1, "wire_bytes": 50 * MB}

    ddp, fsdp, dp = (step(Work(strategy=name, **work), speeds, FOUR) for name in ("ddp", "fsdp", "dp"))  # type: ignore[arg-type]

    assert ddp.communication_s == pytest.approx(0.075)
    assert fsdp.communication_s == pytest.approx(0.1125)
    assert dp.exposed_s == pytest.approx(0.1)
