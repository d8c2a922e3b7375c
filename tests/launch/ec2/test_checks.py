"""launch.ec2.checks: what is refused before any request to AWS, what is chosen, and what it costs."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from launch.aws.instances.facts import quota_of
from launch.core import catalog
from launch.core.estimate.volume import rate_for
from launch.core.job import Job
from launch.core.price import CATALOGS, Prices
from launch.core.training.classifier import Classifier
from launch.core.training.script import Script
from launch.ec2.checks import Resolved, highest_usd, hourly_usd, in_container, resolve
from launch.ec2.facts import Snapshot
from launch.ec2.options import Ec2Options
from launch.ec2.volume_init import UNSET, VolumeInit, volume_init
from trainer import datasets
from trainer.config import TrainConfig
from trainer.errors import SettingsError


def job(dataset: str = "digits", train: dict[str, Any] | None = None, **where: Any) -> Job[Ec2Options]:
    return Job(Classifier(TrainConfig(dataset=dataset, **(train or {}))), Ec2Options.model_validate(where))


def resolved(dataset: str = "digits", **where: Any) -> Resolved:
    return resolve(job(dataset, **where))


def refusal(asked: Job[Ec2Options]) -> str:
    with pytest.raises(SettingsError) as caught:
        resolve(asked)
    assert caught.value.code == 2
    return str(caught.value)


@pytest.mark.parametrize(
    ("where", "remedy"),
    [
        ({"nodes": 65}, "--max-nodes 64; raise it"),
        ({"instance_type": ""}, "g5.2xlarge"),
        ({"instance_type": "g5.2xlrge"}, "did you mean 'g5.2xlarge'?"),
        ({"instance_type": "c5.large"}, "--allow-cpu"),
        ({"instance_type": "g5.2xlarge,c5.large"}, "--allow-cpu"),
        ({"instance_type": "p5e.48xlarge"}, "--capacity-block"),
        ({"instance_type": "p3.8xlarge"}, "do not drive a V100"),
        ({"instance_type": "g5.2xlarge", "nproc_per_node": 2}, "g5.2xlarge has 1 GPU"),
        ({"data_s3": "bucket/folder"}, "s3://bucket/folder"),
        ({"data_s3": "s3://bucket/f", "data_volume": "per-node"}, "--data-volume per-node"),
        ({"data_s3": "s3://bucket/f", "data_snapshot": "snap-1"}, "--data-snapshot"),
        ({"data_snapshot": "snap-1", "data_volume": "none"}, "--data-volume none"),
        ({"data_volume": "multi-attach", "nodes": 17}, "use per-node for 17"),
        ({"fill_volumes": "always"}, "omit --fill-volumes"),
        ({"fill_volumes": "always", "data_volume": "per-node", "data": "d", "nodes": 51}, "at most 50 --nodes"),
        ({"spot": True, "capacity_reservation": "cr-1"}, "--spot"),
        ({"spot": True, "capacity_block": "cr-1"}, "--spot"),
        ({"capacity_reservation": "cr-1", "capacity_block": "cr-2"}, "exclude each other"),
        ({"capacity_reservation": "cr-1", "instance_type": "g5.2xlarge,g6.2xlarge"}, "one --instance-type"),
        ({"nodes": 2, "max_usd": 29}, "may cost 29.84 USD, more than --max-usd 29"),
        ({"instance_type": "g5.2xlarge,p4d.24xlarge", "max_usd": 100}, "1 x p4d.24xlarge for 12 h"),
        ({"data": "../jobs"}, "lower-case letters, digits and hyphens"),
        ({"data": "photos", "data_snapshot": "snap-1"}, "--data and --data-snapshot both provide the data"),
        ({"data": "photos", "data_s3": "s3://bucket/f"}, "--data and --data-s3 both provide the data"),
        ({"data": "photos", "data_volume": "none"}, "--data needs a volume"),
    ],
)
def test_what_cannot_work_is_refused_with_the_remedy(where: dict[str, Any], remedy: str) -> None:
    assert remedy in refusal(job(**where))


@pytest.mark.parametrize("dataset", ["imagenet", "imagefolder"])
def test_a_data_set_that_cannot_be_downloaded_must_be_provided(dataset: str) -> None:
    sentence = refusal(job(dataset, {"data_dir": Path("d")}, data_volume="none"))
    assert sentence.endswith("provide it with --data-snapshot or --data-s3.")


def test_a_new_data_set_says_itself_that_it_must_be_provided(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a word about it in the launcher."""
    table = {**datasets.TABLE, "digits": datasets.DataSet("trainer.datasets.digits:load", needs_data=True)}
    monkeypatch.setattr(datasets, "TABLE", table)
    assert "--data-s3" in refusal(job("digits"))
    assert resolved("digits", data_s3="s3://bucket/f").data_volume == "none"
    assert resolved("digits", data_snapshot="snap-1").data_volume == "per-node"


