"""What publishing takes and costs here and by an instance: figures that can be checked by hand, and the room."""

import pytest

from launch.core import catalog
from launch.data.costs import BLOCK_S, TYPES, Machine, Work, compare, estimate, fits, machine_of, work_of
from launch.data.options import PublishOptions

GB = 10**9
IMAGENET = work_of(155 * GB, 3, are_archives=True, is_prepared=False, resized=True)


def test_an_estimate_in_round_numbers() -> None:
    """100 blocks a second, 100 MB/s, one image a vCPU and hundredth of a second."""
    machine = Machine("round", 1, 100e6, 100e6, connections=10, starts_s=10, usd_per_hour=36.0, usd_per_gb=1.0)
    stored = 92 * 512 * 1024  # and 8 blocks of the file system's own
    found = estimate(Work(1 * GB, 300, 2_500, stored), machine)

    assert BLOCK_S == 0.1
    assert {name: round(value, 2) for name, value in found.seconds.items()} == {
        "copy to S3": 0.0, "start": 10.0, "fetch": 10.0, "prepare": 10.0, "upload": 0.48, "file system": 0.48,
        "snapshot": 121.0, "compare": 1.0,
    }  # fmt: skip
    assert found.once_usd["instance"] == pytest.approx(found.total_s / 100)
    assert found.once_usd["snapshot"] == pytest.approx(100 * (0.006 + 0.003) / 1000)
    assert found.once_usd["traffic"] == pytest.approx(1 + 100 * 512 * 1024 / GB)


@pytest.mark.parametrize(
    ("work", "mbit_s", "hours_here", "usd_here", "hours_there", "usd_there", "cheaper"),
    [
        (IMAGENET, 100, 6.8, 18.95, 0.53, 1.03, "instance"),
        (IMAGENET, 10_000, 0.6, 18.95, 0.53, 1.03, "instance"),
        (work_of(GB // 20, 500, are_archives=False, is_prepared=False, resized=True), 100, 0.036, 0.01, 0.1, 0.02,
         "here"),
        (work_of(40 * GB, 700, are_archives=False, is_prepared=True, resized=False), 100, 3.75, 8.0, 0.35, 0.8,
         "instance"),
    ],
    ids=["ImageNet at home", "ImageNet in a data centre", "a few photos", "shards"],
)  # fmt: skip
def test_here_and_an_instance_are_compared(
    work: Work, mbit_s: float, hours_here: float, usd_here: float, hours_there: float, usd_there: float, cheaper: str
) -> None:
    compared = compare(PublishOptions(upload_mbit_s=mbit_s), work, 8)

    assert compared.instance is not None
    assert compared.here.total_s / 3600 == pytest.approx(hours_here, rel=0.1)
    assert compared.here.total_usd == pytest.approx(usd_here, rel=0.1, abs=0.01)
    assert compared.instance.total_s / 3600 == pytest.approx(hours_there, rel=0.15)
    assert compared.instance.total_usd == pytest.approx(usd_there, rel=0.15)
    assert compared.cheaper == cheaper


def test_a_folder_here_is_copied_to_s3_first_for_an_instance() -> None:
    compared = compare(PublishOptions(), IMAGENET, 8, is_local=True)

    assert compared.instance is not None
    assert compared.here.seconds["fetch"] == 0.0
    assert compared.here.once_usd["traffic"] == pytest.approx(46.5 * 0.09, rel=0.01)
    assert compared.instance.seconds["copy to S3"] == 155 * GB / 12.5e6
    assert compared.instance.once_usd["instance"] < 0.3  # which does not run meanwhile


def test_the_parts_of_an_estimate_add_up_to_its_total() -> None:
    (mine, other) = compare(PublishOptions(), IMAGENET, 8).rates

    assert (mine.name, other.name, other.value["machine"]) == ("by_here", "by_instance", "c6id.2xlarge")
    assert sum(other.value["seconds_by_step"].values()) == pytest.approx(other.value["seconds"], abs=5)
    assert sum(other.value["usd_by_part"].values()) == pytest.approx(other.value["usd"], abs=0.001)


@pytest.mark.parametrize(
    ("gb", "expected"),
    [(10, "c6id.xlarge"), (200, "c6id.2xlarge"), (300, "c6id.4xlarge"), (1_500, "i4i.4xlarge"), (2_000, None)],
)
def test_the_instance_has_room_for_everything(gb: int, expected: str | None) -> None:
    work = work_of(gb * GB, 3, are_archives=True, is_prepared=False, resized=True)
    compared = compare(PublishOptions(), work, 8)

    assert (compared.instance.machine.name if compared.instance else None) == expected
    assert expected is None or fits(catalog.find(expected), work)


def test_images_that_are_kept_need_room_for_three_copies() -> None:
    kept = work_of(100 * GB, 3, are_archives=True, is_prepared=False, resized=False)
    resized = work_of(100 * GB, 3, are_archives=True, is_prepared=False, resized=True)
    small = work_of(GB, 100_000, are_archives=False, is_prepared=False, resized=True)  # of 10 kB each

    assert (kept.room, resized.room, small.stored) == (330 * GB, 220 * GB, GB)


def test_every_type_is_in_the_catalog_with_its_disks_and_its_price() -> None:
    for name in TYPES:
        instance = catalog.find(name)
        machine = machine_of(instance, instance.usd_per_hour)
        assert instance.nvme_gb > 200
        assert machine.usd_per_hour > instance.usd_per_hour  # with its root volume
