"""launch.ec2.checks: what is refused before anything is asked of AWS, what is chosen, and what it costs."""

from pathlib import Path
from typing import Any

import pytest

from launch.core import catalog
from launch.core.job import Job
from launch.core.price import Volume, usd, usd_per_hour
from launch.ec2.checks import Resolved, data_volume, highest_usd, hourly_usd, in_container, io2_volume, resolve
from launch.ec2.machines import initialization_rate
from launch.ec2.options import Ec2Options
from launch.ec2.quotas import quota_of
from trainer.config import TrainConfig
from trainer.errors import SettingsError


def job(dataset: str = "digits", train: dict[str, Any] | None = None, **where: Any) -> Job[Ec2Options]:
    return Job(TrainConfig(dataset=dataset, **(train or {})), Ec2Options.model_validate(where))


def resolved(dataset: str = "digits", **where: Any) -> Resolved:
    return resolve(job(dataset, **where))


def refusal(asked: Job[Ec2Options]) -> str:
    with pytest.raises(SettingsError) as caught:
        resolve(asked)
    assert caught.value.code == 2
    return str(caught.value)


@pytest.mark.parametrize(
    ("where", "sentence"),
    [
        ({"nodes": 65}, "--nodes 65 is over --max-nodes 64; raise it if you mean it."),
        (
            {"job_name": "my_job"},
            "--job-name my_job: at most 48 letters, digits and hyphens, with a letter or digit at both ends.",
        ),
        ({"instance_type": ""}, "--instance-type names no type; give for example g5.2xlarge."),
        (
            {"instance_type": "ml.g5.2xlarge"},
            "--instance-type ml.g5.2xlarge is SageMaker's name; EC2 calls it g5.2xlarge.",
        ),
        ({"instance_type": "c5.large"}, "--instance-type c5.large has no GPU; give --allow-cpu if you mean it."),
        (
            {"instance_type": "p5e.48xlarge"},
            "p5e.48xlarge is only sold in capacity blocks; buy one, and give its id with --capacity-block.",
        ),
        (
            {"instance_type": "g5.2xlarge", "nproc_per_node": 2},
            "--nproc-per-node 2: g5.2xlarge has 1 GPU; start one process per GPU.",
        ),
        ({"data_s3": "bucket/folder"}, "--data-s3 bucket/folder: must look like s3://bucket/folder."),
        (
            {"data_s3": "s3://b/f", "data_volume": "per-node"},
            "--data-s3 and --data-volume per-node both bring the data; give one of them.",
        ),
        (
            {"data_snapshot": "snap-1", "data_volume": "none"},
            "--data-snapshot needs a volume; leave out --data-volume none.",
        ),
        (
            {"data_volume": "multi-attach", "nodes": 17},
            "--data-volume multi-attach takes at most 16 nodes; take per-node for 17.",
        ),
        (
            {"spot": True, "capacity_reservation": "cr-1"},
            "--spot does not go with a reservation or a capacity block; leave one of them out.",
        ),
        (
            {"spot": True, "capacity_block": "cr-1"},
            "--spot does not go with a reservation or a capacity block; leave one of them out.",
        ),
        (
            {"capacity_reservation": "cr-1", "capacity_block": "cr-2"},
            "--capacity-reservation and --capacity-block exclude each other; leave one out.",
        ),
        (
            {"capacity_reservation": "cr-1", "instance_type": "g5.2xlarge,g6.2xlarge"},
            "a reservation holds one instance type; give one --instance-type.",
        ),
        (
            {"nodes": 2, "max_usd": 29},
            "2 x g5.2xlarge for 12 h may cost 29.48 USD, over --max-usd 29; lower --max-hours or --nodes, or raise "
            "--max-usd.",
        ),
    ],
)
def test_what_cannot_work_is_refused(where: dict[str, Any], sentence: str) -> None:
    assert refusal(job(**where)) == sentence


def test_an_unknown_type_gets_the_nearest_name() -> None:
    assert refusal(job(instance_type="g5.2xlrge")).startswith(
        "unknown instance type 'g5.2xlrge'; did you mean 'g5.2xlarge'? Known: "
    )


def test_the_second_type_is_checked_as_the_first() -> None:
    assert refusal(job(instance_type="g5.2xlarge,c5.large")).startswith("--instance-type c5.large has no GPU")
    assert refusal(job(instance_type="g5.2xlarge,p4d.24xlarge", max_usd=100)).startswith("1 x p4d.24xlarge for 12 h")