@pytest.mark.parametrize(
    ("dataset", "where", "remedy"),
    [
        ("imagenet", {}, "the newest snapshot of imagenet"),
        ("imagefolder", {"data": "photos"}, "the newest snapshot of photos"),
        ("imagefolder", {}, "python -m launch.data publish mine --name mine"),
        ("imagenet", {"data_s3": "s3://bucket/f"}, "s3://bucket/f"),
        ("cifar10", {}, "give --data-s3"),
    ],
)
def test_a_data_folder_of_this_machine_is_not_silently_replaced(
    dataset: str, where: dict[str, Any], remedy: str
) -> None:
    (warning,) = resolve(job(dataset, {"data_dir": Path("mine")}, **where)).warnings
    assert "--data-dir mine" in warning
    assert remedy in warning


def test_a_data_folder_that_nobody_gave_or_reads_is_no_warning() -> None:
    assert resolved("imagenet").warnings == resolved("cifar10").warnings == ()
    assert resolve(job("imagenet", {"data_dir": Path("/data")})).warnings == ()
    assert resolve(job("synthetic", {"data_dir": Path("mine")})).warnings == ()


def test_weights_of_this_machine_are_refused_with_the_command_that_uploads_them() -> None:
    sentence = refusal(job(train={"init_from": Path("runs/one/model.pt")}, job_name="mine", bucket="some-bucket"))
    assert "\n  aws s3 cp runs/one/model.pt s3://some-bucket/jobs/mine/run/model.pt\n" in sentence
    assert "--init-from /job/run/model.pt" in sentence


def test_weights_that_the_nodes_can_read_are_fine() -> None:
    for path in ("/job/run/model.pt", "/data/model.pt"):
        resolve(job(train={"init_from": Path(path)}))
    resolve(job(train={"init_from": Path("/opt/model.pt")}, image="my-own-image:1"))


def test_a_batch_that_does_not_divide_among_all_gpus_is_refused() -> None:
    assert "the nearest that does is 1023" in refusal(job(train={"global_batch_size": 1024}, nodes=3))
    resolve(job(train={"global_batch_size": 1024}, nodes=4))


# ---- what is chosen


