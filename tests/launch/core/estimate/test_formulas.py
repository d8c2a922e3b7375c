"""launch.core.estimate: the arithmetic of one update, and of the volumes that data are read from, by hand."""

import pytest

from launch.core import catalog
from launch.core.estimate.formulas import Layout, Speeds, Work, all_reduce_s, ring_s, step
from launch.core.estimate.volume import Promise, data_volume, io2_volume, promise
from launch.core.price import Volume

# ---- formulas


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


# ---- volume


@pytest.mark.parametrize(
    ("name", "mib_per_s", "iops"),
    [
        ("g5.2xlarge", 417, 3000),  # 437.5 MB/s
        ("g6.2xlarge", 596, 3000),  # 625 MB/s
        ("g5.12xlarge", 1907, 7628),  # 2000 MB/s, four times as many I/Os as MiB
        ("p4d.24xlarge", 2000, 8000),  # 2375 MB/s, more than gp3 has
        ("p5.48xlarge", 2000, 8000),
    ],
)
def test_a_volume_is_as_fast_as_its_instance_reads(name: str, mib_per_s: int, iops: int) -> None:
    assert data_volume(catalog.find(name), 150) == Volume(
        gib=150, kind="gp3", throughput_mib_per_s=mib_per_s, iops=iops
    )


def test_every_volume_is_one_that_aws_sells() -> None:
    volumes = {instance.name: data_volume(instance, 150) for instance in catalog.load().values()}

    assert [name for name, one in volumes.items() if not 125 <= one.throughput_mib_per_s <= 2000] == []
    assert [name for name, one in volumes.items() if not 3000 <= one.iops <= 80_000] == []
    assert [name for name, one in volumes.items() if one.throughput_mib_per_s > one.iops / 4] == []


def test_one_volume_for_all_has_a_fixed_number_of_ios_and_at_least_4_gib() -> None:
    """https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_CreateVolume.html, Size."""
    assert io2_volume(150) == Volume(gib=150, kind="io2", iops=16_000, throughput_mib_per_s=0)
    assert io2_volume(1) == Volume(gib=4, kind="io2", iops=2_000, throughput_mib_per_s=0)
    assert io2_volume(0).gib == 0  # of a snapshot that was not looked up


def test_io2_gives_a_quarter_of_a_mib_an_operation_up_to_4000() -> None:
    """0.256 MiB/s: https://docs.aws.amazon.com/ebs/latest/userguide/provisioned-iops.html."""
    assert promise(io2_volume(150)) == Promise(4000, 16_000, is_shared=True)
    assert promise(io2_volume(4)) == Promise(0.256 * 2000, 2000, is_shared=True)


def test_an_image_takes_an_operation_and_a_large_one_several() -> None:
    """AWS counts 256 KiB as one: https://docs.aws.amazon.com/ebs/latest/userguide/ebs-io-characteristics.html."""
    gp3 = promise(data_volume(catalog.find("g5.2xlarge"), 150))

    assert gp3.bytes_per_s(30_000, nodes=4) == 3000 * 30_000
    assert gp3.bytes_per_s(10e6, nodes=4) == 417 * 2**20
    assert (gp3.limits_operations(30_000), gp3.limits_operations(10e6)) == (True, False)


def test_what_all_nodes_read_is_divided_among_them() -> None:
    """https://docs.aws.amazon.com/ebs/latest/userguide/ebs-multi-attach-perf.html."""
    assert promise(io2_volume(150)).bytes_per_s(30_000, nodes=8) == 2000 * 30_000