@pytest.mark.parametrize("dataset", ["imagenet", "imagefolder"])
def test_a_large_data_set_must_come_from_somewhere(dataset: str) -> None:
    assert refusal(job(dataset, {"data_dir": Path("d")}, data_volume="none")) == (
        f"{dataset} must come from somewhere; give --data-snapshot or --data-s3."
    )


def test_a_batch_that_does_not_divide_among_all_gpus_is_refused() -> None:
    assert refusal(job(train={"global_batch_size": 1024}, nodes=3)) == (
        "a global batch of 1024 does not divide among 3 replicas x 1 accumulated passes; the nearest that does is 1023."
    )
    resolve(job(train={"global_batch_size": 1024}, nodes=4))


def test_a_limit_that_the_job_stays_under_is_no_hindrance() -> None:
    assert resolved(nodes=2, max_usd=29.5).options.max_usd == 29.5


# ---- what is chosen


@pytest.mark.parametrize(
    ("dataset", "where", "chosen"),
    [
        ("digits", {}, "none"),
        ("cifar10", {}, "none"),
        ("imagenet", {}, "per-node"),
        ("imagefolder", {}, "per-node"),
        ("cifar10", {"data_snapshot": "snap-1"}, "per-node"),
        ("imagenet", {"data_s3": "s3://b/f"}, "none"),
        ("imagenet", {"data_volume": "multi-attach", "nodes": 16}, "multi-attach"),
        ("digits", {"data_volume": "per-node"}, "per-node"),
    ],
)
def test_the_data_volume_follows_from_the_data(dataset: str, where: dict[str, Any], chosen: str) -> None:
    asked = job(dataset, {"data_dir": Path("d")} if dataset == "imagefolder" else None, **where)

    assert resolve(asked).data_volume == chosen


@pytest.mark.parametrize(
    ("where", "processes"),
    [
        ({"instance_type": "g5.2xlarge"}, 1),
        ({"instance_type": "g5.12xlarge"}, 4),
        ({"instance_type": "g5.12xlarge", "nproc_per_node": 2}, 2),
        ({"instance_type": "c7i.4xlarge", "allow_cpu": True}, 1),
        ({"instance_type": "c7i.4xlarge", "allow_cpu": True, "nproc_per_node": 8}, 8),
    ],
)
def test_there_is_one_process_per_gpu(where: dict[str, Any], processes: int) -> None:
    chosen = resolved(**where)

    assert chosen.nproc(chosen.instances[0]) == processes


def test_a_capacity_block_may_hold_what_is_only_sold_so() -> None:
    assert resolved(instance_type="p5e.48xlarge", capacity_block="cr-1").instances[0].name == "p5e.48xlarge"


def test_the_training_reads_its_data_where_the_nodes_have_it() -> None:
    for where, folder in (
        ({}, Path("/data")),
        ({"data_s3": "s3://b/f"}, Path("/data")),
    ):
        asked = job("imagenet", **where)
        assert in_container(asked.train, resolve(asked)).data_dir == folder
    small = job("digits")
    assert in_container(small.train, resolve(small)) == small.train


@pytest.mark.parametrize("folder", ["run_dir", "checkpoint_dir"])
def test_the_folders_on_the_nodes_are_not_the_users(folder: str) -> None:
    asked = job(train={folder: Path("here")})

    with pytest.raises(SettingsError, match="--run-dir and --checkpoint-dir are the job folder's on EC2; leave them"):
        in_container(asked.train, resolve(asked))


# ---- how fast the volumes are


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


@pytest.mark.parametrize("instance", catalog.load().values(), ids=lambda i: i.name)
def test_every_volume_is_one_that_aws_sells(instance: catalog.Instance) -> None:
    volume = data_volume(instance, 150)

    assert 125 <= volume.throughput_mib_per_s <= 2000
    assert 3000 <= volume.iops <= 80_000
    assert volume.throughput_mib_per_s <= volume.iops / 4


def test_one_volume_for_all_has_a_fixed_number_of_ios() -> None:
    assert io2_volume(150) == Volume(gib=150, kind="io2", iops=16_000, throughput_mib_per_s=0)


@pytest.mark.parametrize(
    ("nodes", "mib_per_s"), [(1, 300), (2, 300), (16, 300), (17, 294), (50, 100), (51, None), (64, None)]
)
def test_all_volumes_together_stay_within_the_regions_rate(nodes: int, mib_per_s: int | None) -> None:
    assert initialization_rate(nodes) == mib_per_s
    assert nodes * (mib_per_s or 0) <= 5000