@pytest.mark.parametrize(
    ("dataset", "where", "chosen"),
    [
        ("digits", {}, "none"),
        ("cifar10", {}, "none"),
        ("imagenet", {}, "per-node"),
        ("imagefolder", {}, "per-node"),
        ("cifar10", {"data_snapshot": "snap-1"}, "per-node"),
        ("imagenet", {"data_s3": "s3://bucket/f"}, "none"),
        ("imagenet", {"data_volume": "multi-attach", "nodes": 16}, "multi-attach"),
        ("digits", {"data_volume": "per-node"}, "per-node"),
        ("cifar10", {"data": "photos"}, "per-node"),
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


def test_the_training_reads_its_data_where_the_nodes_have_it() -> None:
    for where, folder in (
        ({}, Path("/data")),
        ({"data_s3": "s3://bucket/f"}, Path("/data")),
    ):
        asked = job("imagenet", **where)
        assert in_container(resolve(asked)).data_dir == folder
    small = job("digits")
    assert in_container(resolve(small)).data_dir is None


# ---- how volumes are filled


@pytest.mark.parametrize(
    ("nodes", "mib_per_s"), [(1, 300), (2, 300), (16, 300), (17, 294), (50, 100), (51, None), (64, None)]
)
def test_all_volumes_together_stay_within_the_regions_rate(nodes: int, mib_per_s: int | None) -> None:
    assert rate_for(nodes) == mib_per_s
    assert nodes * (mib_per_s or 0) <= 5000


def test_a_node_on_spot_capacity_is_worth_what_spot_costs() -> None:
    """140 GiB at 300 MiB/s cost 0.504 USD, and save 40 minutes of a node: 0.80 USD on demand."""
    imagenet = Snapshot("snap-1", 150, 140 * 2**30)
    chosen = resolved("imagenet", spot=True)
    rates = {
        price: volume_init(chosen, chosen.instances[0], imagenet, replace(CATALOGS, spot={"g5.2xlarge": price})).rate
        for price in (0.7, 0.8)
    }
    assert rates == {0.7: None, 0.8: 300}
    unasked = volume_init(chosen, chosen.instances[0], imagenet, CATALOGS)  # half of that on demand, infra/rates.yaml
    assert unasked == UNSET
    assert volume_init(resolved("imagenet"), chosen.instances[0], imagenet, CATALOGS).rate == 300


@pytest.mark.parametrize(
    ("dataset", "train", "nodes", "usd"),
    [
        ("imagenet", {"epochs": 1}, 1, pytest.approx(0.491, abs=0.001)),
        ("imagenet", {"epochs": 1}, 2, 0.0),
        ("imagefolder", {}, 1, 0.0),
    ],
)
def test_a_snapshot_that_was_not_looked_up_is_taken_to_hold_the_data_set_itself(
    dataset: str, train: dict[str, Any], nodes: int, usd: Any
) -> None:
    """The 136 GiB of ImageNet; nobody knows of the user's own."""
    chosen = resolved(dataset, train=train, nodes=nodes)
    fill = volume_init(chosen, chosen.instances[0], Snapshot("<newest snapshot of the data set>", 0), CATALOGS)
    assert fill.usd == usd
    assert fill.rate == (300 if fill.usd else None)


@pytest.mark.parametrize(
    ("where", "rate"),
    [
        ({}, 300),  # 140 GiB at 300 MiB/s cost 0.504 USD, and take 8 minutes instead of 48
        ({"instance_type": "c7i.large", "allow_cpu": True}, None),  # 0.06 USD of its time
        ({"instance_type": "c7i.large", "allow_cpu": True, "fill_volumes": "always"}, 300),
        ({"fill_volumes": "never"}, None),
        ({"nodes": 64}, None),
        ({"train": {"epochs": 1}}, 300),
        ({"train": {"epochs": 1}, "nodes": 8}, None),  # each reads 16 GiB
        ({"train": {"max_steps": 100}}, None),  # of 128 images: 1.3 GiB
    ],
    ids=str,
)
def test_filling_a_volume_is_paid_for_where_the_time_that_it_saves_is_worth_it(
    where: dict[str, Any], rate: int | None
) -> None:
    imagenet = Snapshot("snap-1", 150, 140 * 2**30)
    chosen = resolved("imagenet", **where)
    fill = volume_init(chosen, chosen.instances[0], imagenet, CATALOGS)
    assert fill == (VolumeInit(rate, pytest.approx(0.504), pytest.approx(477.9, abs=0.1)) if rate else UNSET)
    assert volume_init(chosen, chosen.instances[0], None, CATALOGS) == UNSET


# ---- what it costs


@pytest.mark.parametrize(
    ("where", "prices", "per_hour"),
    [
        # 1.212 for the machine, 150 GB of system disk at 12/730 and its 275 MiB/s at 11/730, the data at 23.68/730
        ({}, {}, 1.275945),
        ({"nodes": 2}, {}, 2.551890),
        ({"nodes": 2, "root_gb": 300}, {}, 2.584767),
        ({"nodes": 2, "data_s3": "s3://bucket/f"}, {}, 2.487014),
        ({"nodes": 2, "data_volume": "multi-attach"}, {}, 3.937356),  # one volume at 1058.75/730 for both
        ({"nodes": 2, "spot": True}, {"usd": 0.5}, 1.127890),
        ({"nodes": 2}, {"prices": Prices({"g5.2xlarge": 1.5}, storage=1.2)}, 3 + 1.2 * 0.127890),
    ],
)
def test_an_hour_costs_all_nodes_with_their_volumes(
    where: dict[str, Any], prices: dict[str, Any], per_hour: float
) -> None:
    chosen = resolved("imagenet", **where)
    assert hourly_usd(chosen, chosen.instances[0], 150, **prices) == pytest.approx(per_hour, abs=1e-6)


def test_the_most_it_can_cost_has_the_start_of_every_node_that_may_be_started() -> None:
    """A2: on demand until the time limit, and each replacement pays for the filling of its volume again."""
    chosen = resolved("imagenet", nodes=2, spot=True, max_hours=10, max_restarts=3)
    first = chosen.instances[0]
    assert highest_usd(chosen, first, 150) == pytest.approx(25.518904, abs=1e-6)
    assert highest_usd(chosen, first, 150, once_usd=0.5) - highest_usd(chosen, first, 150) == pytest.approx(2 * 4 * 0.5)


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


def test_accelerators_and_the_like_have_quotas_of_their_own() -> None:
    standard, graphics = quota_of(catalog.find("c5.large"), False), quota_of(catalog.find("g5.2xlarge"), False)
    names = ["t3.large", "trn1.32xlarge", "im4gn.large", "dl1.24xlarge", "hpc6a.48xlarge", "g6.xlarge", "gr6.4xlarge"]

    assert [name for name in names if standard.counts(name)] == ["t3.large", "im4gn.large"]
    assert [name for name in names if graphics.counts(name)] == ["g6.xlarge", "gr6.4xlarge"]


# ---- data from elsewhere


def test_shards_that_are_read_from_s3_need_no_volume_and_no_second_place() -> None:
    streamed = {"data_url": "s3://aws-ddp-toolkit-1-us-east-1/data/photos"}
    assert resolve(job("imagefolder", streamed)).data_volume == "none"
    for where in ({"data": "photos"}, {"data_s3": "s3://bucket/f"}, {"data_snapshot": "snap-1"}):
        assert "both provide the data" in refusal(job("imagefolder", streamed, **where))
    assert "needs no volume" in refusal(job("imagefolder", streamed, data_volume="per-node"))


def test_shards_that_are_read_from_s3_are_kept_on_the_nodes_local_disk() -> None:
    """boot.sh mounts it at /data; a container whose cache were inside it would lose it with each restart."""
    streamed = {"data_url": "s3://aws-ddp-toolkit-1-us-east-1/data/photos"}
    asked = job("imagefolder", streamed)
    assert " --cache-dir /cache " in " ".join(in_container(resolve(asked)).words)
    own = job("imagefolder", {**streamed, "cache_dir": Path("/data/mine")})
    assert " --cache-dir /data/mine " in " ".join(in_container(resolve(own)).words)


def test_a_scripts_volume_needs_the_name_of_what_is_on_it() -> None:
    options = {"data_volume": "per-node"}
    with pytest.raises(SettingsError, match="a script of your own names none; give --data NAME or --data-snapshot"):
        resolve(Job(Script(("train.py",)), Ec2Options.model_validate(options)))
    for more in ({"data": "pets"}, {"data_snapshot": "snap-0123456789abcdef0"}):
        asked = Job(Script(("train.py",)), Ec2Options.model_validate({**options, **more}))
        assert in_container(resolve(asked)).data_dir == Path("/data")


def test_a_folder_of_data_among_a_scripts_arguments_must_be_there() -> None:
    script = Script(("train.py", "--data-dir", "{data_dir}/train"))
    with pytest.raises(SettingsError, match=r"names \{data_dir\}, and this job has no data"):
        resolve(Job(script, Ec2Options()))
    assert resolve(Job(script, Ec2Options(data="photos"))).brings_data


@pytest.mark.parametrize("url", ["http://user:pa55w@proxy:3128", "proxy:3128", "http://proxy", "socks5://proxy:1080"])
def test_a_proxy_with_a_password_or_without_a_port_is_refused_unseen(url: str) -> None:
    with pytest.raises(SettingsError) as caught:
        resolved(proxy=url)
    assert "http://HOST:PORT" in str(caught.value)
    assert "pa55w" not in str(caught.value)
