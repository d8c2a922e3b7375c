"""launch.core.catalog: what infra/instances.yaml says, and that it agrees with what AWS says."""

import math
import re
from typing import Any

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


@pytest.mark.parametrize("instance", load().values(), ids=lambda i: i.name)
def test_every_entry_makes_sense(instance: Instance) -> None:
    described = [instance.gpu_model, instance.gpu_memory_gib, instance.architecture]

    assert all(described) if instance.is_gpu else not any(described)
    assert 0 < instance.network_gbps.base <= instance.network_gbps.peak
    assert 0 < instance.ebs_mb_per_s.base <= instance.ebs_mb_per_s.peak
    assert instance.usd_per_hour > 0
    assert instance.sagemaker_usd_per_hour is None or instance.sagemaker_usd_per_hour >= instance.usd_per_hour


def test_the_hardware_is_what_ec2_describes() -> None:
    described = pytest.importorskip("moto.utilities.utils").load_resource("ec2/resources/instance_types.json")
    differing = {
        instance.name: (hardware(instance), described_hardware(described[instance.name]))
        for instance in load().values()
        if instance.name in described and hardware(instance) != described_hardware(described[instance.name])
    }

    assert differing == {}
    assert load().keys() - described.keys() == {"p3.2xlarge", "p3.8xlarge", "p3.16xlarge"}


def test_the_ml_twins_are_those_that_sagemaker_trains_on() -> None:
    loaders = pytest.importorskip("botocore.loaders")
    model = loaders.Loader().load_service_model("sagemaker", "service-2")
    trains = set(model["shapes"]["TrainingInstanceType"]["enum"])

    assert {i.name for i in load().values() if i.sagemaker_name} == {name for name in load() if f"ml.{name}" in trains}


def hardware(instance: Instance) -> dict[str, object]:
    return {
        "gpus": (instance.gpus, instance.gpu_model, instance.gpu_memory_gib),
        "vcpus": instance.vcpus,
        "processor": (instance.processor, instance.clock_ghz),
        "memory_gib": instance.memory_gib,
        "nvme_gb": instance.nvme_gb,
        "efa": instance.efa,
        "network_gbps": instance.network_gbps,
        "ebs_mb_per_s": instance.ebs_mb_per_s,
    }


def described_hardware(answer: dict[str, Any]) -> dict[str, object]:
    """The same from an answer of DescribeInstanceTypes."""
    gpu = answer.get("GpuInfo", {}).get("Gpus", [{}])[0]
    network, ebs = answer["NetworkInfo"], answer["EbsInfo"]["EbsOptimizedInfo"]
    # "Up to 10 Gigabit", "4x 100 Gigabit", "3200 Gigabit": the sum over the cards, which they do not always give.
    peak_gbps = math.prod(float(number) for number in re.findall(r"[\d.]+", network["NetworkPerformance"]))
    cards = network["NetworkCards"]
    return {
        "gpus": (gpu.get("Count", 0), gpu.get("Name"), round(gpu.get("MemoryInfo", {}).get("SizeInMiB", 0) / 1024, 2)),
        "vcpus": answer["VCpuInfo"]["DefaultVCpus"],
        "processor": (answer["ProcessorInfo"]["Manufacturer"], answer["ProcessorInfo"]["SustainedClockSpeedInGhz"]),
        "memory_gib": answer["MemoryInfo"]["SizeInMiB"] / 1024,
        "nvme_gb": answer.get("InstanceStorageInfo", {}).get("TotalSizeInGB", 0),
        "efa": network.get("EfaInfo", {}).get("MaximumEfaInterfaces", 0),
        "network_gbps": Rate(cards[0]["BaselineBandwidthInGbps"] if len(cards) == 1 else peak_gbps, peak_gbps),
        "ebs_mb_per_s": Rate(ebs["BaselineThroughputInMBps"], ebs["MaximumThroughputInMBps"]),
    }
