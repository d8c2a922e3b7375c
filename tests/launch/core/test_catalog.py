"""launch.core.catalog: what infra/instances.yaml says, and that it agrees with what AWS says."""

import pytest

from launch.core.catalog import Instance, Rate, find, load, warning
from trainer.errors import SettingsError


def test_the_default_type_is_what_aws_sells() -> None:
    assert find("g5.2xlarge") == Instance(
        name="g5.2xlarge",
        gpus=1,
        gpu_model="A10G",
        gpu_memory_gib=22.35,  # 24 GB
        architecture="sm_86",
        half_tflops=70,
        vcpus=8,
        memory_gib=32,
        nvme_gb=450,
        efa=0,
        network_gbps=Rate(base=5, peak=10),
        ebs_mb_per_s=Rate(base=106.25, peak=437.5),
        usd_per_hour=1.212,
        processor="AMD",
        clock_ghz=3.3,
        sagemaker_usd_per_hour=1.515,
    )


def test_sagemakers_name_finds_the_same_type() -> None:
    assert find("ml.g5.2xlarge") is find("g5.2xlarge")
    assert find("g5.2xlarge").sagemaker_name == "ml.g5.2xlarge"


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("g5.2xlrge", "'g5.2xlarge'"), ("ml.p3.8xlrge", "'ml.p3.8xlarge'"), ("ml.c5.large", "'ml.c")],  # EC2 has c5.large
)
def test_an_unknown_type_gets_the_nearest_name(name: str, nearest: str) -> None:
    with pytest.raises(SettingsError, match=f"unknown instance type '{name}'; did you mean {nearest}"):
        find(name)


def test_types_at_their_end_warn_and_name_one_with_as_many_gpus() -> None:
    ending = {i.name: i.end_of_life for i in load().values() if i.end_of_life}

    assert "p3.8xlarge" in ending
    for name, end in ending.items():
        replacement = find(f"ml.{end.replacement}")
        assert replacement.gpus == find(name).gpus
        assert warning(replacement) is None
        assert end.replacement in (warning(find(name)) or "")


def test_every_entry_makes_sense() -> None:
    for instance in load().values():
        described = [instance.gpu_model, instance.gpu_memory_gib, instance.architecture]

        assert all(described) if instance.is_gpu else not any(described)
        assert 0 < instance.network_gbps.base <= instance.network_gbps.peak
        assert 0 < instance.ebs_mb_per_s.base <= instance.ebs_mb_per_s.peak
        assert instance.usd_per_hour > 0
        assert instance.sagemaker_usd_per_hour is None or instance.sagemaker_usd_per_hour >= instance.usd_per_hour


def test_the_ml_twins_are_those_that_sagemaker_trains_on() -> None:
    loaders = pytest.importorskip("botocore.loaders")
    model = loaders.Loader().load_service_model("sagemaker", "service-2")
    trains = set(model["shapes"]["TrainingInstanceType"]["enum"])

    assert {i.name for i in load().values() if i.sagemaker_name} == {name for name in load() if f"ml.{name}" in trains}