# ---- what it costs


@pytest.mark.parametrize(
    ("volume", "usd_per_month"),
    [
        (Volume(0), 0.0),
        (Volume(150), 12.0),
        (Volume(150, throughput_mib_per_s=417), 23.68),  # 292 MiB/s at 4 cents
        (Volume(150, throughput_mib_per_s=2000, iops=8000), 112.0),  # 75 for the throughput, 25 for the I/Os
        (Volume(150, "io2", 16_000, 0), 1058.75),  # 18.75 for the space, 1040 for the I/Os
        (Volume(0, "io2", 16_000, 0), 0.0),
    ],
)
def test_a_volume_costs_its_space_and_what_it_has_beyond_the_free_speed(volume: Volume, usd_per_month: float) -> None:
    assert usd_per_hour(volume) * 730 == pytest.approx(usd_per_month)


@pytest.mark.parametrize(
    ("where", "per_hour"),
    [
        # 1.212 for the machine, 150 GB of system disk at 12/730, the data at 23.68/730
        ({}, 1.260877),
        ({"nodes": 2}, 2.521753),
        ({"nodes": 2, "root_gb": 300}, 2.554630),
        ({"nodes": 2, "data_s3": "s3://b/f"}, 2.456877),
        # one volume at 1058.75/730 for both
        ({"nodes": 2, "data_volume": "multi-attach"}, 3.907219),
    ],
)
def test_an_hour_costs_all_nodes_with_their_volumes(where: dict[str, Any], per_hour: float) -> None:
    chosen = resolved("imagenet", **where)

    assert hourly_usd(chosen, chosen.instances[0], 150) == pytest.approx(per_hour, abs=1e-6)


def test_a_spot_price_takes_the_place_of_the_machines_own() -> None:
    chosen = resolved("imagenet", nodes=2, spot=True)

    assert hourly_usd(chosen, chosen.instances[0], 150, usd=0.5) == pytest.approx(1.097753, abs=1e-6)


def test_the_most_it_can_cost_is_on_demand_until_the_time_limit() -> None:
    chosen = resolved("imagenet", nodes=2, spot=True, max_hours=10)

    assert highest_usd(chosen, chosen.instances[0], 150) == pytest.approx(25.217534, abs=1e-6)


def test_amounts_are_written_with_cents() -> None:
    assert [usd(0), usd(2.4), usd(1234.567)] == ["0.00 USD", "2.40 USD", "1,234.57 USD"]


# ---- which quota it falls under


@pytest.mark.parametrize(
    ("name", "on_demand", "spot"),
    [
        ("g5.2xlarge", "L-DB2E81BA", "L-3819A6DF"),
        ("g4dn.xlarge", "L-DB2E81BA", "L-3819A6DF"),
        ("p3.8xlarge", "L-417A185B", "L-7212CCBC"),
        ("p4d.24xlarge", "L-417A185B", "L-7212CCBC"),
        ("p5en.48xlarge", "L-417A185B", "L-C4BD4855"),
        ("c7i.4xlarge", "L-1216C47A", "L-34B43A08"),
    ],
)
def test_a_type_falls_under_its_familys_quota(name: str, on_demand: str, spot: str) -> None:
    instance = catalog.find(name)

    assert (quota_of(instance, spot=False).code, quota_of(instance, spot=True).code) == (on_demand, spot)


@pytest.mark.parametrize("instance", catalog.load().values(), ids=lambda i: i.name)
def test_every_type_falls_under_some_quota(instance: catalog.Instance) -> None:
    for spot in (False, True):
        assert quota_of(instance, spot).counts(instance.name)


def test_accelerators_and_the_like_have_quotas_of_their_own() -> None:
    standard, graphics = quota_of(catalog.find("c5.large"), False), quota_of(catalog.find("g5.2xlarge"), False)
    names = ["t3.large", "trn1.32xlarge", "inf2.xlarge", "im4gn.large", "i4i.large", "dl1.24xlarge", "d3.xlarge",
             "hpc6a.48xlarge", "m7i.large", "mac2.metal", "g6.xlarge", "gr6.4xlarge", "vt1.3xlarge"]  # fmt: skip

    assert [name for name in names if standard.counts(name)] == [
        "t3.large", "im4gn.large", "i4i.large", "d3.xlarge", "m7i.large",
    ]  # fmt: skip
    assert [name for name in names if graphics.counts(name)] == ["g6.xlarge", "gr6.4xlarge", "vt1.3xlarge"]
