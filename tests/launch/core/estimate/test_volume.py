"""launch.core.estimate.volume: the EBS volumes that data are read from, and how fast they are."""

import pytest

from launch.core import catalog
from launch.core.estimate.volume import Promise, data_volume, io2_volume, promise
from launch.core.price import Volume


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
