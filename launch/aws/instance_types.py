"""Look up instance types that the catalog lacks, such as those that AWS has added since.

https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_InstanceTypeInfo.html
"""

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from launch.aws.client import Aws
from launch.core.catalog import Instance, Rate
from launch.core.errors import AwsError
from trainer.errors import SettingsError

UNKNOWN = ("InvalidInstanceType", "InvalidParameterValue")  # EC2's codes for a type that it does not have


def find_types(aws: Aws, instances: Iterable[Instance]) -> dict[str, Instance]:
    """EC2's description of those that the catalog lacks, by name.  Raises SettingsError for one that cannot be used."""
    found = {}
    for name in dict.fromkeys(instance.name for instance in instances if not instance.is_known):
        try:
            rows = aws.call("ec2", "DescribeInstanceTypes", {"InstanceTypes": [name]})["InstanceTypes"]
        except AwsError as error:
            if error.aws_code not in UNKNOWN:
                raise
            rows = []
        if not rows:
            raise SettingsError(f"EC2 has no instance type {name} in {aws.region}; check the name, or take another.")
        found[name] = described(rows[0])
    return found


def described(row: Mapping[str, Any]) -> Instance:
    """The type in an answer of DescribeInstanceTypes, without a price.  Raises SettingsError if it cannot be used."""
    name, gpu = row["InstanceType"], _gpu(row)
    if "x86_64" not in row["ProcessorInfo"]["SupportedArchitectures"]:
        raise SettingsError(f"{name} has an Arm processor, and AMIs and images are for x86_64; take another type.")
    if gpu.get("Manufacturer", "NVIDIA") != "NVIDIA":
        raise SettingsError(f"{name} has GPUs of {gpu['Manufacturer']}, and the trainer needs NVIDIA's; take another.")
    network, ebs = row["NetworkInfo"], row["EbsInfo"].get("EbsOptimizedInfo", {})
    return Instance(
        name=name,
        gpus=max(1, gpu["Count"]) if gpu else 0,  # EC2 says 0 for a part of a GPU
        vcpus=row["VCpuInfo"]["DefaultVCpus"],
        memory_gib=row["MemoryInfo"]["SizeInMiB"] / 1024,
        nvme_gb=row.get("InstanceStorageInfo", {}).get("TotalSizeInGB", 0),
        efa=network.get("EfaInfo", {}).get("MaximumEfaInterfaces", 0),
        network_gbps=_network(network),
        ebs_mb_per_s=Rate(ebs.get("BaselineThroughputInMBps", 0.0), ebs.get("MaximumThroughputInMBps", 0.0)),
        usd_per_hour=0.0,
        processor=row["ProcessorInfo"].get("Manufacturer", ""),
        clock_ghz=row["ProcessorInfo"].get("SustainedClockSpeedInGhz", 0.0),
        gpu_model=gpu.get("Name"),
        gpu_memory_gib=round(gpu.get("MemoryInfo", {}).get("SizeInMiB", 0) / 1024, 2),
    )


def _gpu(row: Mapping[str, Any]) -> Mapping[str, Any]:
    gpus: list[Mapping[str, Any]] = row.get("GpuInfo", {}).get("Gpus", [])
    return gpus[0] if gpus else {}


def _network(network: Mapping[str, Any]) -> Rate:
    """The sum over all cards, which are not always described one by one: "Up to 10 Gigabit", "4x 100 Gigabit"."""
    numbers = re.findall(r"[\d.]+", network.get("NetworkPerformance", ""))
    peak = math.prod(map(float, numbers)) if numbers else 0.0
    cards = network.get("NetworkCards", ())
    return Rate(cards[0].get("BaselineBandwidthInGbps", peak) if len(cards) == 1 else peak, peak)
